//! A running guard: its threads, and how it ends.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use hyper::Uri;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tailscope_kernel::{LoadError, drop_all_capabilities};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use crate::admin;
use crate::board::Board;
use crate::figures::Figures;
use crate::health;
use crate::options::Options;
use crate::replica::Fleet;
use crate::serve::serve;
use crate::tls::{TlsError, acceptor};
use crate::worker::Worker;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Why a guard can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be used.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The certificate can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A thread or its runtime.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
    /// The capabilities can't be given up.
    #[error(transparent)]
    Privileges(LoadError),
}

/// A guard that serves.
#[derive(Debug)]
pub struct Guard {
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    fleet: Arc<Fleet>,
    figures: Arc<Figures>,
}

impl Guard {
    /// Starts to serve. `board`: what is known of the replicas, in their order. The calling thread,
    /// and those that serve, lose all capabilities.
    ///
    /// # Errors
    /// If an address can't be listened on, or the system refuses a thread.
    pub fn start(options: &Options, board: Arc<Board>) -> Result<Self, StartError> {
        let fleet = Arc::new(Fleet::new(
            &options.replicas,
            board,
            options.concurrency,
            !options.dry_run,
        ));
        let figures = Arc::new(Figures::default());
        let tls = options.tls.as_ref().map(acceptor).transpose()?;
        let (stop, stopped) = watch::channel(false);
        let threads = options.threads.max(1);
        let mut per_thread: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for address in &options.listen {
            let mut address = *address;
            for listeners in &mut per_thread {
                let listener = listen_on(address, threads > 1)?;
                // Port 0: the others take the same.
                address = listener.local_addr().map_err(StartError::Thread)?;
                listeners.push(listener);
            }
            addresses.push(address);
        }
        let (mut admin_listener, mut admin_address) = (None, None);
        if let Some(address) = options.admin {
            let listener = listen_on(address, false)?;
            admin_address = Some(listener.local_addr().map_err(StartError::Thread)?);
            admin_listener = Some(listener);
        }
        // What reads foreign bytes has no need of them any more: the thread of the hazards keeps its.
        drop_all_capabilities().map_err(StartError::Privileges)?;
        let mut guard = Self {
            stop,
            threads: Vec::new(),
            addresses,
            admin: admin_address,
            fleet,
            figures,
        };
        for listeners in per_thread {
            let listeners = (listeners, tls.clone());
            guard.spawn(options, listeners, admin_listener.take(), &stopped)?;
        }
        Ok(guard)
    }

    fn spawn(
        &mut self,
        options: &Options,
        (listeners, tls): (Vec<TcpListener>, Option<TlsAcceptor>),
        admin: Option<TcpListener>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Thread)?;
        let (fleet, figures) = (Arc::clone(&self.fleet), Arc::clone(&self.figures));
        let (options, stopped) = (options.clone(), stopped.clone());
        // The first thread asks for all.
        let path = options.health.as_ref().filter(|_| self.threads.is_empty());
        let path: Option<Uri> = path.and_then(|path| path.parse().ok());
        let thread = std::thread::Builder::new()
            .name("guard".into())
            .spawn(move || {
                let local = LocalSet::new();
                local.block_on(&runtime, async move {
                    let page = admin::Page::new(Arc::clone(&fleet), Arc::clone(&figures), &options);
                    let worker = Worker::new(&options, fleet, figures);
                    if let Some(listener) = admin.and_then(|l| adopt(l).ok()) {
                        tokio::task::spawn_local(admin::serve(page, listener));
                    }
                    if let Some(path) = path {
                        for replica in 0..worker.fleet.replicas().len() {
                            let worker = Rc::clone(&worker);
                            tokio::task::spawn_local(health::watch(worker, replica, path.clone()));
                        }
                    }
                    let mut serving = tokio::task::JoinSet::new();
                    for listener in listeners.into_iter().filter_map(|l| adopt(l).ok()) {
                        let worker = Rc::clone(&worker);
                        serving.spawn_local(serve(worker, listener, tls.clone(), stopped.clone()));
                    }
                    while serving.join_next().await.is_some() {}
                });
            })
            .map_err(StartError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where metrics and the status are.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Accepts nobody more, and returns when those that are served have been, or after a while.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn adopt(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// `shared`: several threads listen there, and the kernel spreads clients among them.
fn listen_on(address: SocketAddr, shared: bool) -> Result<TcpListener, StartError> {
    let made = || -> io::Result<TcpListener> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if shared {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(socket.into())
    };
    made().map_err(|source| StartError::Listen { address, source })
}

/// Each client and each connection to a replica takes a descriptor: raises the limit to what is
/// allowed.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where it is refused, the lower limit holds: accepting waits then.
    let _ = setrlimit(Resource::Nofile, raised);
}
