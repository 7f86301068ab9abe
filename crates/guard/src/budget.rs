//! The budget of extra requests: at most a share of the requests of the last ten seconds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The length of the window.
pub const WINDOW: Duration = Duration::from_secs(10);
/// The window moves in steps of this length.
const STEP: Duration = Duration::from_millis(100);

/// Counts requests and extra requests. Each request earns a share of an extra one, and what it
/// earned is void after [`WINDOW`].
#[derive(Debug)]
pub struct Budget {
    share: f64,
    steps: VecDeque<Step>,
    requests: u64,
    extra: u64,
    used: Arc<Used>,
}

/// What a budget holds now, for other threads to read.
#[derive(Debug, Default)]
pub struct Used {
    requests: AtomicU64,
    extra: AtomicU64,
}

impl Used {
    /// Requests and extra requests of the window that ended with the latest request.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (self.requests.load(Relaxed), self.extra.load(Relaxed))
    }
}

#[derive(Debug)]
struct Step {
    start: Instant,
    requests: u64,
    extra: u64,
}

impl Budget {
    /// `share`: extra requests for each request, 0.01 for 1 %.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self {
            share,
            steps: VecDeque::new(),
            requests: 0,
            extra: 0,
            used: Arc::default(),
        }
    }

    /// From now on, each request earns this share of an extra one.
    pub fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// What it holds, as of the latest request.
    #[must_use]
    pub fn used(&self) -> Arc<Used> {
        Arc::clone(&self.used)
    }

    /// Another request came.
    pub fn earn(&mut self, now: Instant) {
        self.requests += 1;
        self.step(now).requests += 1;
        self.used.requests.store(self.requests, Relaxed);
        self.used.extra.store(self.extra, Relaxed);
    }

    /// Whether one more extra request may be sent now; if so, it counts. `part`: which part of the share
    /// may be used up by that.
    pub fn take(&mut self, now: Instant, part: f64) -> bool {
        self.step(now); // drops what is over
        if (self.extra + 1) as f64 > part * self.share * self.requests as f64 {
            return false;
        }
        self.extra += 1;
        self.step(now).extra += 1;
        self.used.extra.store(self.extra, Relaxed);
        true
    }

    /// Drops steps that have left the window, and returns the one of now.
    fn step(&mut self, now: Instant) -> &mut Step {
        let age = |step: &Step| now.saturating_duration_since(step.start);
        // A step may be a mixture: its requests leave with the first of them, its extra requests
        // with the last.
        for step in self.steps.iter_mut().take_while(|step| age(step) >= WINDOW) {
            self.requests -= std::mem::take(&mut step.requests);
        }
        while let Some(first) = self.steps.front()
            && age(first) >= WINDOW + STEP
        {
            self.extra -= first.extra;
            self.steps.pop_front();
        }
        let is_over = |last: &Step| now.saturating_duration_since(last.start) >= STEP;
        if self.steps.back().is_none_or(is_over) {
            self.steps.push_back(Step {
                start: now,
                requests: 0,
                extra: 0,
            });
        }
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_requests_earned_is_void_after_the_window() {
        let start = Instant::now();
        let mut budget = Budget::new(0.01);
        for _ in 0..250 {
            budget.earn(start);
        }
        assert!(budget.take(start, 0.5) && !budget.take(start, 0.5));
        assert!(budget.take(start, 1.0) && !budget.take(start, 1.0));
        assert!(!budget.take(start + WINDOW, 1.0));
    }

    #[test]
    fn without_a_share_nothing_extra_is_sent() {
        let now = Instant::now();
        let mut budget = Budget::new(0.0);
        (0..1000).for_each(|_| budget.earn(now));
        assert!(!budget.take(now, 1.0));
    }

    proptest! {
        #[test]
        fn no_window_before_an_extra_request_has_more_than_the_share(
            steps in proptest::collection::vec((0u64..400, any::<bool>()), 1..400),
        ) {
            let start = Instant::now();
            let mut budget = Budget::new(0.1);
            let (mut now, mut requests, mut extra) = (start, Vec::new(), Vec::new());
            for (ms, takes) in steps {
                now += Duration::from_millis(ms);
                budget.earn(now);
                requests.push(now);
                if takes && budget.take(now, 1.0) {
                    extra.push(now);
                    let inside = |times: &[Instant]| {
                        times.iter().filter(|at| now.duration_since(**at) < WINDOW).count()
                    };
                    prop_assert!(inside(&extra) as f64 <= 0.1 * inside(&requests) as f64);
                }
            }
        }
    }
}
