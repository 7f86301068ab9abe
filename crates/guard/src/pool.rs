//! Connections to the replicas that are kept open between requests; one pool a thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::connection::Connection;
use crate::options::CONNECT;
use crate::proxy_protocol::{Ends, ProxyHeader, header};
use crate::replica::Lease;
use crate::shared_stream::SharedStream;
use crate::tls::ToReplicas;

/// The most idle connections that are kept to a replica.
const MOST_IDLE: usize = 256;
/// Between two looks for idle connections that the other side has closed.
const SWEEP: Duration = Duration::from_secs(1);
/// One that is idle in more of them is closed: many servers close theirs after 60 or 75 seconds.
const MOST_SWEEPS: u32 = 50;

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
    /// Whether a task looks after those that are idle.
    sweeps: Cell<bool>,
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
            sweeps: Cell::default(),
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
            sweeps: Cell::default(),
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
    pub fn take(&self, lease: &Lease) -> Option<Connection> {
        let idle = &mut self.open.borrow_mut()[lease.slot()];
        while let Some(connection) = idle.pop() {
            // Its slot may have been another replica's when its request began.
            if !connection.is_ready() || connection.address != lease.replica.address {
                continue;
            }
            if let Some(shared) = connection.shared() {
                idle.push(shared);
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
        let connection = match &self.tls {
            None => Connection::new(stream, hurry, address, self.is_2).await,
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.name(address), stream).await;
                Connection::new(stream.map_err(words)?, hurry, address, self.is_2).await
            }
        };
        connection.map_err(|e| e.to_string())
    }

    /// Keeps a connection whose request has been answered, once it is ready for the next.
    pub fn put(self: &Rc<Self>, replica: usize, mut connection: Connection) {
        if !connection.is_for_one() {
            return; // it is there already
        }
        if connection.is_ready() {
            self.keep(replica, connection);
            return;
        }
        // Its request, or the answer's end, is still on its way.
        let pool = Rc::clone(self);
        spawn_local(async move {
            if connection.ready().await {
                pool.keep(replica, connection);
            }
        });
    }

    fn keep(self: &Rc<Self>, replica: usize, mut connection: Connection) {
        connection.sweeps = 0;
        let idle = &mut self.open.borrow_mut()[replica];
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
        if !self.sweeps.replace(true) {
            spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Closes all connections to a replica that are idle.
    pub fn forget(&self, replica: usize) {
        self.open.borrow_mut()[replica].clear();
    }
}

/// Closes idle connections that the other side has closed, for as long as there are idle ones.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut open = pool.open.borrow_mut();
        for idle in open.iter_mut() {
            idle.retain_mut(|one| {
                one.sweeps += 1;
                one.sweeps <= MOST_SWEEPS && one.is_open()
            });
        }
        if open.iter().all(Vec::is_empty) {
            pool.sweeps.set(false);
            return;
        }
    }
}
