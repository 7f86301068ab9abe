//! The screen in front of the HTTP/1.1 server: bytes reach hyper only as parts of requests that are
//! framed in exactly one way.
//!
//! hyper and httparse forgive what others read differently: a bare LF, a repeated Content-Length, a
//! Transfer-Encoding beside a Content-Length. Two programs that disagree on where a request ends
//! can be made to smuggle one. So a request head is held back until it is complete and checked
//! ([`framing`]), and its body is followed to its end. In place of a bad head, hyper gets bytes that
//! it refuses with 400 and a closed connection. A bad body ends the connection. A client of HTTP/2
//! is recognized by its first bytes, and passes unread.

mod framing;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

pub use framing::Chunks;
pub use framing::Refusal;
#[cfg(any(test, fuzzing))]
pub use framing::{Body, check};

use framing::Head;

/// The largest head that is accepted, in bytes.
pub const LARGEST_HEAD: usize = 32 * 1024;
/// What every client of HTTP/2 sends first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Room for the first bytes of a connection.
const FIRST: usize = 1024;
/// Room that a connection keeps from one request to the next.
const KEPT: usize = 4096;
/// What hyper refuses with 400.
const REFUSED: &[u8] = b"\0\r\n\r\n";
/// Bytes that are read at once.
const READ_AT_ONCE: usize = 16 * 1024;

/// Where the connection is.
#[derive(Debug)]
enum State {
    /// Before or in a request's head.
    Head,
    /// This number of bytes of a body is left.
    Length(u64),
    /// In a chunked body.
    Chunked(Chunks),
    /// After a request to upgrade or CONNECT, until it is answered: what follows may be anything.
    Undecided,
    /// It is no longer HTTP.
    Raw,
    /// A bad request was met: nothing more is read.
    Refused,
}

const NO_REQUEST: u8 = 0;
const UPGRADED: u8 = 1;
const STAYED: u8 = 2;

/// How a request to upgrade was answered, from the service to the screen.
#[derive(Debug, Default)]
pub struct Gate {
    answer: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    /// The latest such request was answered, with an upgrade or without.
    pub fn decide(&self, upgrades: bool) {
        let answer = if upgrades { UPGRADED } else { STAYED };
        self.answer.store(answer, Release);
        let waker = self
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A client's connection, with its requests checked.
pub struct Screen<S> {
    stream: S,
    state: State,
    /// What was read.
    held: Vec<u8>,
    /// Of that, what was handed on.
    taken: usize,
    /// Of that, what may be handed on.
    cleared: usize,
    gate: Arc<Gate>,
    on_refusal: Box<dyn Fn(Refusal) + Send>,
}

impl<S> Screen<S> {
    /// `on_refusal` is called for each request that is refused.
    pub fn new(stream: S, on_refusal: impl Fn(Refusal) + Send + 'static) -> (Self, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        let screen = Self {
            stream,
            state: State::Head,
            held: Vec::new(),
            taken: 0,
            cleared: 0,
            gate: Arc::clone(&gate),
            on_refusal: Box::new(on_refusal),
        };
        (screen, gate)
    }

    /// Clears as many of the held bytes as are known to be right.
    fn advance(&mut self) -> Result<(), Refusal> {
        loop {
            let fresh = &self.held[self.cleared..];
            match &mut self.state {
                State::Head => match framing::check(fresh, LARGEST_HEAD)? {
                    None => return Ok(()),
                    Some(Head { length, next }) => {
                        self.cleared += length;
                        self.state = match next {
                            framing::Body::Length(0) => State::Head,
                            framing::Body::Length(length) => State::Length(length),
                            framing::Body::Chunked => State::Chunked(Chunks::default()),
                            framing::Body::Upgrade => {
                                self.gate.answer.store(NO_REQUEST, Release);
                                State::Undecided
                            }
                        };
                        if self.cleared == self.held.len() {
                            return Ok(());
                        }
                    }
                },
                State::Length(left) => {
                    let part = fresh
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= part as u64;
                    self.cleared += part;
                    if *left > 0 || part == 0 {
                        return Ok(());
                    }
                    self.state = State::Head;
                }
                State::Chunked(chunks) => {
                    let (part, ended) = chunks.follow(fresh)?;
                    self.cleared += part;
                    if !ended {
                        return Ok(());
                    }
                    self.state = State::Head;
                }
                State::Undecided => match self.gate.answer.load(Acquire) {
                    UPGRADED => self.state = State::Raw,
                    STAYED => self.state = State::Head,
                    _ => return Ok(()),
                },
                State::Raw => {
                    self.cleared = self.held.len();
                    return Ok(());
                }
                State::Refused => return Ok(()),
            }
        }
    }

    /// What is right so far goes on, and then bytes that hyper refuses.
    fn refuse(&mut self, refusal: Refusal) -> io::Result<()> {
        (self.on_refusal)(refusal);
        let in_head = matches!(self.state, State::Head);
        self.state = State::Refused;
        self.held.truncate(self.cleared);
        if !in_head {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a malformed body",
            ));
        }
        self.held.extend_from_slice(REFUSED);
        self.cleared = self.held.len();
        Ok(())
    }

    fn hand_on(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let ready = &self.held[self.taken..self.cleared];
        let part = ready.len().min(into.remaining());
        if part == 0 {
            return false;
        }
        into.put_slice(&ready[..part]);
        self.taken += part;
        if self.taken == self.held.len() {
            self.held.clear();
            self.held.shrink_to(KEPT);
            (self.taken, self.cleared) = (0, 0);
        } else if self.taken > READ_AT_ONCE {
            self.held.drain(..self.taken);
            self.cleared -= self.taken;
            self.taken = 0;
        }
        true
    }
}

impl<S: AsyncRead + Unpin> Screen<S> {
    /// The client has said that it speaks HTTP/2: nothing is held back. Call this or `is_http2` first.
    pub fn pass_http2(&mut self) {
        self.state = State::Raw;
    }

    /// Reads until it is clear whether the client speaks HTTP/2.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn is_http2(&mut self) -> io::Result<bool> {
        self.held.reserve(FIRST);
        loop {
            let is_end = self.stream.read_buf(&mut self.held).await? == 0;
            let is_2 = self.held.starts_with(PREFACE);
            if is_2 {
                self.state = State::Raw;
            } else if !is_end && PREFACE.starts_with(&self.held) {
                continue;
            }
            if let Err(refusal) = self.advance() {
                self.refuse(refusal)?;
            }
            return Ok(is_2);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Screen<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.hand_on(into) {
                return Poll::Ready(Ok(()));
            }
            match this.state {
                State::Raw if this.held.is_empty() => {
                    return Pin::new(&mut this.stream).poll_read(cx, into);
                }
                State::Undecided => {
                    let mut waker = this
                        .gate
                        .waker
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    *waker = Some(cx.waker().clone());
                    drop(waker);
                    if this.gate.answer.load(Acquire) == NO_REQUEST {
                        return Poll::Pending;
                    }
                }
                // The end, as far as hyper is concerned: it answers 400, and closes.
                State::Refused => return Poll::Ready(Ok(())),
                _ => {
                    let before = this.held.len();
                    let mut room = [std::mem::MaybeUninit::uninit(); READ_AT_ONCE];
                    let mut buffer = ReadBuf::uninit(&mut room);
                    match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                        Poll::Ready(Ok(())) => this.held.extend_from_slice(buffer.filled()),
                        other => return other,
                    }
                    if this.held.len() == before {
                        return Poll::Ready(Ok(())); // the end: what is held back is dropped
                    }
                }
            }
            if let Err(refusal) = this.advance() {
                this.refuse(refusal)?;
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Screen<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
