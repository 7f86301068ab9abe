//! The borrower's side of the keeper.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{BorrowError, doing};
use crate::groups::Mechanism;
use crate::guard::GUARD;
use crate::message::{Ending, Inbox, Message, Order, Pace, line};
use crate::plan::Plan;
use crate::state::{self, Entry};

/// How long the keeper may take to get ready.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to end the batch.
const END_PATIENCE: Duration = Duration::from_secs(12);

/// A keeper that runs. Dropped, it ends the batch.
#[derive(Debug)]
pub struct Lender {
    socket: UnixStream,
    inbox: Inbox,
    child: Child,
    /// What holds the batch below the server.
    pub mechanism: Mechanism,
    /// What the files say of it.
    pub entry: Entry,
    ending: Option<Ending>,
}

impl Lender {
    /// Starts the keeper, which makes the cgroups. The batch command does not run yet.
    ///
    /// # Errors
    /// If this user or this machine can't keep a batch below that server.
    pub fn start(plan: &Plan, command: &[OsString]) -> Result<Self, BorrowError> {
        let (mut socket, theirs) = UnixStream::pair().map_err(doing("make a socket"))?;
        let borrower = plan.borrower;
        let plan = serde_json::to_string(plan).map_err(|e| BorrowError::Usage(e.to_string()))?;
        // In a group of its own: Ctrl-C is for the borrower, which then ends the batch properly.
        let mut child = Command::new("/proc/self/exe")
            .args([GUARD, &plan])
            .args(command)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()
            .map_err(doing("start the process that keeps the batch"))?;
        socket
            .set_nonblocking(true)
            .map_err(doing("set the socket up"))?;
        let mut inbox = Inbox::default();
        let deadline = Instant::now() + READY_PATIENCE;
        let answer = loop {
            let messages = inbox.read::<Message>(&mut socket);
            let first = messages.map_err(doing("read from the keeper"))?.pop();
            if first.is_some() || inbox.closed || Instant::now() > deadline {
                break first;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let entry = state::entries()
            .into_iter()
            .find(|entry| entry.borrower.pid == borrower && entry.is_kept());
        match (answer, entry) {
            (Some(Message::Ready(mechanism)), Some(entry)) => Ok(Self {
                socket,
                inbox,
                child,
                mechanism,
                entry,
                ending: None,
            }),
            (Some(Message::Refused { why, usage }), _) => {
                let _ = child.wait();
                Err(if usage {
                    BorrowError::Usage(why)
                } else {
                    BorrowError::Machine(why)
                })
            }
            _ => {
                drop(socket);
                let _ = child.wait();
                let why = "the process that keeps the batch did not start";
                Err(BorrowError::Machine(why.to_owned()))
            }
        }
    }

    fn order(&mut self, order: Order) {
        // A keeper that is gone is seen by what it no longer says.
        let _ = self.socket.write_all(&line(&order));
    }

    /// Starts the batch command.
    pub fn go(&mut self) {
        self.order(Order::Go);
    }

    /// Lends so much from now on.
    pub fn lend(&mut self, pace: Pace) {
        self.order(Order::Lend(pace));
    }

    /// What the keeper has said since the last time.
    ///
    /// # Errors
    /// If it was killed. The batch has been ended then.
    pub fn messages(&mut self) -> Result<Vec<Message>, BorrowError> {
        let messages = self.inbox.read::<Message>(&mut self.socket);
        let messages = messages.map_err(doing("read from the keeper"))?;
        for message in &messages {
            if let Message::Ended(ending) = message {
                self.ending = Some(*ending);
            }
        }
        if self.inbox.closed && self.ending.is_none() {
            let _ = self.child.wait();
            let left = if !self.entry.is_there() || self.entry.clear() {
                "the batch was ended"
            } else {
                "not all of the batch could be ended: run tailscope borrow --restore"
            };
            return Err(BorrowError::Machine(format!(
                "the process that keeps the batch was killed; {left}"
            )));
        }
        Ok(messages)
    }

    /// How the batch ended, if it has.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Ends the batch, and takes the last figures.
    ///
    /// # Errors
    /// As [`Lender::messages`].
    pub fn end(&mut self) -> Result<Vec<Message>, BorrowError> {
        self.order(Order::End);
        let mut all = Vec::new();
        let deadline = Instant::now() + END_PATIENCE;
        while self.ending.is_none() && Instant::now() < deadline {
            all.extend(self.messages()?);
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(all)
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let closed: io::Result<()> = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = closed;
        let _ = self.child.wait();
        if self.entry.is_there() && !self.entry.is_kept() {
            self.entry.clear();
        }
        // The latest figures may have been written after the keeper had removed its files.
        if !self.entry.is_there() {
            let _ = std::fs::remove_file(self.entry.status_path());
        }
    }
}
