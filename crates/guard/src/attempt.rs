//! One attempt: a request is sent to one replica, and its answer's head awaited.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::{Request, Response, StatusCode};

use crate::body::{Passing, ReplyBody, RequestBody};
use crate::pool::{self, Connection};
use crate::replica::Lease;
use crate::worker::Worker;

/// Answers up to this size are taken whole before they count as good: a pause within them can then
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

/// An answer's head, with what is needed to pass its body on.
pub type Reply = Response<ReplyBody>;

/// Sends a request to the replica of this lease. `whole`: a small answer is awaited to its end.
pub async fn send(
    worker: &Worker,
    lease: Lease,
    mut request: Request<RequestBody>,
    whole: bool,
) -> Result<Reply, Failure> {
    let replica = lease.get();
    crate::figures::Figures::add(&replica.requests);
    loop {
        let (mut connection, is_fresh) = match worker.pool.take(lease.replica) {
            Some(connection) => (connection, false),
            None => match pool::connect(replica.address).await {
                Ok(connection) => (connection, true),
                Err(why) => {
                    replica.failed();
                    worker.pool.forget(lease.replica);
                    let why = format!("can't connect to {}: {why}", replica.address);
                    return Err(Failure::NeverSent(Box::new(request), why));
                }
            },
        };
        match connection.sender.try_send_request(request).await {
            Ok(response) => {
                replica.succeeded();
                return finish(worker, lease, connection, response, whole).await;
            }
            Err(mut error) => match error.take_message() {
                // An idle connection that the replica had closed: another one, or a new one.
                Some(unsent) if !is_fresh => request = unsent,
                Some(unsent) => {
                    let why = format!("{}: {}", replica.address, error.error());
                    return Err(Failure::NeverSent(Box::new(unsent), why));
                }
                None => {
                    crate::figures::Figures::add(&replica.errors);
                    let why = format!("{}: {}", replica.address, error.error());
                    return Err(Failure::Lost(why));
                }
            },
        }
    }
}

async fn finish(
    worker: &Worker,
    lease: Lease,
    connection: Connection,
    response: Response<hyper::body::Incoming>,
    whole: bool,
) -> Result<Reply, Failure> {
    let is_small = response
        .body()
        .size_hint()
        .exact()
        .is_some_and(|size| size <= WHOLE);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS || !(whole && is_small) {
        return Ok(response.map(|incoming| {
            let pool = std::rc::Rc::clone(&worker.pool);
            ReplyBody::Passing(Box::new(Passing::new(incoming, connection, lease, pool)))
        }));
    }
    let (head, incoming) = response.into_parts();
    let bytes: Bytes = match incoming.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(e) => {
            crate::figures::Figures::add(&lease.get().errors);
            return Err(Failure::Lost(format!("{}: {e}", lease.get().address)));
        }
    };
    worker.pool.put(lease.replica, connection);
    Ok(Response::from_parts(head, bytes.into()))
}
