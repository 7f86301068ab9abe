//! `/metrics` over HTTP: one short answer to one short question, for a few askers at a time.
//!
//! A scraper asks every few seconds and gets some kilobytes. So there is no framework here: a
//! head of at most 8 KiB, read within two seconds, an answer, and the connection is closed. Whoever
//! is slower or more talkative is hung up on, and can't hold up anybody else.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::scrape_requests::{ScrapeRequests, Waker};

/// Connections at a time. For one more the oldest is closed that has not said what it wants: whoever
/// connects and is silent holds up nobody else.
const MOST: usize = 32;
/// Those that were closed end at once; until then there are so many threads at most.
const MOST_THREADS: usize = 48;
/// So long, in ms, one more waits for them to end.
const ENDING_MS: u32 = 500;
/// How long a new connection waits while all places are taken. It bounds how many a flood can have
/// served in a second, and so what the flood costs the agent.
const CROWDED: Duration = Duration::from_millis(4);
/// An answer takes some milliseconds; one that takes longer may be closed for another.
const ANSWERED: Duration = Duration::from_secs(1);
const HEAD_BYTES: usize = 8192;
const PATIENCE: Duration = Duration::from_secs(2);

/// The listening thread. Dropped, it ends.
pub(crate) struct Scrape {
    address: SocketAddr,
    stop: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

impl Scrape {
    pub(crate) fn start(
        listener: TcpListener,
        scrape_requests: Arc<ScrapeRequests>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new((AtomicBool::new(false), Waker::new()?));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new()
            .name("agent-metrics".into())
            .spawn(move || serve(&listener, &stopped, &scrape_requests))?;
        Ok(Self {
            address,
            stop,
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
        self.stop.0.store(true, Ordering::Relaxed);
        self.stop.1.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: &TcpListener,
    stop: &(AtomicBool, Waker),
    scrape_requests: &Arc<ScrapeRequests>,
) {
    let open = Arc::new(Connections::default());
    while !stop.0.load(Ordering::Relaxed) {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(&stop.1, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue; // a signal
        }
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, say: a pause rather than a loop at full speed.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if open.all().len() >= MOST {
            std::thread::sleep(CROWDED);
        }
        // In a flood, those that were closed to make room may still be ending.
        let place = (0..ENDING_MS).find_map(|_| {
            let place = Place::take(&open, &stream);
            if place.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            place
        });
        let Some(place) = place else { continue };
        let scrape_requests = Arc::clone(scrape_requests);
        let answering = Builder::new().name("agent-scrape".into()).spawn(move || {
            let _ = answer(stream, &scrape_requests, &place.0);
            drop(place);
        });
        drop(answering);
    }
}

/// A connection that is open.
struct Connection {
    stream: TcpStream,
    since: Instant,
    /// Whether it has said what it wants.
    has_asked: AtomicBool,
}

/// Those that are open, the oldest first.
#[derive(Default)]
struct Connections(Mutex<Vec<Arc<Connection>>>);

impl Connections {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more.
    fn make_room(all: &mut [Arc<Connection>]) {
        let silent = |one: &&Arc<Connection>| !one.has_asked.load(Ordering::Relaxed);
        let slow = |one: &&Arc<Connection>| one.since.elapsed() > ANSWERED;
        let mut closable = all.iter().filter(silent).chain(all.iter().filter(slow));
        if let Some(oldest) = closable.next() {
            oldest.has_asked.store(true, Ordering::Relaxed); // not closed again
            let _ = oldest.stream.shutdown(Shutdown::Both);
        }
    }
}

/// One of the connections that may be open.
struct Place(Arc<Connection>, Arc<Connections>);

impl Place {
    fn take(open: &Arc<Connections>, stream: &TcpStream) -> Option<Self> {
        let connection = Arc::new(Connection {
            stream: stream.try_clone().ok()?,
            since: Instant::now(),
            has_asked: AtomicBool::new(false),
        });
        let mut all = open.all();
        if all.len() >= MOST_THREADS {
            return None;
        }
        if all.len() >= MOST {
            Connections::make_room(&mut all);
        }
        all.push(Arc::clone(&connection));
        drop(all);
        Some(Self(connection, Arc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.1.all().retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

fn answer(
    mut stream: TcpStream,
    scrape_requests: &ScrapeRequests,
    place: &Connection,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let asked = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD_BYTES {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes)?;
        head.extend_from_slice(&bytes[..count]);
        match asked(&head) {
            Some(asked) => break asked,
            None if count == 0 => return Ok(()),
            None => {}
        }
    };
    place.has_asked.store(true, Ordering::Relaxed);
    let (status, kind, body) = match asked {
        Asked::Metrics => match scrape_requests.ask().recv_timeout(PATIENCE) {
            Ok(text) => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text),
            Err(_) => plain("503 Service Unavailable", "the recorder is busy\n"),
        },
        Asked::Elsewhere => plain("404 Not Found", "not found; use /metrics\n"),
        Asked::Otherwise => plain("405 Method Not Allowed", "method not allowed; use GET\n"),
        Asked::Nonsense => plain("400 Bad Request", "not an HTTP request\n"),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn plain(status: &'static str, text: &str) -> (&'static str, &'static str, String) {
    (status, "text/plain; charset=utf-8", text.to_owned())
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
mod tests {
    use super::*;

    #[test]
    fn heads_are_understood_when_they_are_whole() {
        assert_eq!(asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", Asked::Metrics),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asked::Metrics),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Elsewhere),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Otherwise),
            ("\x16\x03\x01\r\n\r\n", Asked::Nonsense),
        ] {
            assert_eq!(asked(head.as_bytes()), Some(expected), "{head}");
        }
    }

    #[test]
    fn a_silent_client_holds_up_nobody_and_the_thread_ends() {
        let waker = Arc::new(Waker::new().expect("a waker"));
        let scrape_requests = Arc::new(ScrapeRequests::new(waker));
        let here = TcpListener::bind("127.0.0.1:0").expect("a port");
        let scrape = Scrape::start(here, Arc::clone(&scrape_requests)).expect("it listens");
        let silent: Vec<_> = (0..3 * MOST)
            .map(|_| TcpStream::connect(scrape.address()).expect("connected"))
            .collect();
        let mut asking = TcpStream::connect(scrape.address()).expect("connected");
        asking
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("asked");
        let answering = std::thread::spawn(move || {
            let mut text = String::new();
            asking.read_to_string(&mut text).map(|_| text)
        });
        while !answering.is_finished() {
            scrape_requests.answer(|| "figures 1\n".into());
            std::thread::yield_now();
        }
        let text = answering.join().expect("it ends").expect("it is answered");
        assert!(text.ends_with("\r\n\r\nfigures 1\n"), "{text}");
        drop((silent, scrape));
    }
}
