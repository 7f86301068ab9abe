//! Bodies of answers to clients.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Collected, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::connection::Connection;
use crate::pool::Pool;
use crate::replica::Lease;

/// What a client gets.
#[derive(Debug)]
pub enum ReplyBody {
    /// All of it.
    Whole(Full<Bytes>),
    /// All of it, and trailers.
    WithTrailers(Collected<Bytes>),
    /// What the replica sends, as it comes.
    Passing(Box<Passing>),
}

/// An answer on its way. When it ends, its connection may be used again.
#[derive(Debug)]
pub struct Passing {
    incoming: Incoming,
    held: Option<(Connection, Lease)>,
    /// Whether its rest was hurried on once.
    hurried: bool,
    pool: Rc<Pool>,
}

impl Passing {
    pub(crate) fn new(
        incoming: Incoming,
        connection: Connection,
        lease: Lease,
        pool: Rc<Pool>,
    ) -> Self {
        Self {
            incoming,
            held: Some((connection, lease)),
            hurried: false,
            pool,
        }
    }

    fn end(&mut self) {
        if let Some((connection, lease)) = self.held.take() {
            self.pool.put(lease.slot(), connection);
        }
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Full::new(bytes))
    }
}

impl From<Collected<Bytes>> for ReplyBody {
    fn from(collected: Collected<Bytes>) -> Self {
        match collected.trailers() {
            None => collected.to_bytes().into(),
            Some(_) => Self::WithTrailers(collected),
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Whole(whole) => Pin::new(whole)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::WithTrailers(collected) => Pin::new(collected)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Passing(passing) => {
                let incoming = &mut passing.incoming;
                let polled = match &mut passing.held {
                    Some((connection, _)) => connection.poll_frame(incoming, cx),
                    None => Pin::new(incoming).poll_frame(cx),
                };
                if polled.is_pending()
                    && !std::mem::replace(&mut passing.hurried, true)
                    && let Some((connection, _)) = &passing.held
                {
                    connection.hurry.acknowledge();
                }
                if matches!(polled, Poll::Ready(None)) || passing.incoming.is_end_stream() {
                    passing.end();
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::WithTrailers(collected) => collected.is_end_stream(),
            Self::Passing(passing) => passing.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::WithTrailers(collected) => collected.size_hint(),
            Self::Passing(passing) => passing.incoming.size_hint(),
        }
    }
}
