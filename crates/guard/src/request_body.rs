//! Bodies of requests to replicas.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// What is sent to a replica.
#[derive(Debug)]
pub enum RequestBody {
    /// Nothing.
    Empty,
    /// What the client sends, as it comes.
    Stream(Stream),
}

/// A client's body.
#[derive(Debug)]
pub struct Stream {
    incoming: Incoming,
    has_ended: Rc<Cell<bool>>,
}

impl Stream {
    /// `has_ended` becomes true at its end.
    pub fn new(incoming: Incoming, has_ended: &Rc<Cell<bool>>) -> Self {
        has_ended.set(incoming.is_end_stream());
        Self {
            incoming,
            has_ended: Rc::clone(has_ended),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Stream(stream) => {
                let polled = Pin::new(&mut stream.incoming).poll_frame(cx);
                let is_last = match &polled {
                    Poll::Ready(None) => true,
                    Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
                    _ => false,
                };
                if is_last || stream.incoming.is_end_stream() {
                    stream.has_ended.set(true);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.incoming.size_hint(),
        }
    }
}
