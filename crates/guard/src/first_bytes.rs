//! The first bytes of a client's connection say which protocol it speaks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What every client of HTTP/2 sends first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream of which the first bytes were read already.
#[derive(Debug)]
pub struct FirstBytes<S> {
    stream: S,
    bytes: Vec<u8>,
    at: usize,
}

impl<S: AsyncRead + Unpin> FirstBytes<S> {
    /// Reads until it is clear whether the client speaks HTTP/2, which is the second.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn read(mut stream: S) -> io::Result<(Self, bool)> {
        let mut bytes = Vec::with_capacity(4096);
        loop {
            let is_end = stream.read_buf(&mut bytes).await? == 0;
            let is_2 = bytes.starts_with(PREFACE);
            if is_end || is_2 || !PREFACE.starts_with(&bytes) {
                return Ok((
                    Self {
                        stream,
                        bytes,
                        at: 0,
                    },
                    is_2,
                ));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.bytes[this.at..];
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, into);
        }
        let part = left.len().min(into.remaining());
        into.put_slice(&left[..part]);
        this.at += part;
        if this.at == this.bytes.len() {
            (this.bytes, this.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
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
