//! Connections to the replicas that are kept open between requests; one pool a thread.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::options::CONNECT;
use crate::proxy_protocol::{Ends, ProxyHeader, header};
use crate::replica::Lease;
use crate::request_body::RequestBody;
use crate::shared_stream::{Hurry, SharedStream};
use crate::tls::ToReplicas;

/// The most idle connections that are kept to a replica.
const MOST_IDLE: usize = 256;
/// So long: many servers close theirs after 60 or 75 seconds.
const LONGEST_IDLE: Duration = Duration::from_secs(50);

/// Starts hyper's tasks on this thread.
#[derive(Debug, Clone, Copy)]
pub struct ThisThread;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for ThisThread {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}

/// The way to a connection's task.
#[derive(Debug)]
pub enum Sender {
    /// HTTP/1.1: one request at a time.
    One(http1::SendRequest<RequestBody>),
    /// HTTP/2: many.
    Two(http2::SendRequest<RequestBody>),
}

impl Sender {
    fn is_ready(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_ready(),
            Self::Two(sender) => sender.is_ready(),
        }
    }

    /// Sends a request, or gives it back if it was certainly not sent.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match self {
            Self::One(sender) => sender.try_send_request(request).await,
            Self::Two(sender) => sender.try_send_request(request).await,
        }
    }
}

/// A connection on which a request may be sent, or is.
#[derive(Debug)]
pub struct Connection {
    /// The way to its task.
    pub sender: Sender,
    /// What has an answer's rest come sooner.
    pub hurry: Hurry,
    since: Instant,
}

/// Open connections, by replica. Of HTTP/1.1 those that are idle, the latest used last; of HTTP/2 the
/// latest one.
#[derive(Debug)]
pub struct Pool {
    open: RefCell<Vec<Vec<Connection>>>,
    is_2: bool,
    tls: Option<ToReplicas>,
    /// What each connection begins with.
    header: Option<ProxyHeader>,
    /// For whom that speaks.
    client: Option<Ends>,
}

impl Pool {
    /// A pool for this number of replicas. `is_2`: the replicas speak HTTP/2. `tls`: their
    /// connections are encrypted. `header`: what each connection begins with.
    #[must_use]
    pub fn new(
        slots: usize,
        is_2: bool,
        tls: Option<ToReplicas>,
        header: Option<ProxyHeader>,
    ) -> Rc<Self> {
        Rc::new(Self {
            open: RefCell::new((0..slots).map(|_| Vec::new()).collect()),
            is_2,
            tls,
            header,
            client: None,
        })
    }

    /// An empty pool for one client: a connection that begins with its addresses is for no other.
    #[must_use]
    pub fn of_client(&self, client: Ends) -> Rc<Self> {
        let slots = self.open.borrow().len();
        Rc::new(Self {
            open: RefCell::new((0..slots).map(|_| Vec::new()).collect()),
            is_2: self.is_2,
            tls: self.tls.clone(),
            header: self.header,
            client: Some(client),
        })
    }

    /// What each connection begins with.
    #[must_use]
    pub fn header(&self) -> Option<ProxyHeader> {
        self.header
    }

    /// Whether the replicas speak HTTP/2.
    #[must_use]
    pub fn is_2(&self) -> bool {
        self.is_2
    }

    /// Whether the replicas use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// One that is open as far as is known.
    #[must_use]
    pub fn take(&self, replica: usize) -> Option<Connection> {
        let mut all = self.open.borrow_mut();
        while let Some(connection) = all[replica].pop() {
            if !connection.sender.is_ready() {
                continue;
            }
            if let Some(shared) = connection.shared() {
                all[replica].push(shared);
            } else if connection.since.elapsed() > LONGEST_IDLE {
                all[replica].clear(); // those below are older
                return None;
            }
            return Some(connection);
        }
        None
    }

    /// Makes a connection, which others may share.
    ///
    /// # Errors
    /// In words: nothing was sent then.
    pub async fn connect(&self, lease: &Lease) -> Result<Connection, String> {
        let connecting = self.open_one(lease.replica.address);
        let connection = match timeout(CONNECT, connecting).await {
            Ok(connection) => connection?,
            Err(_) => return Err(format!("no connection within {} s", CONNECT.as_secs())),
        };
        if let Some(shared) = connection.shared() {
            self.open.borrow_mut()[lease.slot()] = vec![shared];
        }
        Ok(connection)
    }

    async fn open_one(&self, address: SocketAddr) -> Result<Connection, String> {
        let words = |e: io::Error| e.to_string();
        let mut stream = TcpStream::connect(address).await.map_err(words)?;
        // A small request must not wait for an acknowledgement.
        stream.set_nodelay(true).map_err(words)?;
        if let Some(version) = self.header {
            let header = header(version, self.client);
            stream.write_all(&header).await.map_err(words)?;
        }
        let (stream, hurry) = SharedStream::new(stream);
        let sender = match &self.tls {
            None => speak(stream, self.is_2).await,
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.name(address), stream).await;
                speak(stream.map_err(words)?, self.is_2).await
            }
        };
        Ok(Connection {
            sender: sender.map_err(|e| e.to_string())?,
            hurry,
            since: Instant::now(),
        })
    }

    /// Keeps a connection whose request has been answered, once it is ready for the next.
    pub fn put(self: &Rc<Self>, replica: usize, mut connection: Connection) {
        let Sender::One(sender) = &mut connection.sender else {
            return; // it is there already
        };
        if sender.is_ready() {
            self.keep(replica, connection);
        } else if !sender.is_closed() {
            // Its task has yet to see the answer's end.
            let pool = Rc::clone(self);
            spawn_local(async move {
                if let Sender::One(sender) = &mut connection.sender
                    && sender.ready().await.is_ok()
                {
                    pool.keep(replica, connection);
                }
            });
        }
    }

    fn keep(&self, replica: usize, mut connection: Connection) {
        connection.since = Instant::now();
        let idle = &mut self.open.borrow_mut()[replica];
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    /// Closes all connections to a replica that are idle.
    pub fn forget(&self, replica: usize) {
        self.open.borrow_mut()[replica].clear();
    }
}

impl Connection {
    /// The same for another request; `None`: it takes one at a time.
    fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Two(sender) => Some(Self {
                sender: Sender::Two(sender.clone()),
                hurry: self.hurry.clone(),
                since: self.since,
            }),
        }
    }
}

/// An error of a connection's task reaches the requests that are on it.
async fn speak<S>(stream: S, is_2: bool) -> hyper::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = TokioIo::new(stream);
    if is_2 {
        let builder = http2::Builder::new(ThisThread);
        let (sender, connection) = builder.handshake(stream).await?;
        spawn_local(async move {
            let _ = connection.await;
        });
        return Ok(Sender::Two(sender));
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(128 * 1024);
    let (sender, connection) = builder.handshake(stream).await?;
    spawn_local(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(Sender::One(sender))
}
