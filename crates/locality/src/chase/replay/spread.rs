//! How sure a prediction is, from what processes with the same demand and with variants show.

use crate::chase::interval::Interval;

/// Without a clear sign, more samples are worth it up to this number of times.
const MOST_TIMES: f64 = 100.0;

/// What the processes show of one mode, in logarithms of its speed.
pub(super) struct Spread {
    /// The mean of what was found.
    centre: f64,
    /// Squared deviations from that, on average: of the variants.
    of_variants: f64,
    /// Their part that is between processes with the same demand, and stays with any samples.
    of_processes: f64,
    /// How many standard deviations are on each side.
    deviations: f64,
}

impl Spread {
    /// From the logarithms of the processes with what was found, and of those with variants.
    pub(super) fn of(found: &[f64], variants: &[f64]) -> Self {
        let centre = found.iter().sum::<f64>() / found.len() as f64;
        let squares = |logs: &[f64]| logs.iter().map(|log| (log - centre).powi(2)).sum::<f64>();
        // A variant differs from the mean as a process does, and the mean as that of some processes.
        let more = found.len() as f64 + 1.0;
        let between = squares(found) / (found.len() as f64 - 1.0).max(1.0);
        Self {
            centre,
            of_variants: squares(variants) / variants.len().max(1) as f64,
            of_processes: between * more / found.len() as f64,
            deviations: deviations(variants.len()),
        }
    }

    /// Of the speed, for a program in one process.
    pub(super) fn interval(&self) -> Interval {
        let half = self.deviations * self.of_variants.sqrt();
        Interval {
            value: self.centre.exp(),
            low: (self.centre - half).exp(),
            high: (self.centre + half).exp(),
        }
    }

    /// With this number of times the samples, the interval would end at no gain; `None` if not even
    /// [`MOST_TIMES`] would do.
    pub(super) fn samples_wanted(&self) -> Option<f64> {
        let of_samples = (self.of_variants - self.of_processes).max(0.0);
        let wanted = (self.centre / self.deviations).powi(2) - self.of_processes;
        let times = of_samples / wanted;
        (wanted > 0.0 && times <= MOST_TIMES).then_some(times.max(1.0))
    }
}

/// Standard deviations on each side of a 95 % interval, where this number of variants shows them:
/// Student's t by its expansion around the normal distribution (Abramowitz and Stegun, 26.7.5).
fn deviations(variants: usize) -> f64 {
    let (z, free) = (1.959_964_f64, variants.saturating_sub(1).max(1) as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / free + second / free.powi(2) + third / free.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_variants_around_the_mean_of_what_was_found() {
        let spread = Spread::of(&[0.1, 0.2, 0.3], &[0.1, 0.3, 0.1, 0.3, 0.1, 0.3, 0.1, 0.3]);
        let Interval { value, low, high } = spread.interval();
        let near = |a: f64, b: f64| (a.ln() - b).abs() < 1e-3;
        assert!(near(value, 0.2) && near(low, 0.2 - 0.2365) && near(high, 0.2 + 0.2365));
    }

    #[test]
    fn samples_settle_what_samples_left_open() {
        let (found, variants) = ([0.1; 3], [-0.05, 0.25, -0.05, 0.25, -0.05, 0.25]);
        let times = Spread::of(&found, &variants).samples_wanted();
        let times = times.expect("some number of samples settles it");
        // With that number the interval ends at 0.
        assert!((deviations(6) * 0.15 / times.sqrt() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn no_samples_settle_what_differs_between_processes() {
        let spread = Spread::of(&[-0.1, 0.1, 0.3], &[-0.1, 0.3, -0.1, 0.3]);
        assert_eq!(spread.samples_wanted(), None);
        // Nor is there a number where nothing is gained.
        assert_eq!(Spread::of(&[0.0; 3], &[-0.1, 0.1]).samples_wanted(), None);
    }

    #[test]
    fn a_95_percent_interval_has_as_many_deviations_as_student_s() {
        let tables = [(8, 2.3646), (16, 2.131), (64, 1.998)];
        for (variants, known) in tables {
            assert!((deviations(variants) - known).abs() < 0.001);
        }
    }
}
