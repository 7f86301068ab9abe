//! The readings of both clocks of the last minute, and what lies between them.

use std::collections::VecDeque;

use super::gap::Gaps;
use super::pair::Pair;

/// Readings that lie closer together say little of the rate.
pub(super) const APART_NS: u64 = 10_000_000;
/// So many are kept: a minute, at twenty a second.
const MOST: usize = 1200;
/// Most moments to be converted lie after one of this many latest readings.
const RECENT: usize = 8;

/// A reading, and how far it lay from where the ones before had led to expect it, in ns.
#[derive(Debug, Clone, Copy)]
struct Kept {
    pair: Pair,
    off: u64,
}

/// The readings of the last minute, and the first of all.
#[derive(Debug)]
pub(super) struct Pairs {
    first: Pair,
    /// In the order of time, never empty.
    kept: VecDeque<Kept>,
    /// The mean since the first.
    ns_per_cycle: f64,
    gaps: Gaps,
}

impl Pairs {
    pub(super) fn begin(first: Pair, second: Pair) -> Self {
        let mut pairs = Self {
            first,
            kept: VecDeque::from([Kept {
                pair: first,
                off: 0,
            }]),
            ns_per_cycle: first.rate_to(second).unwrap_or(1.0),
            gaps: Gaps::default(),
        };
        pairs.take(second);
        pairs
    }

    pub(super) fn latest(&self) -> Pair {
        self.kept.back().expect("never empty").pair
    }

    /// Whether a moment in cycles lies so far beyond the latest reading that the machine may have been suspended
    /// between the two.
    pub(super) fn is_beyond(&self, at: u64) -> bool {
        let cycles = at.wrapping_sub(self.latest().cycles) as i64;
        cycles as f64 * self.ns_per_cycle > APART_NS as f64
    }

    /// The mean rate since the first.
    pub(super) fn ns_per_cycle(&self) -> f64 {
        self.ns_per_cycle
    }

    /// Takes the next reading.
    pub(super) fn take(&mut self, pair: Pair) {
        let rate = self.first.rate_to(pair);
        let Some((rate, _)) = rate.zip(self.latest().rate_to(pair)) else {
            return; // counters that go back say nothing
        };
        let off = self.cycles_to_ns(pair.cycles).abs_diff(pair.ns as i64);
        self.ns_per_cycle = rate;
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept { pair, off });
    }

    /// Begins anew. The rate stays until it is measured again.
    pub(super) fn restart(&mut self, first: Pair) {
        self.first = first;
        self.kept.clear();
        self.kept.push_back(Kept {
            pair: first,
            off: 0,
        });
    }

    /// Begins anew after the machine was suspended. What came before is still named as it was.
    pub(super) fn resume(&mut self, first: Pair) {
        self.gaps.add(self.latest(), first, self.ns_per_cycle);
        self.restart(first);
    }

    /// A length in cycles from a moment on, in ns, without the time that the machine was suspended in it.
    pub(super) fn length_ns(&self, begin: u64, cycles: u64) -> f64 {
        self.gaps.awake(begin, cycles) as f64 * self.ns_per_cycle
    }

    /// The largest distance of a reading since then from where it was expected.
    pub(super) fn off_ns(&self, since: u64) -> u64 {
        let late = self.kept.iter().rev();
        let late = late.take_while(|kept| kept.pair.ns >= since);
        late.map(|kept| kept.off).max().unwrap_or_default()
    }

    /// The kernel's clock at a moment in cycles: between the two readings around it; later than all, at
    /// the rate of the last two; earlier than all, at the mean rate.
    pub(super) fn cycles_to_ns(&self, at: u64) -> i64 {
        let since = |kept: &Kept| at.wrapping_sub(kept.pair.cycles) as i64 >= 0;
        let recent = self.kept.iter().rev().take(RECENT);
        let after = match recent.take_while(|kept| !since(kept)).count() {
            RECENT => self.kept.partition_point(since),
            later => self.kept.len() - later,
        };
        let upper = after.min(self.kept.len() - 1);
        if after == 0 || upper == 0 {
            return self.kept[0]
                .pair
                .at(self.gaps.closed(at), self.ns_per_cycle);
        }
        let (from, to) = (self.kept[upper - 1].pair, self.kept[upper].pair);
        from.at(at, from.rate_to(to).unwrap_or(self.ns_per_cycle))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both clocks from a moment on, as NTP slews the kernel's: by so many millionths in each piece of
    /// 50 ms. The counter has 2.5 cycles a ns.
    fn slewed(pieces: &[i32]) -> impl Fn(u64) -> Pair {
        let pieces: Vec<f64> = pieces.iter().map(|ppm| f64::from(*ppm) / 1e6).collect();
        move |real_ns: u64| {
            let slew = |(number, ppm): (usize, &f64)| {
                let from = number as u64 * 50_000_000;
                real_ns.saturating_sub(from).min(50_000_000) as f64 * ppm
            };
            let slewed: f64 = pieces.iter().enumerate().map(slew).sum();
            Pair {
                cycles: 7 + real_ns * 5 / 2,
                ns: (1_000_000_000 + real_ns).wrapping_add_signed(slewed.round() as i64),
            }
        }
    }

    fn read_at(truth: impl Fn(u64) -> Pair, times: impl Iterator<Item = u64>) -> Pairs {
        let mut pairs = Pairs::begin(truth(0), truth(20_000_000));
        for time in times {
            pairs.take(truth(time));
        }
        pairs
    }

    proptest! {
        /// As the flight recorder reads, 20 times a second: wherever the readings fall in the pieces.
        #[test]
        fn a_clock_that_is_slewed_anew_all_the_time_names_the_kernels_moments(
            pieces in proptest::collection::vec(-500i32..=500, 100),
            phase in 21_000_000u64..71_000_000,
            asked in proptest::collection::vec(0u64..4_800_000_000, 20),
        ) {
            let truth = slewed(&pieces);
            let pairs = read_at(&truth, (0..99).map(|n| phase + n * 50_000_000));
            for real_ns in asked {
                let moment = truth(real_ns);
                let told = pairs.cycles_to_ns(moment.cycles);
                // A change of 1,000 millionths between two readings bends by a quarter of 50 us.
                let off = told.abs_diff(moment.ns as i64);
                prop_assert!(off <= 12_600, "{real_ns} is off by {off}");
            }
        }
    }

    #[test]
    fn after_hours_at_one_rate_another_is_taken_up_at_the_next_reading() {
        let hours = 10_000_000_000_000;
        let truth = |real_ns: u64| Pair {
            cycles: real_ns * 5 / 2,
            ns: real_ns + real_ns.saturating_sub(hours) / 2000,
        };
        let readings = [hours - 100_000_000, hours, hours + 50_000_000];
        let mut pairs = read_at(truth, readings.into_iter());
        for late in [hours + 10_000_000, hours + 49_000_000, hours - 50_000_000] {
            let moment = truth(late);
            let off = pairs.cycles_to_ns(moment.cycles).abs_diff(moment.ns as i64);
            assert!(off <= 10, "{off}");
        }
        // What that reading found, and the ones after it: nothing, as they expect what comes.
        assert_eq!(pairs.off_ns(hours + 50_000_000), 25_000);
        pairs.take(truth(hours + 100_000_000));
        assert!(pairs.off_ns(hours + 60_000_000) <= 10);
    }

    #[test]
    fn no_number_of_cycles_panics_and_a_minute_is_kept() {
        let truth = slewed(&[]);
        let pairs = read_at(&truth, (1..3000).map(|n| n * 50_000_000));
        assert_eq!(pairs.kept.len(), MOST);
        for foreign in [0, 1, u64::MAX, u64::MAX / 2, 1 << 63] {
            let _ = pairs.cycles_to_ns(foreign);
        }
        let early = truth(10_000_000);
        assert!(pairs.cycles_to_ns(early.cycles).abs_diff(early.ns as i64) < 1000);
    }

    /// Both clocks so many seconds after the begin, of which the machine was suspended for some; 2 cycles a ns.
    fn second(after: u64, suspended: u64) -> Pair {
        Pair {
            cycles: after * 2_000_000_000,
            ns: (after - suspended) * 1_000_000_000,
        }
    }

    #[test]
    fn time_suspended_bends_no_length_and_no_moment() {
        let mut pairs = Pairs::begin(second(0, 0), second(1, 0));
        pairs.resume(second(12, 10));
        pairs.take(second(14, 10));
        assert!((pairs.ns_per_cycle() - 0.5).abs() < 1e-9);
        let moment = |after| pairs.cycles_to_ns(second(after, 0).cycles);
        assert_eq!(moment(1), 1_000_000_000);
        assert_eq!(moment(13), 3_000_000_000);
        let length = |begin, cycles| pairs.length_ns(begin, cycles).round() as u64;
        assert_eq!(length(1_000_000_000, 1000), 500);
        assert_eq!(length(24_000_000_000, 1000), 500);
        assert_eq!(length(1_000_000_000, 24_000_000_000), 2_000_000_000);
    }

    #[test]
    fn what_happened_between_a_look_and_the_suspension_or_the_waking_and_a_look_is_where_it_was() {
        let mut pairs = Pairs::begin(second(0, 0), second(1, 0));
        // From 1.5 s after the begin to 11.5 s.
        pairs.resume(second(12, 10));
        let at = |tenths: u64| tenths * 200_000_000;
        for (begin, end, ns) in [
            (5, 13, 800_000_000),     // ended before
            (5, 117, 1_200_000_000),  // ended after, before the look
            (12, 118, 600_000_000),   // began after the look before
            (12, 130, 1_800_000_000), // ended after the look
            (116, 119, 300_000_000),  // after the waking
        ] {
            let length = pairs.length_ns(at(begin), at(end) - at(begin));
            assert_eq!(length.round() as u64, ns, "{begin} to {end}");
        }
        assert_eq!(pairs.cycles_to_ns(at(13)), 1_300_000_000);
        assert_eq!(pairs.cycles_to_ns(at(117)), 1_700_000_000);
    }

    #[test]
    fn a_length_loses_every_time_that_the_machine_was_suspended_in_it() {
        let mut pairs = Pairs::begin(second(0, 0), second(1, 0));
        pairs.resume(second(12, 10));
        pairs.resume(second(33, 30));
        // Told again of the same one, as after a look that was misled: it is taken off once.
        pairs.resume(second(34, 30));
        for (begin, end, awake) in [(0, 34, 4), (1, 12, 1), (12, 33, 1), (33, 34, 1)] {
            let (begin, end) = (second(begin, 0).cycles, second(end, 0).cycles);
            let length = pairs.length_ns(begin, end - begin);
            assert_eq!(length.round() as u64, awake * 1_000_000_000);
        }
        for (after, ns) in [(1, 1), (12, 2), (33, 3), (34, 4)] {
            let moment = pairs.cycles_to_ns(second(after, 0).cycles);
            assert_eq!(moment, ns * 1_000_000_000);
        }
    }

    #[test]
    fn what_may_lie_behind_a_suspension_that_is_not_known_of_is_beyond() {
        let mut pairs = Pairs::begin(second(0, 0), second(1, 0));
        let ms = |ms: u64| ms * 2_000_000;
        assert!(!pairs.is_beyond(ms(0)) && !pairs.is_beyond(ms(1_009)));
        assert!(pairs.is_beyond(ms(1_011)) && pairs.is_beyond(ms(12_000)));
        pairs.resume(second(12, 10));
        assert!(!pairs.is_beyond(ms(12_000)));
    }

    #[test]
    fn a_counter_that_a_suspended_machine_set_back_keeps_its_rate() {
        let mut pairs = Pairs::begin(second(0, 0), second(1, 0));
        pairs.resume(Pair {
            cycles: 7,
            ns: 1_000_000_100,
        });
        assert!((pairs.ns_per_cycle() - 0.5).abs() < 1e-9);
        assert_eq!(pairs.cycles_to_ns(207), 1_000_000_200);
        assert_eq!(pairs.length_ns(100, 100).round() as u64, 50);
    }

    #[test]
    fn counters_that_were_set_back_change_nothing() {
        let truth = slewed(&[]);
        let mut pairs = read_at(&truth, std::iter::once(100_000_000));
        pairs.take(Pair {
            cycles: 3,
            ns: 5_000_000_000,
        });
        let moment = truth(90_000_000);
        assert_eq!(pairs.cycles_to_ns(moment.cycles), moment.ns as i64);
    }
}
