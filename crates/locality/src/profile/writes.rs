//! Which lines of a class are written more often than the others.
//!
//! Goal: the writes of a few lines, such as the head of a queue, are not those of all lines: a line
//! that is only read stays in every cache. Rejected: a share of writes for each line, which is 0 or 1
//! where samples are few. Chosen: two shares, fitted by expectation maximization, if they explain the
//! samples much better than one does.

const ITERATIONS: usize = 200;
/// A fit that becomes less more likely than this in an iteration, in logarithms, stands still.
const STILL: f64 = 1e-3;
/// Shares of writes are at least this far from 0 and 1: samples don't show that a line is never written.
const EDGE: f64 = 1e-4;
/// Two shares have to be this much more likely than one, in logarithms, and more with more lines.
const CLEARLY: f64 = 5.0;

/// The accesses of a line that samples show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// How many.
    pub accesses: f64,
    /// Those that write.
    pub writes: f64,
    /// The share of the line that counts.
    pub share: f64,
}

/// A share of accesses that write, by its logarithms.
struct Updates {
    writes: f64,
    others: f64,
}

impl Updates {
    fn of(share: f64) -> Self {
        Self {
            writes: share.ln(),
            others: (1.0 - share).ln(),
        }
    }

    /// The logarithm of how likely it makes what samples show of a line.
    fn explains(&self, line: &Line) -> f64 {
        line.writes * self.writes + (line.accesses - line.writes) * self.others
    }
}

/// For each line, how probable it is that it is one of those that are written more often; `None` if
/// all lines are alike.
#[must_use]
pub fn more_often(lines: &[Line]) -> Option<Vec<f64>> {
    let sum = |of: fn(&Line) -> f64| lines.iter().map(|line| line.share * of(line)).sum::<f64>();
    let (all, accesses) = (sum(|_| 1.0), sum(|line| line.accesses));
    if all < 2.0 || accesses <= 0.0 {
        return None;
    }
    let edge = |updates: f64| updates.clamp(EDGE, 1.0 - EDGE);
    let mean = edge(sum(|line| line.writes) / accesses);
    let one = Updates::of(mean);
    let alike: f64 = lines
        .iter()
        .map(|line| line.share * one.explains(line))
        .sum();
    // The share of the lines that are written more often, and the shares of writes of both kinds.
    let (mut part, mut seldom, mut often) =
        (0.1_f64, edge(mean / 4.0), edge((4.0 * mean).min(0.9)));
    let mut probable = vec![0.0; lines.len()];
    let mut likelihood = f64::NEG_INFINITY;
    for _ in 0..ITERATIONS {
        let before = std::mem::take(&mut likelihood);
        let kinds = [(1.0 - part, seldom), (part, often)];
        let kinds = kinds.map(|(part, updates)| (part.ln(), Updates::of(updates)));
        let mut sums = [[0.0; 2]; 2];
        let mut found = 0.0;
        for (line, probable) in lines.iter().zip(&mut probable) {
            let [few, many] =
                [0, 1].map(|kind: usize| kinds[kind].0 + kinds[kind].1.explains(line));
            let most = few.max(many);
            let both = (few - most).exp() + (many - most).exp();
            *probable = (many - most).exp() / both;
            likelihood += line.share * (most + both.ln());
            found += line.share * *probable;
            for (sums, weight) in sums.iter_mut().zip([1.0 - *probable, *probable]) {
                sums[0] += weight * line.share * line.writes;
                sums[1] += weight * line.share * line.accesses;
            }
        }
        part = (found / all).clamp(EDGE, 1.0 - EDGE);
        [seldom, often] = sums.map(|[writes, accesses]| match accesses > 0.0 {
            true => edge(writes / accesses),
            false => mean,
        });
        if likelihood - before < STILL {
            break;
        }
    }
    (likelihood - alike > CLEARLY + all.ln()).then_some(probable)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Lines with a share of writes each, and this number of accesses.
    fn lines(rng: &mut Rng, updates: impl Iterator<Item = f64>, accesses: u32) -> Vec<Line> {
        let line = |updates: f64| Line {
            accesses: accesses.into(),
            writes: (0..accesses).filter(|_| rng.f64() < updates).count() as f64,
            share: 1.0,
        };
        updates.map(line).collect()
    }

    #[test]
    fn lines_that_are_written_alike_are_not_told_apart() {
        let mut rng = Rng::with_seed(1);
        for (updates, accesses) in [(0.0, 5), (0.01, 3), (0.1, 3), (0.5, 2), (1.0, 4)] {
            for _ in 0..20 {
                let all = lines(&mut rng, std::iter::repeat_n(updates, 500), accesses);
                assert_eq!(more_often(&all), None, "{updates}");
            }
        }
        assert_eq!(more_often(&[]), None);
    }

    #[test]
    fn a_few_lines_that_are_written_are_found_among_many_that_are_read() {
        let mut rng = Rng::with_seed(2);
        let mut all = lines(&mut rng, std::iter::repeat_n(0.0, 1_000), 3);
        all.extend(lines(&mut rng, std::iter::repeat_n(0.5, 5), 100));
        let probable = more_often(&all).expect("two kinds");
        let (read, written) = probable.split_at(1_000);
        assert!(written.iter().all(|p| *p > 0.99), "{written:?}");
        assert!(read.iter().all(|p| *p < 0.01));
    }

    #[test]
    fn hot_lines_and_others_may_be_of_both_kinds() {
        let mut rng = Rng::with_seed(3);
        let mixed = (0..2_000).map(|number| if number % 4 == 0 { 0.8 } else { 0.02 });
        let probable = more_often(&lines(&mut rng, mixed, 10)).expect("two kinds");
        let found: f64 = probable.iter().sum();
        assert!((found - 500.0).abs() < 25.0, "{found}");
    }
}
