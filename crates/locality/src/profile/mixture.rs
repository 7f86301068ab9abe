//! How many lines there are, and how often each is accessed, from how often samples touched them.
//!
//! Goal: the distribution of accesses over lines, with the lines that no sample touched. Rejected:
//! the counts as they are, which make all lines look alike where samples are few. Chosen: a mixture
//! of Poisson distributions, fitted by expectation maximization to the counts that are not zero.
//! Its rates are on a fixed ladder, whose lowest step is a part of the mean rate: samples can't tell
//! lines that are hardly ever used from none, and caches neither.

/// A step of the ladder of rates.
const STEP: f64 = 1.5;
/// The lowest rate is this part of the mean, if nothing else is said.
pub const LOWEST: f64 = 1.0 / 8.0;
const ITERATIONS: usize = 4000;
/// A fit that moves less than this share of the lines in an iteration stands still.
const STILL: f64 = 1e-5;
/// Fewer lines than this at a step belong to its neighbour.
const FEWEST: f64 = 0.5;

/// Lines that are accessed equally often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many.
    pub lines: f64,
    /// Samples that touch each of them, on average.
    pub samples: f64,
}

/// Fits the mixture. `seen`: a number of samples, 1 or more, and how many lines had it; some lines may
/// count in part. `lowest`: the lowest rate, as a part of the mean. The hottest lines come first; empty if
/// there are none.
#[must_use]
pub fn fit(seen: &[(u64, f64)], lowest: f64) -> Vec<Rate> {
    let lines: f64 = seen.iter().map(|(_, lines)| lines).sum();
    let samples: f64 = seen.iter().map(|(n, lines)| *n as f64 * lines).sum();
    if lines <= 0.0 {
        return Vec::new();
    }
    let ladder = ladder(seen, lowest * mean(lines, samples));
    // By count and step: the probability, but for a factor that all steps of a count have.
    let likely = |n: u64| {
        let logs: Vec<f64> = ladder.iter().map(|r| n as f64 * r.ln() - r).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs.into_iter()
            .map(|log| (log - most).exp())
            .collect::<Vec<f64>>()
    };
    let likely: Vec<Vec<f64>> = seen.iter().map(|(n, _)| likely(*n)).collect();
    let unseen: Vec<f64> = ladder.iter().map(|rate| (-rate).exp()).collect();
    let mut at = vec![lines / ladder.len() as f64; ladder.len()];
    for _ in 0..ITERATIONS {
        let mut next: Vec<f64> = at.iter().zip(&unseen).map(|(n, not)| n * not).collect();
        for ((_, lines), likely) in seen.iter().zip(&likely) {
            let sum: f64 = likely.iter().zip(&at).map(|(p, n)| p * n).sum();
            if sum > 0.0 {
                let parts = next.iter_mut().zip(likely.iter().zip(&at));
                parts.for_each(|(next, (p, n))| *next += lines * p * n / sum);
            }
        }
        let moved: f64 = at.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
        at = next;
        if moved < STILL * lines {
            break;
        }
    }
    joined(&ladder, &at)
}

/// Samples per line, if all lines were alike: m / (1 - exp(-m)) is the mean of those that were seen.
fn mean(lines: f64, samples: f64) -> f64 {
    let wanted = samples / lines;
    let mut mean = wanted;
    for _ in 0..60 {
        mean = (wanted * (1.0 - (-mean).exp())).max(1e-3);
    }
    mean
}

fn ladder(seen: &[(u64, f64)], lowest: f64) -> Vec<f64> {
    let most = seen.iter().map(|(n, _)| *n).max().unwrap_or(1) as f64;
    let mut rate = lowest;
    let mut ladder = Vec::new();
    while rate < most * STEP {
        ladder.push(rate);
        rate *= STEP;
    }
    ladder
}

/// The steps that have lines, the hottest first. Steps with too few are joined with the next ones.
fn joined(ladder: &[f64], at: &[f64]) -> Vec<Rate> {
    let mut rates: Vec<Rate> = Vec::new();
    let (mut lines, mut samples) = (0.0, 0.0);
    for (rate, here) in ladder.iter().zip(at).rev() {
        lines += here;
        samples += here * rate;
        if lines >= FEWEST {
            rates.push(Rate {
                lines,
                samples: samples / lines,
            });
            (lines, samples) = (0.0, 0.0);
        }
    }
    if let Some(last) = rates.last_mut().filter(|_| lines > 0.0) {
        let all = last.lines + lines;
        last.samples = (last.samples * last.lines + samples) / all;
        last.lines = all;
    }
    rates
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;

    use super::*;

    /// Counts of `samples` samples of lines with these weights.
    fn sampled(weights: &[f64], samples: usize, seed: u64) -> Vec<(u64, f64)> {
        let mut rng = Rng::with_seed(seed);
        let mut sums = Vec::new();
        let all = weights.iter().fold(0.0, |sum, weight| {
            sums.push(sum + weight);
            sum + weight
        });
        let mut counts = vec![0u64; weights.len()];
        for _ in 0..samples {
            let at = rng.f64() * all;
            counts[sums.partition_point(|sum| *sum <= at)] += 1;
        }
        let mut seen: BTreeMap<u64, f64> = BTreeMap::new();
        for count in counts.into_iter().filter(|count| *count > 0) {
            *seen.entry(count).or_default() += 1.0;
        }
        seen.into_iter().collect()
    }

    fn lines(rates: &[Rate]) -> f64 {
        rates.iter().map(|rate| rate.lines).sum()
    }

    #[test]
    fn equal_lines_are_counted_also_where_most_were_not_seen() {
        for (samples, slack) in [(20_000, 0.1), (2_000, 0.3)] {
            let rates = fit(&sampled(&[1.0; 5000], samples, 1), LOWEST);
            let found = lines(&rates);
            assert!((found / 5000.0 - 1.0).abs() < slack, "{samples}: {found}");
        }
    }

    #[test]
    fn a_zipf_has_its_lines_and_its_hot_ones() {
        let weight = |rank: usize| (4000.0 / (rank + 1) as f64).floor().min(16.0);
        let weights: Vec<f64> = (0..4000).map(weight).collect();
        let all: f64 = weights.iter().sum();
        let rates = fit(&sampled(&weights, 8_000, 2), LOWEST);
        let found = lines(&rates);
        assert!((found / 4000.0 - 1.0).abs() < 0.25, "{found}");
        // The share of accesses that lines with ten or more of a loop have.
        let planted: f64 = weights.iter().filter(|weight| **weight >= 10.0).sum();
        let hot = |rate: &&Rate| rate.samples >= 8_000.0 * 10.0 / all;
        let hot = rates
            .iter()
            .filter(hot)
            .map(|rate| rate.lines * rate.samples);
        let hot = hot.sum::<f64>() / 8_000.0;
        assert!(
            (hot - planted / all).abs() < 0.1,
            "{hot}, {}",
            planted / all
        );
    }

    #[test]
    fn nothing_and_one_line_are_what_they_are() {
        assert_eq!(fit(&[], LOWEST), []);
        let one = fit(&[(1_000, 1.0)], LOWEST);
        assert!((lines(&one) - 1.0).abs() < 1e-6, "{one:?}");
        let samples: f64 = one.iter().map(|rate| rate.lines * rate.samples).sum();
        assert!((samples / 1_000.0 - 1.0).abs() < 0.3, "{one:?}");
    }
}
