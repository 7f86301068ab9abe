//! What a guard has done so far, in counts.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tailscope_signals::clock::unix_ns;
use tailscope_signals::hazard::Kind;

use crate::budget::Used;

/// The latest hedges that a status shows.
const LATEST: usize = 64;

/// What made a guard send a request once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A hazard of the replica that has the request.
    Hazard(Kind),
    /// Its replica reports hazards, has none, and answers nothing.
    Silent,
    /// It took longer than the percentile, at a replica that reports no hazards.
    Percentile,
}

impl Trigger {
    /// Its name in output and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hazard(kind) => kind.name(),
            Self::Silent => "silent",
            Self::Percentile => "percentile",
        }
    }

    fn number(self) -> usize {
        match self {
            Self::Hazard(kind) => kind as usize,
            Self::Silent => Kind::ALL.len(),
            Self::Percentile => Kind::ALL.len() + 1,
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Kind::ALL
            .into_iter()
            .map(Self::Hazard)
            .chain([Self::Silent, Self::Percentile])
    }
}

/// One request that was sent once more, or would have been.
#[derive(Debug, Clone, Serialize)]
pub struct Hedge {
    /// When, in ns of Unix time.
    pub at_unix_ns: i64,
    /// Why: the name of a hazard, `silent`, or `percentile`.
    pub trigger: &'static str,
    /// Which replica had it.
    pub from: String,
    /// Which one got it too; none in a dry run.
    pub to: Option<String>,
    /// Whether the second one answered first.
    pub won: bool,
    /// From when it came to when it was sent once more.
    pub waited_us: u64,
    /// How old the hazard was when it was sent once more; none without a hazard.
    pub hazard_age_us: Option<u64>,
    /// From when it came to the answer.
    pub latency_us: u64,
    /// How much longer the loser took, for a sample of them; also where it lost.
    pub saved_us: Option<u64>,
}

impl Hedge {
    /// A hedge that begins now.
    #[must_use]
    pub fn begin(
        trigger: Trigger,
        from: String,
        to: Option<String>,
        waited_us: u64,
        hazard_age_us: Option<u64>,
    ) -> Self {
        Self {
            at_unix_ns: unix_ns(),
            trigger: trigger.name(),
            from,
            to,
            won: false,
            waited_us,
            hazard_age_us,
            latency_us: 0,
            saved_us: None,
        }
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start. Each metric is defined by its field.
        #[derive(Debug, Default)]
        pub struct Figures {
            $($(#[$doc])* pub $name: AtomicU64,)*
            hedges: [AtomicU64; Kind::ALL.len() + 2],
            latest: Mutex<VecDeque<Hedge>>,
            /// Of each thread.
            budgets: Mutex<Vec<Arc<Used>>>,
        }

        impl Figures {
            /// Name and value of each count.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.load(Relaxed)),)*].into_iter()
            }
        }
    };
}

figures! {
    /// Client connections that were accepted.
    connections,
    /// Requests whose head was complete and right.
    requests,
    /// Requests that were refused with 400 or a closed connection.
    malformed,
    /// Requests that passed by a replica in a hazard, to a calm one.
    steered,
    /// Extra requests whose answer came first.
    hedges_won,
    /// Extra requests that the budget did not allow.
    hedges_over_budget,
    /// Extra requests that no calm replica could take.
    hedges_without_replica,
    /// Dry run: extra requests that would have been sent.
    hedges_dry,
    /// Losers that were followed to their end, to measure what a hedge saved.
    losers_followed,
    /// How much longer those took than the winners, in µs, all together.
    saved_us,
    /// Copies of requests that a replica got after it had started again.
    warm_ups,
    /// Requests sent again because they were certainly never sent.
    retries_unsent,
    /// GET, HEAD and OPTIONS sent again because their replica ended without an answer.
    retries_lost,
    /// Requests that got 502, because no replica answered.
    failed,
    /// Requests that got 504, because no answer came in time.
    timed_out,
    /// Connections that became another protocol (Upgrade, CONNECT).
    upgrades,
}

impl Figures {
    /// One more.
    pub fn add(count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
    }

    /// Extra requests that were sent for this reason.
    #[must_use]
    pub fn hedges(&self, trigger: Trigger) -> u64 {
        self.hedges[trigger.number()].load(Relaxed)
    }

    /// An extra request is sent.
    pub fn hedged(&self, trigger: Trigger) {
        self.hedges[trigger.number()].fetch_add(1, Relaxed);
    }

    /// A thread has this budget.
    pub fn watch_budget(&self, used: Arc<Used>) {
        let mut all = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(used);
    }

    /// Requests and extra requests of the last ten seconds before the latest request of each thread.
    #[must_use]
    pub fn window(&self) -> (u64, u64) {
        let all = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let each = all.iter().map(|used| used.read());
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// A hedge is over.
    pub fn log(&self, hedge: Hedge) {
        let mut latest = self.lock();
        if latest.len() == LATEST {
            latest.pop_front();
        }
        latest.push_back(hedge);
    }

    /// The latest hedges, the oldest first.
    #[must_use]
    pub fn latest(&self) -> Vec<Hedge> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Hedge>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
