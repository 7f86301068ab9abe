//! Connections to the replicas that are kept open between requests; one pool a thread.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::body::RequestBody;
use crate::options::CONNECT;
use crate::shared_stream::{Hurry, SharedStream};

/// So many idle connections are kept to a replica.
const MOST_IDLE: usize = 256;
/// So long: many servers close theirs after 60 or 75 seconds.
const LONGEST_IDLE: Duration = Duration::from_secs(50);

/// A connection on which a request may be sent, or is.
#[derive(Debug)]
pub struct Connection {
    /// The way to its task.
    pub sender: SendRequest<RequestBody>,
    /// What has an answer's rest come sooner.
    pub hurry: Hurry,
    since: Instant,
}

/// Idle connections, by replica; the latest used is the last.
#[derive(Debug)]
pub struct Pool(RefCell<Vec<Vec<Connection>>>);

impl Pool {
    /// For so many replicas.
    #[must_use]
    pub fn new(replicas: usize) -> Rc<Self> {
        let empty = (0..replicas).map(|_| Vec::new()).collect();
        Rc::new(Self(RefCell::new(empty)))
    }

    /// One that is open as far as is known.
    #[must_use]
    pub fn take(&self, replica: usize) -> Option<Connection> {
        let mut all = self.0.borrow_mut();
        while let Some(connection) = all[replica].pop() {
            if connection.since.elapsed() > LONGEST_IDLE {
                all[replica].clear(); // those below are older
                return None;
            }
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose request has been answered, once it is ready for the next.
    pub fn put(self: &Rc<Self>, replica: usize, mut connection: Connection) {
        if connection.sender.is_ready() {
            self.keep(replica, connection);
        } else if !connection.sender.is_closed() {
            // Its task has yet to see the answer's end.
            let pool = Rc::clone(self);
            spawn_local(async move {
                if connection.sender.ready().await.is_ok() {
                    pool.keep(replica, connection);
                }
            });
        }
    }

    fn keep(&self, replica: usize, mut connection: Connection) {
        connection.since = Instant::now();
        let idle = &mut self.0.borrow_mut()[replica];
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    /// Closes all connections to a replica that are idle.
    pub fn forget(&self, replica: usize) {
        self.0.borrow_mut()[replica].clear();
    }
}

/// Makes a connection.
///
/// # Errors
/// In words: nothing was sent then.
pub async fn connect(address: SocketAddr) -> Result<Connection, String> {
    let stream = match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err(e.to_string()),
        Err(_) => return Err(format!("no connection within {} s", CONNECT.as_secs())),
    };
    // A small request must not wait for an acknowledgement.
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let (stream, hurry) = SharedStream::new(stream);
    let (sender, connection) = Builder::new()
        .max_buf_size(128 * 1024)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    spawn_local(async move {
        // Its error reaches the request that was on it.
        let _ = connection.with_upgrades().await;
    });
    Ok(Connection {
        sender,
        hurry,
        since: Instant::now(),
    })
}
