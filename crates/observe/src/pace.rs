//! When the next sample is due.

use std::time::Duration;

use fastrand::Rng;
use tailscope_signals::clock::Clock;

/// Who waits longer than this sleeps meanwhile,
const NAP_FROM: f64 = 1e-3;
/// but for the end of it: a sleeper may wake up so late.
const AWAKE: f64 = 0.2e-3;

/// How often to sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Period {
    /// As fast as it goes.
    Fast,
    /// So many cycles of the clock from one sample to the next.
    Cycles(u64),
}

impl Period {
    /// Whether it is so long that the observer sleeps between samples, and so leaves its CPU to others.
    #[must_use]
    pub fn sleeps(self) -> bool {
        match self {
            Self::Fast => false,
            // No clock is slower than a MHz; the question takes 20 ms.
            Self::Cycles(cycles) if (cycles as f64) < NAP_FROM * 1e6 => false,
            Self::Cycles(cycles) => cycles as f64 >= NAP_FROM * Clock::calibrate().hz() as f64,
        }
    }
}

/// Due times, one after the other.
#[derive(Debug)]
pub struct Pace {
    every: u64,
    /// The period varies by up to this share of it, evenly, to both sides.
    jitter: f64,
    due: u64,
    /// Cycles in a second, if it sleeps.
    hz: f64,
    random: Rng,
}

impl Pace {
    /// `jitter` from 0 to 1.
    #[must_use]
    pub fn new(period: Period, jitter: f64, seed: u64) -> Self {
        let mut pace = Self {
            every: 0,
            jitter: jitter.clamp(0.0, 1.0),
            due: 0,
            hz: f64::INFINITY,
            random: Rng::with_seed(seed),
        };
        pace.set(period);
        pace
    }

    /// From now on another period.
    pub fn set(&mut self, period: Period) {
        self.every = match period {
            Period::Fast => 0,
            Period::Cycles(cycles) => cycles,
        };
    }

    /// Sleeps through long periods of a clock of so many cycles in a second.
    pub fn nap_at(&mut self, hz: u64) {
        self.hz = hz as f64;
    }

    /// How long to sleep from `now` on, before a sample that is due at `due`.
    #[inline(always)]
    #[must_use]
    pub fn nap(&self, now: u64, due: u64) -> Option<Duration> {
        let seconds = due.saturating_sub(now) as f64 / self.hz;
        (seconds >= NAP_FROM).then(|| Duration::from_secs_f64(seconds - AWAKE))
    }

    /// Cycles between samples; 0: as fast as it goes.
    #[must_use]
    pub fn every(&self) -> u64 {
        self.every
    }

    /// When the next sample is due.
    #[inline(always)]
    #[must_use]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// A sample was taken at `now`. The next is due a period after this one was, so that delays
    /// don't add up; but who is late by more than half a period does not hurry after it, so that no
    /// period is much shorter than half.
    #[inline(always)]
    pub fn took(&mut self, now: u64) {
        if self.every == 0 {
            return;
        }
        let mut step = self.every;
        if self.jitter > 0.0 {
            let off = (self.random.f64() * 2.0 - 1.0) * self.jitter;
            step = (step as f64 * (1.0 + off)) as u64;
        }
        let next = self.due.wrapping_add(step);
        self.due = if next <= now + step / 2 || next > now + 2 * self.every {
            now + step
        } else {
            next
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delays_do_not_add_up(every in 10u64..10_000, late in proptest::collection::vec(0u64..10, 1..100)) {
            let mut pace = Pace::new(Period::Cycles(every), 0.0, 1);
            pace.took(1_000_000);
            let first = pace.due();
            for (i, late) in late.iter().enumerate() {
                prop_assert_eq!(pace.due(), first + i as u64 * every);
                pace.took(pace.due() + (*late).min(every / 2 - 1));
            }
        }

        #[test]
        fn who_was_away_does_not_hurry(every in 10u64..10_000, away in 2u64..1_000) {
            let mut pace = Pace::new(Period::Cycles(every), 0.0, 1);
            pace.took(1_000_000);
            let now = pace.due() + away * every;
            pace.took(now);
            prop_assert_eq!(pace.due(), now + every);
        }

        #[test]
        fn a_nap_ends_before_its_sample_is_due(now: u32, wait in 0u64..1 << 40, hz in 1_000_000u64..5_000_000_000) {
            let mut pace = Pace::new(Period::Cycles(1), 0.0, 1);
            let due = u64::from(now) + wait;
            prop_assert_eq!(pace.nap(now.into(), due), None);
            pace.nap_at(hz);
            let seconds = wait as f64 / hz as f64;
            match pace.nap(now.into(), due) {
                Some(nap) => prop_assert!(nap.as_secs_f64() < seconds && seconds >= NAP_FROM),
                None => prop_assert!(seconds < NAP_FROM),
            }
        }

        #[test]
        fn jitter_stays_within_its_share(every in 100u64..10_000, jitter in 0.0f64..1.0) {
            let mut pace = Pace::new(Period::Cycles(every), jitter, 7);
            pace.took(1_000_000);
            for _ in 0..100 {
                let now = pace.due();
                pace.took(now);
                let step = (pace.due() - now) as f64 / every as f64;
                prop_assert!((step - 1.0).abs() <= jitter + 0.02, "{}", step);
            }
        }
    }
}
