//! A running guard: its threads, new settings, and how it ends.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use tailscope_kernel::{LoadError, drop_all_capabilities};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use crate::accept;
use crate::admin::{self, Page};
use crate::board::Board;
use crate::control::{Answers, Control, Inherited};
use crate::figures::Figures;
use crate::listeners;
use crate::options::Options;
use crate::replica::Fleet;
use crate::setup::Setup;
use crate::target::Target;
use crate::thread::Phase;
use crate::tls::{TlsError, towards_clients};

/// Why a guard can't start, or not with these settings.
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
    /// The replicas of earlier settings still have requests.
    #[error("too many replicas at a time: earlier ones still have requests; try again later")]
    Full,
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
    phase: watch::Sender<Phase>,
    setup: watch::Sender<Arc<Setup>>,
    threads: Vec<JoinHandle<()>>,
    admin: Option<Arc<TcpListener>>,
    page: Arc<Page>,
    /// Earlier replicas: requests may still be there.
    earlier: Vec<Weak<Fleet>>,
    control: Option<Control>,
    handed_over: Arc<AtomicBool>,
}

impl Guard {
    /// Starts to serve. `board`: what is known of the replicas, in their order. `inherited`: sockets
    /// that are served in place of new ones. The calling thread, and those that serve, lose all
    /// capabilities.
    ///
    /// # Errors
    /// If an address can't be listened on, or the system refuses a thread.
    pub fn start(
        options: &Options,
        board: Arc<Board>,
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let (replicas, steers) = (&options.replicas, !options.dry_run);
        let fleet = Fleet::new(replicas, board, options.concurrency, steers);
        let admin = admin_listener(options, inherited)?.map(Arc::new);
        let setup = Arc::new(Setup {
            fleet: Arc::new(fleet),
            tls: options.tls.as_ref().map(towards_clients).transpose()?,
            to_replicas: options.to_replicas()?,
            listeners: listen(options, &mut inherited.clients, &[])?,
            options: options.clone(),
        });
        // What reads foreign bytes has no need of them any more: the thread of the hazards keeps its.
        drop_all_capabilities().map_err(StartError::Privileges)?;
        let figures = Arc::new(Figures::default());
        let setup = watch::Sender::new(setup);
        let mut guard = Self {
            phase: watch::Sender::new(Phase::Serves),
            threads: Vec::new(),
            admin,
            page: Arc::new(Page::new(setup.subscribe(), Arc::clone(&figures))),
            setup,
            earlier: Vec::new(),
            control: None,
            handed_over: Arc::default(),
        };
        for number in 0..options.threads {
            let thread = guard.spawn(number, &figures)?;
            guard.threads.push(thread);
        }
        Ok(guard)
    }

    fn spawn(&self, number: usize, figures: &Arc<Figures>) -> Result<JoinHandle<()>, StartError> {
        let (setups, phase) = (self.setup.subscribe(), self.phase.subscribe());
        let figures = Arc::clone(figures);
        let admin = self.admin.clone().filter(|_| number == 0);
        let page = Arc::clone(&self.page);
        let (sender, started) = channel();
        let work = move || {
            let built = Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build_local(LocalOptions::default());
            let (runtime, told) = match built {
                Ok(runtime) => (Some(runtime), Ok(())),
                Err(e) => (None, Err(e)),
            };
            let _ = sender.send(told);
            let Some(runtime) = runtime else {
                return;
            };
            runtime.block_on(async move {
                if let Some(listener) = admin.and_then(|one| listeners::adopt(&one).ok()) {
                    let pages = admin::serve(page, listener, phase.clone());
                    tokio::task::spawn_local(pages);
                }
                accept::run(number, setups, phase, figures).await;
            });
        };
        let thread = std::thread::Builder::new()
            .name("guard".into())
            .spawn(work)
            .map_err(StartError::Thread)?;
        let gone = |_| io::Error::other("it has ended");
        let told = started.recv().map_err(gone).and_then(|told| told);
        told.map_err(StartError::Thread)?;
        Ok(thread)
    }

    /// Serves a control socket at this path. Another guard whose sockets were inherited leaves then.
    ///
    /// # Errors
    /// If the path can't be used, or the other guard does not leave.
    pub fn open_control(&mut self, path: Option<&Path>, from: &mut Inherited) -> io::Result<()> {
        let from = from.take_guard();
        if let Some(path) = path {
            let answers = Answers {
                page: Arc::clone(&self.page),
                setups: self.setup.subscribe(),
                admin: self.admin.clone(),
                handed_over: Arc::clone(&self.handed_over),
                connections: Default::default(),
            };
            self.control = Some(Control::open(path, from.is_some(), answers)?);
        }
        from.map_or(Ok(()), Inherited::served)
    }

    /// What is to change for these settings. Nothing has changed yet. The threads, the control socket
    /// and the address for metrics stay.
    ///
    /// # Errors
    /// If the settings can't be used. The present settings stay in force then.
    pub fn prepare(&self, options: &Options) -> Result<Setup, StartError> {
        let now = Arc::clone(&self.setup.borrow());
        let earlier: Vec<Arc<Fleet>> = self.earlier.iter().filter_map(Weak::upgrade).collect();
        let options = Options {
            threads: self.threads.len(),
            ..options.clone()
        };
        let fleet = now.fleet.next(
            &options.replicas,
            &earlier,
            options.concurrency,
            !options.dry_run,
        );
        Ok(Setup {
            fleet: Arc::new(fleet.ok_or(StartError::Full)?),
            tls: options.tls.as_ref().map(towards_clients).transpose()?,
            to_replicas: options.to_replicas()?,
            listeners: listen(&options, &mut Vec::new(), &now.listeners)?,
            options,
        })
    }

    /// What is to be watched in which slot while these settings are taken up: their replicas, and
    /// earlier ones as long as requests are there.
    #[must_use]
    pub fn targets(&self, next: &Setup) -> Vec<(u32, Target)> {
        let mut all = next.targets();
        let now = Arc::clone(&self.setup.borrow().fleet);
        let earlier = self.earlier.iter().filter_map(Weak::upgrade);
        for fleet in earlier.chain([now]) {
            for replica in fleet.replicas() {
                let (slot, target) = (replica.slot as u32, Target::Address(replica.address));
                if !all.iter().any(|(known, _)| *known == slot) {
                    all.push((slot, target));
                }
            }
        }
        all
    }

    /// Has these settings hold from now on, for clients that are connected too.
    pub fn adopt(&mut self, setup: Setup) {
        let before = self.setup.send_replace(Arc::new(setup));
        self.earlier.retain(|fleet| fleet.strong_count() > 0);
        self.earlier.push(Arc::downgrade(&before.fleet));
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let setup = self.setup.borrow();
        setup
            .listeners
            .iter()
            .map(|(address, _)| *address)
            .collect()
    }

    /// Where metrics and the status are.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// Whether another guard serves on all sockets, so that this one may leave.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Acquire)
    }

    /// Accepts nobody more, and returns when those that are served have been, or after a while.
    pub fn stop(self) {
        let left = self.is_handed_over();
        self.phase
            .send_replace(if left { Phase::HandedOver } else { Phase::Ends });
        drop(self.control);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn admin_listener(
    options: &Options,
    inherited: &mut Inherited,
) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = options.admin else {
        return Ok(None);
    };
    let there = |one: &TcpListener| one.local_addr().is_ok_and(|at| at == address);
    if let Some(listener) = inherited.admin.take().filter(there) {
        return Ok(Some(listener));
    }
    let listener = listeners::listen_on(address, false);
    listener
        .map(Some)
        .map_err(|source| StartError::Listen { address, source })
}

/// The sockets of each address: those of `now`, else of `ready`, else new ones.
fn listen(
    options: &Options,
    ready: &mut Vec<TcpListener>,
    now: &[crate::setup::Listeners],
) -> Result<Vec<crate::setup::Listeners>, StartError> {
    let each = options.listen.iter().map(|address| {
        if let Some(known) = now.iter().find(|(listens, _)| listens == address) {
            return Ok(known.clone());
        }
        listeners::on(*address, options.threads, ready).map_err(|source| StartError::Listen {
            address: *address,
            source,
        })
    });
    each.collect()
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
