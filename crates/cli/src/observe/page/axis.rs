//! Along the sides of a picture: where values are, and which of them are written there.

/// A tail so many times the median is too long for equal steps.
const WIDE_RANGE: f64 = 25.0;
/// The share of a logarithmic axis that zero has, where there are zeros.
const ZERO: f64 = 0.07;

/// How far values are from an axis' begin, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Zero has a place of its own before the lowest.
    zero: bool,
}

impl Axis {
    /// Equal steps are equally long.
    pub fn linear(low: f64, high: f64) -> Self {
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            logarithmic: false,
            zero: false,
        }
    }

    /// Equal ratios are equally long; zero, if there is one, lies before them.
    pub fn logarithmic(low: f64, high: f64, zero: bool) -> Self {
        let low = if low > 0.0 { low } else { 1.0 };
        Self {
            low,
            high: if high > low { high } else { low * 2.0 },
            logarithmic: true,
            zero,
        }
    }

    /// One that suits a distribution: from zero if that is near, close around the values if they
    /// are close together, logarithmic if they are far apart. What lies further out than `outside`
    /// of all, to either side, has no place on it.
    pub fn of(cells: &[(f64, u64)], outside: f64) -> Option<Self> {
        let (low, high) = (quantile(cells, outside)?, quantile(cells, 1.0 - outside)?);
        let middle = quantile(cells, 0.5)?;
        let positive = cells.iter().find(|(value, _)| *value > 0.0)?.0;
        if middle <= 0.0 || high / middle > WIDE_RANGE {
            let zeros = cells.first().is_some_and(|(value, _)| *value <= 0.0);
            return Some(Self::logarithmic(
                low.max(positive) / 1.1,
                high.max(positive) * 1.1,
                zeros,
            ));
        }
        if low < 0.4 * high {
            return Some(Self::linear(0.0, high * 1.05));
        }
        let air = ((high - low) * 0.08).max(high * 0.004);
        Some(Self::linear(low - air, high + air))
    }

    /// Where a value is; what has no place on the axis is at its end.
    pub fn place(self, value: f64) -> f64 {
        let share = if !self.logarithmic {
            (value - self.low) / (self.high - self.low)
        } else if value <= 0.0 {
            0.0
        } else {
            let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
            if self.zero {
                ZERO + share * (1.0 - ZERO)
            } else {
                share
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// The largest value that has a place.
    pub fn high(self) -> f64 {
        self.high
    }

    /// Whether it has a place.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value) || (self.zero && value <= 0.0)
    }

    /// Round values, at most so many, and what is written there.
    pub fn ticks(self, most: usize) -> Vec<(f64, String)> {
        let ticks = if self.logarithmic {
            self.ratios(most)
        } else {
            Vec::new()
        };
        let ticks: Vec<_> = if ticks.len() < 2 {
            let ticks = round_between(self.low, self.high, most);
            let written = alike(&ticks);
            ticks.into_iter().zip(written).collect()
        } else {
            ticks.into_iter().map(|tick| (tick, short(tick))).collect()
        };
        let zero = self.zero.then(|| (0.0, "0".to_owned()));
        zero.into_iter().chain(ticks).collect()
    }

    /// Powers of ten, with 2 and 5 between if there is room.
    fn ratios(self, most: usize) -> Vec<f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all = |steps: &[f64]| -> Vec<f64> {
            powers
                .clone()
                .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect()
        };
        for steps in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
            let ticks = all(steps);
            if ticks.len() <= most {
                return ticks;
            }
        }
        let ticks = all(&[1.0]);
        let step = ticks.len().div_ceil(most.max(1));
        ticks.into_iter().step_by(step).collect()
    }
}

/// The value at or below which this share of all is; `None` of none.
pub fn quantile(cells: &[(f64, u64)], share: f64) -> Option<f64> {
    let all: u64 = cells.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let found = cells.iter().find(|(_, count)| {
        below += count;
        below as f64 >= share * all as f64
    });
    found.or(cells.last()).map(|(value, _)| *value)
}

/// Multiples of a round step between two values.
fn round_between(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= rough * 0.8);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

const PREFIXES: [(f64, &str); 4] = [(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];

fn prefix(value: f64) -> (f64, &'static str) {
    let of = PREFIXES.iter().find(|(scale, _)| value >= 0.9995 * scale);
    *of.unwrap_or(&(1.0, ""))
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// Three digits of a number: `4.17 M`, `812`, `0.05`.
pub fn short(value: f64) -> String {
    let (scale, prefix) = prefix(value.abs());
    let scaled = value / scale;
    if scaled == 0.0 || !scaled.is_finite() {
        return "0".into();
    }
    let digits = (2 - (scaled.abs() * 1.0005).log10().floor() as i32).clamp(0, 9) as usize;
    format!("{}{prefix}", trimmed(&format!("{scaled:.digits$}")))
}

/// Ticks at equal steps with one prefix, and as many digits as tell them apart.
fn alike(ticks: &[f64]) -> Vec<String> {
    let most = ticks.iter().fold(0.0f64, |most, tick| most.max(tick.abs()));
    let (scale, prefix) = prefix(most);
    let step = match ticks {
        [first, second, ..] => (second - first) / scale,
        _ => 1.0,
    };
    let digits = (-(step * 1.0001).log10().floor()).clamp(0.0, 9.0) as usize;
    ticks
        .iter()
        .map(|tick| match *tick {
            0.0 => "0".to_owned(),
            tick => format!("{:.digits$}{prefix}", tick / scale),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(axis: Axis, most: usize) -> Vec<String> {
        axis.ticks(most).into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_told_apart() {
        assert_eq!(
            written(Axis::linear(0.0, 4.4e6), 5),
            ["0", "1 M", "2 M", "3 M", "4 M"]
        );
        assert_eq!(
            written(Axis::linear(4.149e6, 4.171e6), 5),
            ["4.150 M", "4.155 M", "4.160 M", "4.165 M", "4.170 M"]
        );
        assert_eq!(
            written(Axis::logarithmic(90.0, 3e4, true), 6),
            ["0", "100", "300", "1 k", "3 k", "10 k", "30 k"]
        );
        assert_eq!(
            written(Axis::logarithmic(2_100.0, 2_900.0, false), 4),
            ["2.2 k", "2.4 k", "2.6 k", "2.8 k"]
        );
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [4_171_234.0, 812.4, 0.05, 999_990.0, 0.0, -1.5, 1e-7].map(short);
        assert_eq!(
            shown,
            ["4.17 M", "812", "0.05", "1 M", "0", "-1.5", "0.0000001"]
        );
    }

    #[test]
    fn a_distribution_gets_the_axis_that_shows_it() {
        let narrow = Axis::of(&[(4.1e6, 50), (4.2e6, 50)], 0.001).expect("values");
        assert!(!narrow.holds(0.0) && narrow.holds(4.1e6) && narrow.holds(4.2e6));
        let from_zero = Axis::of(&[(0.0, 5), (1e6, 50), (2e6, 45)], 0.001).expect("values");
        assert!(from_zero.holds(0.0) && from_zero.place(1e6) < 0.5);
        let wide = Axis::of(&[(0.0, 5), (1e3, 50), (1e6, 45)], 0.001).expect("values");
        assert_eq!((wide.place(0.0), wide.holds(0.0)), (0.0, true));
        assert!(wide.place(1e3) > 0.0 && (0.4..0.7).contains(&wide.place(31_600.0)));
        assert!(Axis::of(&[(0.0, 5)], 0.001).is_none());
    }

    proptest! {
        #[test]
        fn values_lie_inside_and_in_order(
            low in 1e-6f64..1e9, times in 1.0f64..1e6, zero: bool, a: f64, b in 0.0f64..1e12,
        ) {
            for axis in [Axis::linear(low, low * times), Axis::logarithmic(low, low * times, zero)] {
                prop_assert!((0.0..=1.0).contains(&axis.place(b)));
                if a.is_finite() && a <= b {
                    prop_assert!(axis.place(a) <= axis.place(b));
                }
                let ticks = axis.ticks(6);
                prop_assert!(ticks.len() <= 9, "{:?}", ticks);
                prop_assert!(ticks.iter().all(|tick| axis.holds(tick.0 * (1.0 - 1e-9))
                    || axis.holds(tick.0) || axis.holds(tick.0 * (1.0 + 1e-9))), "{:?}", ticks);
            }
        }
    }
}
