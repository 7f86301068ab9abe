//! How large is the working set, when some lines were never sampled?
//!
//! Chao's estimate (Chao 1987): from the lines that one sample touched, and those that two did. It is a
//! lower bound: lines that are much rarer than the others stay unseen. The interval is Chao's too.

use std::collections::HashMap;

use serde::Serialize;

/// The number of lines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lines {
    /// Lines that samples touched.
    pub seen: u64,
    /// Of these, lines that one sample touched.
    pub once: u64,
    /// The estimate of all.
    pub estimate: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that the next sampled line is one that was seen (Good–Turing).
    pub coverage: f64,
}

/// From the number of samples that touched each line.
#[must_use]
pub fn estimate(samples_of_lines: impl Iterator<Item = u64>) -> Lines {
    let mut by_count: HashMap<u64, u64> = HashMap::new();
    let mut total = 0;
    for count in samples_of_lines.filter(|count| *count > 0) {
        *by_count.entry(count).or_default() += 1;
        total += count;
    }
    let of = |count| by_count.get(&count).copied().unwrap_or(0);
    let seen: u64 = by_count.values().sum();
    let (once, twice) = (of(1) as f64, of(2) as f64);
    // Without lines of two samples, Chao's corrected form.
    let (unseen, variance) = if twice > 0.0 {
        let ratio = once / twice;
        let variance = twice * (ratio.powi(2) / 2.0 + ratio.powi(3) + ratio.powi(4) / 4.0);
        (once * ratio / 2.0, variance)
    } else {
        let unseen = once * (once - 1.0) / 2.0;
        let variance = unseen + once * (2.0 * once - 1.0).powi(2) / 4.0;
        (unseen.max(0.0), if once > 0.0 { variance } else { 0.0 })
    };
    let spread = match unseen > 0.0 {
        true => (1.96 * (1.0 + variance / unseen.powi(2)).ln().sqrt()).exp(),
        false => 1.0,
    };
    let seen_lines = seen as f64;
    Lines {
        seen,
        once: of(1),
        estimate: seen_lines + unseen,
        low: seen_lines + unseen / spread,
        high: seen_lines + unseen * spread,
        coverage: 1.0 - once / (total.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn the_size_of_an_even_working_set_is_found_from_half_of_it() {
        let mut rng = Rng::with_seed(3);
        let mut covers = |_: u32| {
            let mut counts = vec![0u64; 1000];
            for _ in 0..900 {
                counts[rng.usize(..1000)] += 1;
            }
            let found = estimate(counts.into_iter());
            assert!(found.seen < 700, "{found:?}");
            (found.low..=found.high).contains(&1000.0)
        };
        let covered = (0..100).filter(|i| covers(*i)).count();
        assert!(covered >= 90, "{covered} of 100");
    }

    #[test]
    fn lines_that_were_all_seen_often_are_all() {
        let found = estimate([9, 12, 30].into_iter());
        assert_eq!((found.seen, found.estimate, found.high), (3, 3.0, 3.0));
        let none = estimate(std::iter::empty());
        assert_eq!((none.seen, none.estimate), (0, 0.0));
        let once = estimate([1, 1, 1].into_iter());
        assert!(once.high > once.estimate && once.coverage == 0.0);
    }
}
