//! What one thread serves its clients with.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::ServerConfig;

use crate::budget::Budget;
use crate::figures::Figures;
use crate::latency::Latencies;
use crate::pool::Pool;
use crate::proxy_protocol::Ends;
use crate::replica::Fleet;
use crate::setup::Setup;
use crate::template::Recent;

/// A replica is silent after this multiple of the percentile without any answer. Few requests take that
/// long by themselves: 1 in 100, if latencies are lognormal with a deviation of 1 and the percentile is
/// p95.
const SLOW: u32 = 2;
/// But no sooner than this.
const SOONEST: Duration = Duration::from_millis(2);

/// How long a replica answers nothing until it is silent, by how long requests usually take at most.
pub(crate) fn slow(usual: Duration) -> Duration {
    (usual * SLOW).max(SOONEST)
}

/// Of one thread, with the settings that hold now.
#[derive(Debug, Clone)]
pub struct Worker {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) budget: Rc<RefCell<Budget>>,
    pub(crate) dry_run: bool,
    pub(crate) timeout: Duration,
    pub(crate) proxy_protocol: bool,
    pub(crate) warms_up: bool,
    /// What a replica is warmed up with.
    pub(crate) recent: Rc<Recent>,
    /// What greets clients, if they use TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Extra requests so far.
    pub(crate) hedges: Rc<Cell<u64>>,
    latencies: Rc<RefCell<Latencies>>,
}

impl Worker {
    /// The first of a thread.
    pub(crate) fn new(setup: &Setup, figures: &Arc<Figures>) -> Rc<Self> {
        let options = &setup.options;
        let budget = Budget::new(options.budget);
        figures.watch_budget(budget.used());
        Rc::new(Self {
            pool: pool(setup),
            budget: Rc::new(RefCell::new(budget)),
            hedges: Rc::default(),
            latencies: Rc::new(RefCell::new(Latencies::new(
                options.quantile,
                Instant::now(),
            ))),
            fleet: Arc::clone(&setup.fleet),
            figures: Arc::clone(figures),
            warms_up: options.warm_up,
            recent: Rc::default(),
            dry_run: options.dry_run,
            timeout: options.timeout,
            proxy_protocol: options.proxy_protocol,
            tls: setup.tls.clone(),
        })
    }

    /// The same with new settings. What was learned stays, and so do open connections.
    pub(crate) fn next(&self, setup: &Setup) -> Rc<Self> {
        let options = &setup.options;
        self.budget.borrow_mut().set_share(options.budget);
        self.latencies.borrow_mut().set_quantile(options.quantile);
        // Whom it trusts may have changed.
        let stays = options.replicas_speak_2 == self.pool.is_2()
            && options.send_proxy == self.pool.header()
            && setup.to_replicas.is_none()
            && !self.pool.uses_tls();
        let pool = if stays {
            Rc::clone(&self.pool)
        } else {
            pool(setup)
        };
        let left = (0..setup.fleet.slots()).filter(|slot| !setup.fleet.has(*slot));
        left.for_each(|slot| pool.forget(slot));
        Rc::new(Self {
            pool,
            budget: Rc::clone(&self.budget),
            hedges: Rc::clone(&self.hedges),
            latencies: Rc::clone(&self.latencies),
            fleet: Arc::clone(&setup.fleet),
            figures: Arc::clone(&self.figures),
            warms_up: options.warm_up,
            recent: Rc::clone(&self.recent),
            dry_run: options.dry_run,
            timeout: options.timeout,
            proxy_protocol: options.proxy_protocol,
            tls: setup.tls.clone(),
        })
    }

    /// A request that can be hedged, and began then, has been answered.
    pub(crate) fn record(&self, start: Instant) {
        let now = Instant::now();
        let mut latencies = self.latencies.borrow_mut();
        latencies.record(now - start, now);
        if let Some(usual) = latencies.threshold() {
            self.fleet.board().set_slow(slow(usual));
        }
    }

    /// After how long a request is slower than usual; `None`: too few were seen.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        self.latencies.borrow().threshold()
    }
}

fn pool(setup: &Setup) -> Rc<Pool> {
    let (options, tls) = (&setup.options, setup.to_replicas.clone());
    let slots = setup.fleet.slots();
    Pool::new(slots, options.replicas_speak_2, tls, options.send_proxy)
}

/// What one client is served with: connections to replicas of its own where they begin with its
/// addresses, else those of its thread.
#[derive(Debug)]
pub struct Own {
    ends: Ends,
    /// The thread's worker, and what was made of it.
    made: RefCell<Option<(Rc<Worker>, Rc<Worker>)>>,
}

impl Own {
    /// Of the client with these ends.
    pub(crate) fn new(ends: Ends) -> Self {
        Self {
            ends,
            made: RefCell::default(),
        }
    }

    /// For the next request, with the settings of its thread.
    pub(crate) fn worker(&self, of_thread: Rc<Worker>) -> Rc<Worker> {
        if of_thread.pool.header().is_none() {
            return of_thread;
        }
        let mut made = self.made.borrow_mut();
        if let Some((from, own)) = &*made
            && Rc::ptr_eq(from, &of_thread)
        {
            return Rc::clone(own);
        }
        let own = Rc::new(Worker {
            pool: of_thread.pool.of_client(self.ends),
            ..Worker::clone(&of_thread)
        });
        *made = Some((of_thread, Rc::clone(&own)));
        own
    }
}
