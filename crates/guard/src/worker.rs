//! What one thread serves its clients with.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::figures::Figures;
use crate::latency::Latencies;
use crate::options::Options;
use crate::pool::Pool;
use crate::replica::Fleet;

/// Of one thread.
#[derive(Debug)]
pub struct Worker {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) budget: RefCell<Budget>,
    pub(crate) dry_run: bool,
    pub(crate) timeout: Duration,
    pub(crate) proxy_protocol: bool,
    /// Extra requests so far.
    pub(crate) hedges: Cell<u64>,
    latencies: RefCell<Latencies>,
}

impl Worker {
    pub(crate) fn new(options: &Options, fleet: Arc<Fleet>, figures: Arc<Figures>) -> Rc<Self> {
        Rc::new(Self {
            pool: Pool::new(fleet.replicas().len(), options.replicas_speak_2),
            fleet,
            figures,
            budget: RefCell::new(Budget::new(options.budget)),
            dry_run: options.dry_run,
            timeout: options.timeout,
            proxy_protocol: options.proxy_protocol,
            hedges: Cell::new(0),
            latencies: RefCell::new(Latencies::new(options.quantile, Instant::now())),
        })
    }

    /// A request that can be hedged was answered after so long.
    pub(crate) fn record(&self, latency: Duration) {
        self.latencies.borrow_mut().record(latency, Instant::now());
    }

    /// After how long a request is slow; `None`: too few were seen.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        self.latencies.borrow().threshold()
    }
}
