//! One connection: what is to be sent, what is under way, what waits for its turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::protocol::{Protocol, Reply};
use super::receive::{Inbox, stamp_what_comes};
use super::tally::Request;
use crate::clock::Nanos;
use crate::random::Random;

/// A loopback server that does not even accept in this time does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Connection {
    address: SocketAddr,
    /// None between two requests that have a connection each.
    stream: Option<TcpStream>,
    /// The server has closed it.
    ended: bool,
    inbox: Inbox,
    outbox: Vec<u8>,
    sent: usize,
    /// Requests without their reply, oldest first.
    under_way: VecDeque<Request>,
    /// Due times of requests that found the connection busy.
    waiting: VecDeque<Nanos>,
    /// How many may be under way.
    depth: usize,
    /// Each request has a connection of its own, which is made when it goes out.
    fresh: bool,
}

/// A reply, its request, and when the kernel received its last byte.
pub struct Answer {
    pub request: Request,
    pub received: Nanos,
    pub reply: Reply,
}

impl Connection {
    /// Connects, in any case: whether somebody serves there must be known before load begins.
    pub fn open(address: SocketAddr, depth: usize, fresh: bool) -> anyhow::Result<Self> {
        Ok(Self {
            address,
            stream: Some(connect(address)?),
            ended: false,
            inbox: Inbox::default(),
            outbox: Vec::new(),
            sent: 0,
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
            depth,
            fresh,
        })
    }

    /// None while there is no connection.
    pub fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
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
            self.issue(due, protocol, random)?;
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
            self.issue(due, protocol, random)?;
        }
        self.flush()
    }

    fn issue(
        &mut self,
        due: Nanos,
        protocol: &dyn Protocol,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let sent = Nanos::now();
        if self.stream.is_none() {
            self.connect_again()?;
        }
        self.under_way.push_back(Request { due, sent });
        protocol.request(random, &mut self.outbox);
        Ok(())
    }

    /// Sends what it can.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        while self.blocked() {
            let Some(stream) = &mut self.stream else {
                break;
            };
            match stream.write(&self.outbox[self.sent..]) {
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
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        match self.inbox.fill(stream) {
            Ok(n) => {
                self.ended = n == 0;
                Ok(())
            }
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
        let unread = self.inbox.unread();
        let whole = if unread.is_empty() {
            None
        } else {
            protocol.reply(unread)?
        };
        let reply = match whole {
            Some(reply) => reply,
            None if !self.ended => return Ok(None),
            None => match protocol.last_reply(unread) {
                Some(reply) => reply,
                None => bail!("{} closed a connection: did the server die?", self.address),
            },
        };
        self.inbox.consume(reply.length);
        let request = self
            .under_way
            .pop_front()
            .context("the server sent a reply to no request")?;
        Ok(Some(Answer {
            request,
            received: self.inbox.received(),
            reply,
        }))
    }

    /// Whether the connection is over once this reply was read.
    pub fn over_after(&self, reply: &Reply) -> bool {
        reply.closes || self.fresh
    }

    /// Leaves a connection that is over. Requests that were pipelined behind its last reply got no
    /// answer: they go out again, with the due times they had. Where connections are kept, the next
    /// one is made at once.
    pub fn hang_up(&mut self) -> anyhow::Result<()> {
        self.stream = None;
        self.ended = false;
        self.inbox = Inbox::default();
        self.outbox.clear();
        self.sent = 0;
        while let Some(request) = self.under_way.pop_back() {
            self.waiting.push_front(request.due);
        }
        if self.fresh {
            return Ok(());
        }
        self.connect_again()
    }

    /// Doesn't wait until that is done: a full listen queue costs a second, and the other
    /// connections go on.
    fn connect_again(&mut self) -> anyhow::Result<()> {
        let stream = begin_to_connect(self.address)
            .with_context(|| format!("can't connect to {} again", self.address))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Sends requests that `Protocol::prepare` wrote and awaits their replies, blocking.
    pub fn converse(
        &mut self,
        requests: &[u8],
        replies: usize,
        protocol: &dyn Protocol,
    ) -> anyhow::Result<()> {
        let stream = self.stream.as_mut().context("it is not connected")?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        if let Err(error) = stream.write_all(requests) {
            return Err(self.died(&error));
        }
        self.under_way
            .extend(std::iter::repeat_n(Request::default(), replies));
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
        if let Some(stream) = &self.stream {
            stream.set_nonblocking(true)?;
        }
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
    stamp_what_comes(&stream)?;
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
    stamp_what_comes(&stream)?;
    Ok(stream)
}
