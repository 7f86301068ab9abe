//! What borrower and keeper say to each other: one line of JSON for each message, over a socket.

use std::collections::VecDeque;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::groups::Mechanism;

/// A longer line is no message of ours.
const LONGEST: usize = 1 << 20;

/// How much is lent from now on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The share of time in which the batch may run: 0 to 1.
    pub on_share: f64,
    /// The mean length of the shorter kind of phase, in ns.
    pub shortest_ns: u64,
    /// Without another order for so long, the batch is held back: the borrower may be stuck.
    pub lease_ns: Option<u64>,
}

/// From the borrower to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the batch command.
    Go,
    /// Lend so much.
    Lend(Pace),
    /// End the batch command.
    End,
}

/// From the keeper to the borrower. Times are of the monotonic clock, in ns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The groups are there, and the batch command can be started.
    Ready(Mechanism),
    /// It can't be.
    Refused {
        /// Why, and what to do.
        why: String,
        /// Whether that is wrong usage.
        usage: bool,
    },
    /// A phase has begun.
    Switched {
        /// Whether the batch runs now.
        on: bool,
        /// When the switch began.
        from_ns: u64,
        /// When it was done.
        now_ns: u64,
        /// The figures so far.
        usage: Usage,
    },
    /// So far nothing but time has passed.
    Tick {
        /// When.
        now_ns: u64,
        /// The figures so far.
        usage: Usage,
    },
    /// The batch command and all its descendants have ended.
    Ended(Ending),
}

/// What the batch had, since it was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the batch, in ns.
    pub batch_ns: u64,
    /// Idle time of the lent CPUs, all together, in ns.
    pub idle_ns: u64,
    /// The lent CPUs.
    pub cpus: Vec<u32>,
    /// Processes and threads of the batch now.
    pub processes: u64,
    /// Threads of it.
    pub threads: u64,
    /// Threads that had another policy, and were put back.
    pub policies_put_back: u64,
    /// Threads that had another affinity, and were put back.
    pub affinities_put_back: u64,
    /// Processes that had left the cgroups, and were put back.
    pub groups_put_back: u64,
    /// What could not be put back.
    pub not_put_back: u64,
}

/// How the batch command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ended by itself, not because it was told to.
    pub by_itself: bool,
}

/// A message as a line.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Takes messages apart as they come in.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: VecDeque<u8>,
    /// The other end is gone.
    pub closed: bool,
}

impl Inbox {
    /// Reads what is there now, of a socket that does not block, and takes the whole messages.
    pub(crate) fn read<T: for<'m> Deserialize<'m>>(
        &mut self,
        from: &mut impl Read,
    ) -> io::Result<Vec<T>> {
        let mut buffer = [0; 4096];
        while !self.closed && self.bytes.len() <= LONGEST {
            match from.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(count) => self.bytes.extend(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => self.closed = true,
                Err(e) => return Err(e),
            }
        }
        let lines = self.whole();
        if self.bytes.len() > LONGEST {
            return Err(io::Error::other("a message has no end"));
        }
        let messages = lines.iter().map(|line| Ok(serde_json::from_slice(line)?));
        messages.collect()
    }

    fn whole(&mut self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            lines.push(self.bytes.drain(..=end).collect());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn messages_come_whole_in_whatever_pieces_they_were_sent() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a socket");
        theirs.set_nonblocking(true).expect("ours");
        let mut inbox = Inbox::default();
        let bytes = [line(&Order::Go), line(&Order::End)].concat();
        let (first, second) = bytes.split_at(8);
        ours.write_all(first).expect("room");
        let mut got: Vec<Order> = inbox.read(&mut theirs).expect("well-formed");
        ours.write_all(second).expect("room");
        drop(ours);
        got.extend(inbox.read::<Order>(&mut theirs).expect("well-formed"));
        assert_eq!(got, [Order::Go, Order::End]);
        assert!(inbox.closed);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let mut inbox = Inbox::default();
        assert!(inbox.read::<Order>(&mut &b"{\"Lend\":7}\n"[..]).is_err());
        let endless = vec![b'x'; LONGEST + 5000];
        assert!(Inbox::default().read::<Order>(&mut &endless[..]).is_err());
    }
}
