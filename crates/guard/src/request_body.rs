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
    has_ended: bool,
    left: Rc<Cell<bool>>,
}

impl Stream {
    /// `left` becomes true if the body is dropped before its end: its client's connection can't be
    /// used again then.
    pub fn new(incoming: Incoming, left: &Rc<Cell<bool>>) -> Self {
        Self {
            has_ended: incoming.is_end_stream(),
            incoming,
            left: Rc::clone(left),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.has_ended {
            self.left.set(true);
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
                stream.has_ended =
                    matches!(polled, Poll::Ready(None)) || stream.incoming.is_end_stream();
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
