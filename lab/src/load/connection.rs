//! One connection: what is to be sent, what is under way, what waits for its turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::protocol::{Protocol, Reply};
use crate::clock::Nanos;
use crate::random::Random;

/// A loopback server that does not even accept in this time does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Read this much at a time.
const READ: usize = 64 << 10;

pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    inbox: Inbox,
    outbox: Vec<u8>,
    sent: usize,
    /// Due times of requests without their reply, oldest first.
    under_way: VecDeque<Nanos>,
    /// Due times of requests that found the connection busy.
    waiting: VecDeque<Nanos>,
    /// How many may be under way.
    depth: usize,
}

/// A reply and the due time of its request.
pub struct Answer {
    pub due: Nanos,
    pub reply: Reply,
}

impl Connection {
    pub fn open(address: SocketAddr, depth: usize) -> anyhow::Result<Self> {
        Ok(Self {
            address,
            stream: connect(address)?,
            inbox: Inbox::default(),
            outbox: Vec::new(),
            sent: 0,
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
            depth,
        })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Requests that were due and are not answered.
    pub fn pending(&self) -> usize {
        self.under_way.len() + self.waiting.len()
    }

    /// Some bytes found no room in the socket: call `flush` when it is writable.
    pub fn blocked(&self) -> bool {
        self.sent < self.outbox.len()
    }

    /// Issues a request, or queues it while `depth` others are under way.
    pub fn submit(
        &mut self,
        due: Nanos,
        protocol: &dyn Protocol,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        if self.under_way.len() < self.depth {
            self.under_way.push_back(due);
            protocol.request(random, &mut self.outbox);
            self.flush()
        } else {
            self.waiting.push_back(due);
            Ok(())
        }
    }

    /// Issues what waited, as far as `depth` lets it.
    pub fn issue_waiting(
        &mut self,
        protocol: &dyn Protocol,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        while self.under_way.len() < self.depth {
            let Some(due) = self.waiting.pop_front() else {
                break;
            };
            self.under_way.push_back(due);
            protocol.request(random, &mut self.outbox);
        }
        self.flush()
    }

    /// Sends what it can.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        while self.blocked() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.died(&error)),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once. The caller notes the time between this and `next_answer`.
    pub fn receive(&mut self) -> anyhow::Result<()> {
        match self.inbox.fill(&mut self.stream) {
            Ok(0) => bail!("{} closed a connection: did the server die?", self.address),
            Ok(_) => Ok(()),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(self.died(&error)),
        }
    }

    /// The next whole reply among what was received.
    pub fn next_answer(&mut self, protocol: &dyn Protocol) -> anyhow::Result<Option<Answer>> {
        if self.inbox.unread().is_empty() {
            return Ok(None);
        }
        let Some(reply) = protocol.reply(self.inbox.unread())? else {
            return Ok(None);
        };
        self.inbox.consume(reply.length);
        let due = self
            .under_way
            .pop_front()
            .context("the server sent a reply to no request")?;
        Ok(Some(Answer { due, reply }))
    }

    /// Connects anew after a reply that closed the connection, without waiting until that is done:
    /// a full listen queue costs a second, and the other connections go on. Requests that were
    /// pipelined behind the reply got no answer: they go out again, with the due times they had.
    pub fn reconnect(&mut self) -> anyhow::Result<()> {
        self.stream = begin_to_connect(self.address)
            .with_context(|| format!("can't connect to {} again", self.address))?;
        self.inbox = Inbox::default();
        self.outbox.clear();
        self.sent = 0;
        while let Some(due) = self.under_way.pop_back() {
            self.waiting.push_front(due);
        }
        Ok(())
    }

    /// Sends requests that `Protocol::prepare` wrote and awaits their replies, blocking.
    pub fn converse(
        &mut self,
        requests: &[u8],
        replies: usize,
        protocol: &dyn Protocol,
    ) -> anyhow::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        self.stream
            .write_all(requests)
            .map_err(|error| self.died(&error))?;
        self.under_way
            .extend(std::iter::repeat_n(Nanos::default(), replies));
        while !self.under_way.is_empty() {
            self.receive()?;
            while let Some(answer) = self.next_answer(protocol)? {
                anyhow::ensure!(
                    answer.reply.verdict == super::protocol::Verdict::Ok,
                    "{} refused to store a key: is its memory too small?",
                    self.address
                );
            }
        }
        self.stream.set_nonblocking(true)?;
        Ok(())
    }

    fn died(&self, error: &io::Error) -> anyhow::Error {
        anyhow::anyhow!(
            "lost the connection to {}: {error}: did the server die?",
            self.address
        )
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .with_context(|| format!("can't connect to {address}: is the server running there?"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Until the connection is there, the socket takes no bytes and says so as a full one does.
fn begin_to_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Received bytes, of which the first part has been consumed.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn fill(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        if self.bytes.len() - self.end < READ / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Grows by doubling for replies larger than a read.
            if self.bytes.len() - self.end < READ / 2 {
                self.bytes.resize((self.bytes.len() * 2).max(READ), 0);
            }
        }
        let n = stream.read(&mut self.bytes[self.end..])?;
        self.end += n;
        Ok(n)
    }
}
