//! Whether a replica answers at all: pauses that no hazard shows, such as those of a runtime's own.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tailscope_signals::clock::Monotonic;

/// A replica without requests, because they were taken elsewhere, stays silent for so long.
const STAYS_NS: u64 = 100_000_000;

/// What is seen of a replica from outside.
#[derive(Debug, Default)]
pub struct Signs {
    /// Requests that were not answered yet.
    outstanding: AtomicUsize,
    /// When it last answered, or got a request while it had none.
    last_ns: AtomicU64,
    /// When it was last seen to be silent; 0: it has answered since.
    silent_ns: AtomicU64,
}

impl Signs {
    /// Requests that it has not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// It gets a request.
    pub fn begin(&self) {
        if self.outstanding.fetch_add(1, Relaxed) == 0 {
            self.last_ns.store(Monotonic::now().0, Relaxed);
        }
    }

    /// A request that it had is over.
    pub fn end(&self) {
        self.outstanding.fetch_sub(1, Relaxed);
    }

    /// It has answered one.
    pub fn answered(&self) {
        self.last_ns.store(Monotonic::now().0, Relaxed);
        if self.silent_ns.load(Relaxed) != 0 {
            self.silent_ns.store(0, Relaxed);
        }
    }

    /// Whether it has had requests for so many ns and has answered none. The second: it has answered since
    /// this was so before.
    #[must_use]
    pub fn is_silent(&self, now: Monotonic, after_ns: u64) -> (bool, bool) {
        let since = self.last_ns.load(Relaxed);
        if self.outstanding() > 0 && now.0.saturating_sub(since) > after_ns {
            return (true, self.silent_ns.swap(now.0, Relaxed) == 0);
        }
        let seen = self.silent_ns.load(Relaxed);
        (seen != 0 && now.0.saturating_sub(seen) < STAYS_NS, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_requests_and_answers_none_is_silent() {
        const AFTER: u64 = 1_000_000_000;
        let signs = Signs::default();
        let later = |seconds: u64| Monotonic(Monotonic::now().0 + seconds * AFTER);
        assert_eq!(
            signs.is_silent(later(9), AFTER),
            (false, false),
            "it has none"
        );
        signs.begin();
        assert_eq!(signs.is_silent(later(0), AFTER), (false, false));
        assert_eq!(signs.is_silent(later(9), AFTER), (true, true));
        signs.begin();
        assert_eq!(
            signs.is_silent(later(9), AFTER),
            (true, false),
            "no sign of life"
        );
        signs.answered();
        signs.end();
        assert_eq!(signs.is_silent(later(0), AFTER), (false, false));
        assert_eq!(signs.is_silent(later(9), AFTER), (true, true));
        signs.end();
        assert_eq!(
            signs.is_silent(later(9), AFTER),
            (true, false),
            "its request was taken away"
        );
        assert_eq!(signs.is_silent(later(10), AFTER), (false, false));
    }
}
