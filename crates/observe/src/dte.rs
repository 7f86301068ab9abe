//! Double-time error correction (Shim §3): a rate counts only where both clocks agree.
//!
//! A sample reads the clock, the counters, and the clock again. If something came in between, an
//! interrupt or the hypervisor, the counters were read at some moment that neither reading names,
//! and a rate made of them may be impossible. Then the time between two samples by their first
//! readings differs from the one by their second readings, and the sample is dropped.

/// How far the two times may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    share: f64,
    /// The share of 2^20, so that the loop needs no division.
    scaled: u64,
}

impl Tolerance {
    /// A share of the time by the first readings: 0.01 is Shim's 1 %.
    #[must_use]
    pub fn new(share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        Self {
            share,
            scaled: (share * f64::from(1 << 20)).round() as u64,
        }
    }

    /// The share.
    #[must_use]
    pub fn share(self) -> f64 {
        self.share
    }

    /// Whether the time from one sample to the next, by the first readings and by the second ones,
    /// is the same but for the tolerance.
    #[inline(always)]
    #[must_use]
    pub fn holds(self, by_first: u64, by_second: u64) -> bool {
        let apart = u128::from(by_first.abs_diff(by_second)) << 20;
        apart <= u128::from(by_first) * u128::from(self.scaled) && by_first > 0
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
            prop_assert_eq!(Tolerance::new(share).holds(first, second), apart <= share);
        }

        #[test]
        fn what_came_between_the_readings_is_noticed(
            period in 1_000u64..1_000_000, read in 0u64..500, late in 1u64..1_000_000,
        ) {
            // Two samples `period` apart; in the second one something took `late` cycles.
            let (first, second) = (period, period + late + read - read);
            let noticed = !Tolerance::new(0.01).holds(first, second);
            prop_assert_eq!(noticed, late as f64 > period as f64 * 0.01 - 1e-9
                && late * 100 > period + period / 100_000);
        }
    }

    #[test]
    fn no_time_at_all_is_no_rate() {
        assert!(!Tolerance::new(1.0).holds(0, 0));
        assert!(Tolerance::new(0.0).holds(5, 5) && !Tolerance::new(0.0).holds(5, 6));
    }
}
