//! When the batch runs and when it is held back: phases of random lengths in a given proportion.

use fastrand::Rng;

use crate::message::Pace;

/// The share of time in which the batch is held back, to measure what lending costs.
pub const DEFAULT_HELD_BACK: f64 = 0.04;

/// The phases, one after the other. Times are in ns of any clock.
#[derive(Debug)]
pub(crate) struct Phases {
    pace: Pace,
    on: bool,
    since_ns: u64,
    /// The phase's length as a part of the mean: 0.5 to 1.5.
    factor: f64,
    ordered_ns: u64,
    random: Rng,
}

impl Phases {
    /// Begins with a phase in which the batch runs.
    pub(crate) fn begin(pace: Pace, now_ns: u64, random: Rng) -> Self {
        let mut phases = Self {
            pace,
            on: pace.on_share > 0.0,
            since_ns: now_ns,
            factor: 1.0,
            ordered_ns: now_ns,
            random,
        };
        phases.draw();
        phases
    }

    fn draw(&mut self) {
        // Random, so that nothing periodic in the server can keep step with the phases.
        self.factor = 0.5 + self.random.f64();
    }

    /// Lends so much from now on.
    pub(crate) fn set(&mut self, pace: Pace, now_ns: u64) {
        self.pace = pace;
        self.ordered_ns = now_ns;
    }

    /// Whether the batch runs.
    pub(crate) fn on(&self) -> bool {
        self.on
    }

    /// When this phase ends; `None`: not before another order.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        let expires = self.pace.lease_ns.map(|lease| self.ordered_ns + lease);
        let share = self.pace.on_share.clamp(0.0, 1.0);
        let own = if self.on { share } else { 1.0 - share };
        let mean = if own >= 1.0 {
            None
        } else {
            // The rarer kind of phase has the given length, the other kind is longer.
            let part = own / share.min(1.0 - share).max(1e-6);
            Some(self.pace.shortest_ns as f64 * part)
        };
        let end = mean.map(|mean| self.since_ns + (mean * self.factor) as u64);
        match (self.on, expires) {
            (true, Some(expires)) => Some(end.map_or(expires, |end| end.min(expires))),
            // Held back, and the orders are old: only a new order lends again.
            (false, Some(_)) => end,
            (_, None) => end,
        }
    }

    /// Begins the next phase if this one is over; whether it did.
    pub(crate) fn advance(&mut self, now_ns: u64) -> bool {
        let expired = (self.pace.lease_ns).is_some_and(|lease| now_ns >= self.ordered_ns + lease);
        if self.end_ns().is_none_or(|end| now_ns < end) || (expired && !self.on) {
            return false;
        }
        self.on = !self.on;
        self.since_ns = now_ns;
        self.draw();
        true
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    fn pace(on_share: f64) -> Pace {
        Pace {
            on_share,
            shortest_ns: 100_000_000,
            lease_ns: None,
        }
    }

    /// The share of time on, and the shortest and the longest phase, in ns.
    fn play(share: f64, seed: u64, count: usize) -> (f64, u64, u64) {
        let mut phases = Phases::begin(pace(share), 0, Rng::with_seed(seed));
        let (mut on_ns, mut now, mut lengths) = (0, 0, Vec::new());
        for _ in 0..count {
            let end = phases.end_ns().expect("both kinds occur");
            if phases.on() {
                on_ns += end - now;
            }
            lengths.push(end - now);
            now = end;
            assert!(phases.advance(now));
        }
        let most = lengths.iter().max().copied().unwrap_or(0);
        let least = lengths.iter().min().copied().unwrap_or(0);
        (on_ns as f64 / now as f64, least, most)
    }

    proptest! {
        #[test]
        fn the_share_is_the_one_that_was_asked_for(share in 0.02..0.98f64, seed: u64) {
            let (on, least, most) = play(share, seed, 4_000);
            prop_assert!((on - share).abs() < 0.02, "{} for {}", on, share);
            prop_assert!(least >= 49_999_999);
            let longer = share.max(1.0 - share) / share.min(1.0 - share);
            prop_assert!(most as f64 <= 150_000_001.0 * longer);
        }
    }

    #[test]
    fn all_or_nothing_never_switches() {
        for share in [0.0, 1.0] {
            let phases = Phases::begin(pace(share), 0, Rng::with_seed(1));
            assert_eq!((phases.on(), phases.end_ns()), (share > 0.5, None));
        }
    }

    #[test]
    fn without_new_orders_the_batch_is_held_back() {
        let leased = Pace {
            lease_ns: Some(1_000),
            ..pace(1.0)
        };
        let mut phases = Phases::begin(leased, 0, Rng::with_seed(1));
        assert!(!phases.advance(999));
        assert!(phases.advance(1_000) && !phases.on());
        assert!(!phases.advance(1 << 60) && !phases.on());
        phases.set(leased, 1 << 60);
        assert!(phases.advance(1 << 60) && phases.on());
    }

    #[test]
    fn a_smaller_share_ends_a_long_phase_early() {
        let mut phases = Phases::begin(pace(0.99), 0, Rng::with_seed(1));
        assert!(phases.end_ns().is_some_and(|end| end > 1_000_000_000));
        phases.set(pace(0.02), 500_000_000);
        assert!(phases.advance(500_000_000) && !phases.on());
    }
}
