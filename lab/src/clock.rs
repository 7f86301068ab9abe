//! The monotonic clock in nanoseconds, and durations as people write them.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on the monotonic clock, or the distance between two, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Now, on CLOCK_MONOTONIC.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Never negative: a distance that would be is zero.
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Three digits and the unit that suits them: `31.2 µs`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (ns / 1e3, "µs"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let decimals = if value < 10.0 {
            2
        } else {
            usize::from(value < 100.0)
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

/// Reads `10s`, `1.5ms`, `20us`, `20µs`, `500ns`, `2m`. A bare number has no unit and is refused.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err("needs a unit: ns, us, ms, s, m or h".to_owned()),
        other => return Err(format!("unit '{other}' is not one of ns, us, ms, s, m, h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{number}' is not a number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("20µs"), Ok(Duration::from_micros(20)));
        for wrong in ["", "10", "s", "1.2.3s", "10 s", "-1s", "10weeks"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nanos_show_three_digits_and_a_unit() {
        let shown: Vec<String> = [7, 1_234, 31_240, 950_000, 12_345_678, 2_000_000_000]
            .map(|n| Nanos(n).to_string())
            .into();
        assert_eq!(
            shown,
            ["7 ns", "1.23 µs", "31.2 µs", "950 µs", "12.3 ms", "2.00 s"]
        );
    }
}
