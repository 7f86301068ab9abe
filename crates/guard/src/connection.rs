//! A connection to a replica, on which hyper speaks HTTP.
//!
//! With HTTP/1.1 the task that waits for an answer also moves the connection's bytes. A second task
//! for that would have to be woken twice for each request, and would then wake the first one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{spawn_local, unconstrained, yield_now};

use crate::request_body::RequestBody;
use crate::shared_stream::Hurry;

/// Starts hyper's tasks on this thread.
#[derive(Debug, Clone, Copy)]
pub struct ThisThread;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for ThisThread {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}

/// Moves bytes when it is polled. An error reaches the requests that are on the connection.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>>>>;

#[derive(Debug)]
enum Sender {
    /// HTTP/1.1: one request at a time.
    One(http1::SendRequest<RequestBody>),
    /// HTTP/2: many.
    Two(http2::SendRequest<RequestBody>),
    /// No more.
    None,
}

/// A connection on which a request may be sent, or is.
pub struct Connection {
    sender: Sender,
    /// `None`: it has ended, or has a task of its own.
    driver: Option<Driver>,
    /// What has an answer's rest come sooner.
    pub hurry: Hurry,
    /// Of the replica.
    pub address: SocketAddr,
    /// Sweeps of its pool since its last request.
    pub sweeps: u32,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Begins to speak on this stream. `is_2`: HTTP/2.
    ///
    /// # Errors
    /// If the stream is closed.
    pub async fn new<S>(
        stream: S,
        hurry: Hurry,
        address: SocketAddr,
        is_2: bool,
    ) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(stream);
        let (sender, driver) = if is_2 {
            let builder = http2::Builder::new(ThisThread);
            let (sender, connection) = builder.handshake(stream).await?;
            spawn_local(async move {
                let _ = connection.await;
            });
            (Sender::Two(sender), None)
        } else {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(128 * 1024);
            let (sender, connection) = builder.handshake(stream).await?;
            let driver: Driver = Box::pin(connection.with_upgrades());
            (Sender::One(sender), Some(driver))
        };
        Ok(Self {
            sender,
            driver,
            hurry,
            address,
            sweeps: 0,
        })
    }

    /// The same for another request; `None`: it takes one at a time.
    pub fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) | Sender::None => None,
            Sender::Two(sender) => Some(Self {
                sender: Sender::Two(sender.clone()),
                driver: None,
                hurry: self.hurry.clone(),
                address: self.address,
                sweeps: 0,
            }),
        }
    }

    /// Whether a request may be sent, as far as is known.
    pub fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_ready(),
            Sender::Two(sender) => sender.is_ready(),
            Sender::None => false,
        }
    }

    /// Sends a request, or gives it back if it was certainly not sent.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.sender {
            Sender::One(sender) => {
                // Unconstrained: its turn must not end before it was looked at, see `drive`.
                let mut sent = pin!(unconstrained(sender.try_send_request(request)));
                let driver = &mut self.driver;
                poll_fn(|cx| drive(driver, cx, |cx| sent.as_mut().poll(cx))).await
            }
            Sender::Two(sender) => sender.try_send_request(request).await,
            Sender::None => unreachable!("it is only so while it is dropped"),
        }
    }

    /// The next of an answer's body.
    pub fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        drive(&mut self.driver, cx, |cx| {
            Pin::new(&mut *body).poll_frame(cx)
        })
    }

    /// The whole of an answer's body. What does not come with the head is hurried on.
    ///
    /// # Errors
    /// If the connection ends before.
    pub async fn collect(&mut self, body: Incoming) -> hyper::Result<Collected<Bytes>> {
        let mut body = pin!(body.collect());
        let mut look = Context::from_waker(Waker::noop());
        // A task of its own hands it on when it has its turn.
        let turns = if self.driver.is_some() { 0 } else { 2 };
        for turn in 0..=turns {
            if let Poll::Ready(collected) = body.as_mut().poll(&mut look) {
                return collected;
            }
            if turn < turns {
                yield_now().await;
            }
        }
        self.hurry.acknowledge();
        poll_fn(|cx| drive(&mut self.driver, cx, |cx| body.as_mut().poll(cx))).await
    }

    /// Returns when the next request may be sent. False: never.
    pub async fn ready(&mut self) -> bool {
        let Sender::One(sender) = &mut self.sender else {
            return true;
        };
        let driver = &mut self.driver;
        poll_fn(|cx| drive(driver, cx, |cx| sender.poll_ready(cx)))
            .await
            .is_ok()
    }

    /// Whether it is for one request at a time.
    pub fn is_for_one(&self) -> bool {
        matches!(self.sender, Sender::One(_))
    }

    /// Whether the other side has left it open, as far as is known: for one that is idle.
    pub fn is_open(&mut self) -> bool {
        let mut look = Context::from_waker(Waker::noop());
        let driver = self.driver.as_mut();
        driver.is_none_or(|driver| pin!(unconstrained(driver)).poll(&mut look).is_pending())
            && self.is_ready()
    }

    /// Gives it a task of its own, so that its bytes move while nobody waits for them.
    pub fn drive_apart(&mut self) {
        if let Some(driver) = self.driver.take() {
            spawn_local(async move {
                let _ = driver.await;
            });
        }
    }
}

impl Drop for Connection {
    /// Tells the other side that this is the end. TLS has a message for that (`close_notify`).
    fn drop(&mut self) {
        self.sender = Sender::None;
        if let Some(driver) = &mut self.driver {
            let mut look = Context::from_waker(Waker::noop());
            let _ = pin!(unconstrained(driver)).poll(&mut look);
        }
    }
}

/// Moves the connection's bytes, and looks at what has come of that.
fn drive<T>(
    driver: &mut Option<Driver>,
    cx: &mut Context<'_>,
    mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if let Some(moving) = driver {
        if moving.as_mut().poll(cx).is_pending() {
            // Only the driver brings what is looked for, and it wakes this task. A second waker
            // would have the task run once more for nothing.
            return look(&mut Context::from_waker(Waker::noop()));
        }
        *driver = None;
    }
    look(cx)
}
