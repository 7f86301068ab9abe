//! A connection to a replica that two can hold: hyper's task, which reads and writes it, and whoever
//! waits for an answer's rest.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use rustix::net::sockopt::set_tcp_quickack;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The task's side. The connection is closed when it is dropped.
#[derive(Debug)]
pub struct SharedStream {
    /// Its reads know that a short one has emptied the socket, and save the next.
    read: OwnedReadHalf,
    write: Arc<Mutex<OwnedWriteHalf>>,
}

/// The other side.
#[derive(Debug, Clone)]
pub struct Hurry(Weak<Mutex<OwnedWriteHalf>>);

impl SharedStream {
    /// Both sides of a connection.
    pub fn new(stream: TcpStream) -> (Self, Hurry) {
        let (read, write) = stream.into_split();
        let write = Arc::new(Mutex::new(write));
        let hurry = Hurry(Arc::downgrade(&write));
        (Self { read, write }, hurry)
    }
}

/// Both sides are in one thread: nobody ever waits for this.
fn lock(half: &Mutex<OwnedWriteHalf>) -> MutexGuard<'_, OwnedWriteHalf> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hurry {
    /// Acknowledges at once what has arrived. A server without TCP_NODELAY that writes an answer in
    /// two pieces keeps the second until the first is acknowledged, which otherwise takes 40 ms.
    pub fn acknowledge(&self) {
        if let Some(half) = self.0.upgrade() {
            // Where it fails the connection is gone, and its task says so.
            let half = lock(&half);
            let stream: &TcpStream = half.as_ref();
            let _ = set_tcp_quickack(stream, true);
        }
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, into)
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.write)).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.write)).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.write)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.write)).poll_shutdown(cx)
    }
}
