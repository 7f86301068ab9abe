//! A connection to a replica that two can hold: hyper's task, which reads and writes it, and whoever
//! waits for an answer's rest.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::set_tcp_quickack;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The task's side. The connection is closed when it is dropped.
#[derive(Debug)]
pub struct SharedStream(Arc<TcpStream>);

/// The other side.
#[derive(Debug, Clone)]
pub struct Hurry(Weak<TcpStream>);

impl SharedStream {
    /// Both sides of a connection.
    pub fn new(stream: TcpStream) -> (Self, Hurry) {
        let stream = Arc::new(stream);
        let hurry = Hurry(Arc::downgrade(&stream));
        (Self(stream), hurry)
    }
}

impl Hurry {
    /// Acknowledges at once what has arrived. A server without TCP_NODELAY that writes an answer in
    /// two pieces keeps the second until the first is acknowledged, which otherwise takes 40 ms.
    pub fn acknowledge(&self) {
        if let Some(stream) = self.0.upgrade() {
            // Where it fails the connection is gone, and its task says so.
            let _ = set_tcp_quickack(&*stream, true);
        }
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // nothing is buffered here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(
            rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write).map_err(io::Error::from),
        )
    }
}
