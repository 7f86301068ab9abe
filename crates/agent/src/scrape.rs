//! `/metrics` over HTTP: one short answer to one short question, for a few askers at a time.
//!
//! A scraper asks every few seconds and gets some kilobytes. So there is no framework here: one thread
//! that waits for all connections, a head of at most 8 KiB, read within two seconds, an answer, and the
//! connection is closed. A client that is slower or more talkative is hung up on, and holds up no other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::scrape_requests::{ScrapeRequests, Waker};

/// Connections at a time. For one more the oldest is closed that has not said what it wants: whoever
/// connects and is silent holds up nobody else.
const MOST: usize = 32;
/// After [`MOST`] connections at once, one more is accepted in each interval of this length. That
/// bounds what a flood of connections costs the agent.
const EVERY: Duration = Duration::from_millis(8);
/// The recorder is asked for figures at most once in each interval of this length: it takes a
/// millisecond to collect them. All connections that want some by then get the same.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How long a new connection waits where none can be accepted: out of descriptors, say.
const REFUSED: Duration = Duration::from_millis(10);
/// An answer takes some milliseconds; one that takes longer may be closed for another.
const ANSWERED: Duration = Duration::from_secs(1);
const HEAD_BYTES: usize = 8192;
/// For the head, for the figures, and for the client to take some of them.
const PATIENCE: Duration = Duration::from_secs(2);

/// The listening thread. Dropped, it ends.
pub(crate) struct Scrape {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Scrape {
    pub(crate) fn start(
        listener: TcpListener,
        scrape_requests: Arc<ScrapeRequests>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let waker = Arc::new(Waker::new()?);
        let mut server = Server {
            listener,
            waker: Arc::clone(&waker),
            scrape_requests,
            open: Vec::new(),
            accepts_from: Instant::now(),
            whole: Instant::now(),
            asks_from: Instant::now(),
        };
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name("agent-metrics".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.turn();
            }
        })?;
        Ok(Self {
            address,
            stop,
            waker,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    /// Is woken when figures are there, and for the end.
    waker: Arc<Waker>,
    scrape_requests: Arc<ScrapeRequests>,
    /// The oldest first.
    open: Vec<Connection>,
    accepts_from: Instant,
    /// When [`MOST`] may be accepted at once again.
    whole: Instant,
    asks_from: Instant,
}

impl Server {
    /// Waits until something can be done, and does it.
    fn turn(&mut self) {
        self.wait();
        self.waker.clear();
        self.open.retain_mut(|connection| {
            let is_due = connection.can_go_on || connection.is_late();
            !is_due || connection.goes_on().unwrap_or(false)
        });
        let now = Instant::now();
        self.ask(now);
        if now >= self.accepts_from && self.has_room(now) {
            self.accept(now);
        }
    }

    /// Asks for the figures, for all who want them, if it is time.
    fn ask(&mut self, now: Instant) {
        let wanting = self.open.iter_mut().filter(|one| one.wants_figures());
        let wanting: Vec<&mut Connection> = wanting.collect();
        if wanting.is_empty() || now < self.asks_from {
            return;
        }
        self.asks_from = now + ASKED_EVERY;
        let answers = self.scrape_requests.ask(wanting.len(), &self.waker);
        for (one, answer) in wanting.into_iter().zip(answers) {
            one.turn_to(State::Waits(answer));
        }
    }

    /// Notes which connections can go on.
    fn wait(&mut self) {
        let now = Instant::now();
        let may_accept = now >= self.accepts_from && self.has_room(now);
        let listening = match may_accept {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(&*self.waker, PollFlags::IN),
            PollFd::new(&self.listener, listening),
        ];
        let polled = self.open.iter();
        fds.extend(polled.filter_map(|one| Some(PollFd::new(&one.stream, one.wants()?))));
        let ends = self.open.iter().map(|one| one.since + PATIENCE);
        // Full, it looks again when one may be closed.
        let room = self.open.iter().map(|one| one.since + ANSWERED).min();
        let accepts = match () {
            () if may_accept => None,
            () if now < self.accepts_from => Some(self.accepts_from),
            () => room.filter(|at| *at > now),
        };
        let wanted = self.open.iter().any(Connection::wants_figures);
        let asks = wanted.then_some(self.asks_from);
        let patience = ends.chain(accepts).chain(asks).min().map(|at| {
            let left = at.saturating_duration_since(now);
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // Interrupted by a signal, it looks a little early.
        let polled = poll(&mut fds, patience.as_ref());
        if polled.is_err_and(|e| e != Errno::INTR) {
            std::thread::sleep(REFUSED); // out of memory, say
        }
        let ready: Vec<bool> = fds[2..]
            .iter()
            .map(|fd| polled.is_ok() && !fd.revents().is_empty())
            .collect();
        let mut ready = ready.into_iter();
        for one in &mut self.open {
            one.can_go_on = one.wants().is_none_or(|_| ready.next().unwrap_or(false));
        }
    }

    /// The place of the one that is closed for one more.
    fn closable(&self, now: Instant) -> Option<usize> {
        let silent = |one: &Connection| matches!(one.state, State::Asks(_));
        let slow = |one: &Connection| now.saturating_duration_since(one.since) >= ANSWERED;
        let first = self.open.iter().position(silent);
        first.or_else(|| self.open.iter().position(slow))
    }

    fn has_room(&self, now: Instant) -> bool {
        self.open.len() < MOST || self.closable(now).is_some()
    }

    fn accept(&mut self, now: Instant) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                self.accepts_from = now + REFUSED;
                return;
            }
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.whole = self.whole.max(now) + EVERY;
        let at_once = EVERY * (MOST as u32 - 1);
        self.accepts_from = self.whole.checked_sub(at_once).unwrap_or(now);
        if self.open.len() >= MOST
            && let Some(place) = self.closable(now)
        {
            self.open.remove(place);
        }
        self.open.push(Connection {
            stream,
            since: now,
            state: State::Asks(Vec::new()),
            can_go_on: false,
        });
    }
}

/// A connection that is open.
struct Connection {
    stream: TcpStream,
    /// Since when it is in this state.
    since: Instant,
    state: State,
    can_go_on: bool,
}

enum State {
    /// What has come of the head so far.
    Asks(Vec<u8>),
    /// It wants figures, and the recorder was not asked for them yet.
    Wants,
    Waits(Receiver<String>),
    Gets {
        answer: Vec<u8>,
        sent: usize,
    },
}

impl Connection {
    /// For what it waits; `None`: for the figures. That its client has gone is seen when they are there.
    fn wants(&self) -> Option<PollFlags> {
        match self.state {
            State::Asks(_) => Some(PollFlags::IN),
            State::Wants | State::Waits(_) => None,
            State::Gets { .. } => Some(PollFlags::OUT),
        }
    }

    fn wants_figures(&self) -> bool {
        matches!(self.state, State::Wants)
    }

    fn is_late(&self) -> bool {
        self.since.elapsed() >= PATIENCE
    }

    fn turn_to(&mut self, state: State) {
        self.state = state;
        self.since = Instant::now();
    }

    /// Whether it stays open.
    fn goes_on(&mut self) -> io::Result<bool> {
        let is_late = self.is_late();
        match &mut self.state {
            State::Asks(head) => {
                let is_over = read_to(head, &mut self.stream)?;
                let next = match asked(head) {
                    None if is_over || is_late || head.len() >= HEAD_BYTES => return Ok(false),
                    None => return Ok(true),
                    Some(Asked::Metrics) => State::Wants,
                    Some(Asked::Elsewhere) => {
                        gets(plain("404 Not Found", "not found; use /metrics\n"))
                    }
                    Some(Asked::Otherwise) => gets(plain(
                        "405 Method Not Allowed",
                        "method not allowed; use GET\n",
                    )),
                    Some(Asked::Nonsense) => {
                        gets(plain("400 Bad Request", "not an HTTP request\n"))
                    }
                };
                self.turn_to(next);
            }
            State::Wants => return Ok(!is_late),
            State::Waits(figures) => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                let next = match figures.try_recv() {
                    Ok(text) => answer("200 OK", kind, &text),
                    Err(TryRecvError::Empty) if !is_late => return Ok(true),
                    Err(_) => plain("503 Service Unavailable", "the recorder is busy\n"),
                };
                self.turn_to(gets(next));
            }
            State::Gets { answer, sent } => {
                while *sent < answer.len() {
                    match self.stream.write(&answer[*sent..]) {
                        Ok(0) => return Ok(false),
                        Ok(count) => {
                            *sent += count;
                            self.since = Instant::now();
                        }
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(!is_late),
                        Err(e) => return Err(e),
                    }
                }
                return Ok(false);
            }
        }
        self.goes_on()
    }
}

fn gets(answer: Vec<u8>) -> State {
    State::Gets { answer, sent: 0 }
}

/// Reads what is there of a head. True: no more comes.
fn read_to(head: &mut Vec<u8>, stream: &mut TcpStream) -> io::Result<bool> {
    let mut bytes = [0; 1024];
    while head.len() < HEAD_BYTES {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

fn plain(status: &'static str, text: &str) -> Vec<u8> {
    answer(status, "text/plain; charset=utf-8", text)
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Elsewhere,
    Otherwise,
    Nonsense,
}

/// What a whole head asks for; `None` while it is not whole.
fn asked(head: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => Some(match (request.method, request.path) {
            (Some("GET"), Some(path)) if path.split('?').next() == Some("/metrics") => {
                Asked::Metrics
            }
            (Some("GET"), _) => Asked::Elsewhere,
            _ => Asked::Otherwise,
        }),
        Err(_) => Some(Asked::Nonsense),
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let (all, half) = (asked(bytes), asked(&bytes[..bytes.len() / 2]));
    // What is understood in part is understood whole.
    assert!(half.is_none() || half == all);
}

#[cfg(test)]
mod tests;
