//! Whether a replica answers at all: pauses that no hazard shows, such as collections of Node or Go.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tailscope_signals::clock::Monotonic;

/// A replica without requests, because they were taken elsewhere, stays silent for this long.
const STAYS_NS: u64 = 100_000_000;

/// What is seen of a replica from outside.
#[derive(Debug, Default)]
pub struct Signs {
    /// Requests that it has, those whose answers have begun too.
    outstanding: AtomicUsize,
    /// Those of them whose answers have not begun.
    awaited: AtomicUsize,
    /// When it last answered, or got a request while none was awaited.
    last_ns: AtomicU64,
    /// When it was last seen to be silent; 0: it has answered since.
    silent_ns: AtomicU64,
}

impl Signs {
    /// Requests that it has.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// It gets a request.
    pub fn begin(&self) {
        self.outstanding.fetch_add(1, Relaxed);
        if self.awaited.load(Relaxed) == 0 {
            self.last_ns.store(Monotonic::now().0, Relaxed); // first: other threads look
        }
        self.awaited.fetch_add(1, Relaxed);
    }

    /// An answer has begun, or can't be expected now.
    pub fn stop_awaiting(&self) {
        self.awaited.fetch_sub(1, Relaxed);
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

    /// Whether answers have been awaited for this number of ns and none has begun. The second: it has answered,
    /// or had none to answer, since this was so before.
    #[must_use]
    pub fn is_silent(&self, now: Monotonic, after_ns: u64) -> (bool, bool) {
        let is_awaited = self.awaited.load(Relaxed) > 0;
        let since = self.last_ns.load(Relaxed);
        if is_awaited && now.0.saturating_sub(since) > after_ns {
            let before = self.silent_ns.swap(now.0, Relaxed);
            return (true, before <= since);
        }
        let seen = self.silent_ns.load(Relaxed);
        (seen != 0 && now.0.saturating_sub(seen) < STAYS_NS, false)
    }

    /// Another replica is meant from now on.
    pub fn forget(&self) {
        self.silent_ns.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_comes_back_is_new() {
        let signs = Signs::default();
        let at = |ns: u64| Monotonic(Monotonic::now().0 + ns);
        signs.begin();
        assert_eq!(signs.is_silent(at(1_000), 0), (true, true));
        signs.stop_awaiting();
        assert_eq!(signs.is_silent(at(2 * STAYS_NS), 0), (false, false));
        let began = Monotonic::now();
        while Monotonic::now().0 < began.0 + 2_000 {}
        signs.begin();
        assert_eq!(signs.is_silent(at(1_000), 0), (true, true));
        assert_eq!(signs.is_silent(at(2_000), 0), (true, false));
    }

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
        signs.stop_awaiting();
        signs.end();
        assert_eq!(signs.is_silent(later(0), AFTER), (false, false));
        assert_eq!(signs.is_silent(later(9), AFTER), (true, true));
        signs.stop_awaiting();
        assert_eq!(signs.outstanding(), 1, "its answer goes on");
        assert_eq!(
            signs.is_silent(later(9), AFTER),
            (true, false),
            "nothing is awaited any more"
        );
        assert_eq!(signs.is_silent(later(10), AFTER), (false, false));
    }
}
