//! One attempt: a request is sent to one replica, and its answer's head awaited.

use hyper::body::{Body, Incoming};
use hyper::{Request, Response, StatusCode};

use crate::connection::Connection;
use crate::figures::Figures;
use crate::replica::Lease;
use crate::reply_body::{Passing, ReplyBody};
use crate::request_body::RequestBody;
use crate::worker::Worker;

/// Answers up to this size are taken whole before they are passed on, so that a pause within them can
/// still be raced.
const WHOLE: u64 = 64 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The request was certainly never sent, and is still there.
    NeverSent(Box<Request<RequestBody>>, String),
    /// It may have been executed.
    Lost(String),
}

impl Failure {
    /// In words.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::NeverSent(_, why) | Self::Lost(why) => why,
        }
    }
}

/// An answer's head.
pub type Reply = Response<ReplyBody>;

/// Sends a request to the replica of this lease.
pub async fn send(
    worker: &Worker,
    lease: Lease,
    mut request: Box<Request<RequestBody>>,
) -> Result<Reply, Failure> {
    let replica = &lease.replica;
    Figures::add(&replica.requests);
    let streams = matches!(request.body(), RequestBody::Stream(_));
    if streams {
        lease.stop_awaiting(); // it waits for the client
    }
    loop {
        let (mut connection, is_fresh) = match worker.pool.take(&lease) {
            Some(connection) => (connection, false),
            // In a box, as it is large and rare: each request has room for what is not in one.
            None => match Box::pin(worker.pool.connect(&lease)).await {
                Ok(connection) => (connection, true),
                Err(why) => {
                    replica.failed();
                    worker.pool.forget(lease.slot());
                    let why = format!("can't connect to {}: {why}", replica.address);
                    return Err(Failure::NeverSent(request, why));
                }
            },
        };
        match connection.send(*request).await {
            Ok(response) => {
                lease.stop_awaiting();
                replica.succeeded();
                return finish(worker, lease, connection, response, streams).await;
            }
            Err(mut error) => match error.take_message() {
                // An idle connection that the replica had closed: another one, or a new one.
                Some(unsent) if !is_fresh => {
                    if worker.pool.is_2() {
                        worker.pool.forget(lease.slot());
                    }
                    request = Box::new(unsent);
                }
                Some(unsent) => {
                    let why = format!("{}: {}", replica.address, error.error());
                    return Err(Failure::NeverSent(Box::new(unsent), why));
                }
                None => {
                    Figures::add(&replica.errors);
                    let why = format!("{}: {}", replica.address, error.error());
                    return Err(Failure::Lost(why));
                }
            },
        }
    }
}

/// `streams`: the request may not have been sent to its end.
async fn finish(
    worker: &Worker,
    lease: Lease,
    mut connection: Connection,
    response: Response<Incoming>,
    streams: bool,
) -> Result<Reply, Failure> {
    let is_small = response
        .body()
        .size_hint()
        .exact()
        .is_some_and(|size| size <= WHOLE);
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switches || !is_small {
        if switches || streams {
            // Bytes are to move also while the client takes nothing of the answer.
            connection.drive_apart();
        }
        return Ok(response.map(|incoming| {
            let pool = std::rc::Rc::clone(&worker.pool);
            ReplyBody::Passing(Box::new(Passing::new(incoming, connection, lease, pool)))
        }));
    }
    let (head, incoming) = response.into_parts();
    let body = match connection.collect(incoming).await {
        Ok(collected) => ReplyBody::from(collected),
        Err(e) => {
            Figures::add(&lease.replica.errors);
            return Err(Failure::Lost(format!("{}: {e}", lease.replica.address)));
        }
    };
    worker.pool.put(lease.slot(), connection);
    Ok(Response::from_parts(head, body))
}
