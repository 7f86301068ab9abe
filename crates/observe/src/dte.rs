//! Double-time error correction (Shim §3): a rate counts only where both clocks agree.
//!
//! A sample reads the clock, the counters, and the clock again. If something came in between, an
//! interrupt or the hypervisor, the counters were read at some moment that neither reading names,
//! and a rate made of them may be impossible. Then the time between two samples by their first
//! readings differs from the one by their second readings, and the sample is dropped.
//!
//! A clock may go on by more than a cycle at a time: 26, on an EPYC whose TSC is made of 100 MHz. Then
//! two readings that took equally long may seem to differ by one step, as their begins lay in it: that
//! says nothing of what came between them. So times are the same up to 1 % or one step of the clock,
//! whichever is more. Below a hundred steps that is the finest that this clock can tell.

use tailscope_signals::clock;

/// How far the two times may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    share: f64,
    /// The share of 2^20, so that the loop needs no division.
    scaled: u64,
    step: u64,
}

impl Tolerance {
    /// A share of the time by the first readings: 0.01 is Shim's 1 %. Of a clock that goes on by `step`
    /// cycles at a time.
    #[must_use]
    pub fn new(share: f64, step: u64) -> Self {
        let share = share.clamp(0.0, 1.0);
        Self {
            share,
            scaled: (share * f64::from(1 << 20)).round() as u64,
            step,
        }
    }

    /// That share, by the clock of this machine.
    #[must_use]
    pub fn here(share: f64) -> Self {
        Self::new(share, clock::step())
    }

    /// The share.
    #[must_use]
    pub fn share(self) -> f64 {
        self.share
    }

    /// By how many cycles the clock goes on at a time.
    #[must_use]
    pub fn step(self) -> u64 {
        self.step
    }

    /// By how many cycles two times may differ of which one is `time` long.
    #[inline(always)]
    #[must_use]
    pub fn cycles(self, time: u64) -> u64 {
        let share = (u128::from(time) * u128::from(self.scaled)) >> 20;
        (share as u64).max(self.step)
    }

    /// Whether the time from one sample to the next, by the first readings and by the second ones,
    /// is the same but for the tolerance.
    #[inline(always)]
    #[must_use]
    pub fn holds(self, by_first: u64, by_second: u64) -> bool {
        by_first.abs_diff(by_second) <= self.cycles(by_first) && by_first > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_ratio_of_the_two_times(
            first in 1u64..1 << 50, second in 0u64..1 << 50, share in 0.0f64..0.2,
        ) {
            let apart = (second as f64 / first as f64 - 1.0).abs();
            // Not told where arithmetic can't tell.
            prop_assume!((apart - share).abs() > 1e-5);
            prop_assert_eq!(Tolerance::new(share, 0).holds(first, second), apart <= share);
        }

        #[test]
        fn readings_that_took_equally_long_agree_by_a_clock_that_goes_on_in_steps(
            step in 1u64..200, at in prop::array::uniform2(0u64..1 << 40), took in 0u64..1_000,
        ) {
            let shown = |time: u64| time / step * step;
            let [a, b] = at;
            prop_assume!(shown(a) < shown(b));
            let by_first = shown(b) - shown(a);
            let by_second = shown(b + took) - shown(a + took);
            prop_assert!(Tolerance::new(0.01, step).holds(by_first, by_second));
        }

        #[test]
        fn two_steps_are_more_than_a_clock_hides(step in 2u64..200, steps in 3u64..99) {
            let period = step * steps;
            prop_assert!(!Tolerance::new(0.01, step).holds(period, period + 2 * step));
            prop_assert!(!Tolerance::new(0.01, step).holds(period, period - 2 * step));
        }

        #[test]
        fn what_came_between_the_readings_is_noticed(
            period in 1_000u64..1_000_000, read in 0u64..500, late in 1u64..1_000_000,
        ) {
            // Two samples `period` apart; in the second one something took `late` cycles.
            let (first, second) = (period, period + late + read - read);
            let noticed = !Tolerance::new(0.01, 0).holds(first, second);
            prop_assert_eq!(noticed, late as f64 > period as f64 * 0.01 - 1e-9
                && late * 100 > period + period / 100_000);
        }
    }

    #[test]
    fn no_time_at_all_is_no_rate() {
        assert!(!Tolerance::new(1.0, 0).holds(0, 0));
        assert!(Tolerance::new(0.0, 0).holds(5, 5) && !Tolerance::new(0.0, 0).holds(5, 6));
    }
}
