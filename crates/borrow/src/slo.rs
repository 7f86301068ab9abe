//! `--slo p99=2ms`: how much may be lent so that the server's tail stays below its limit.
//!
//! The tail holds the limit if at most a share 1 − q of the requests takes longer. With lending in a
//! share d of the time, d of the requests come in on-phases. So that share is
//! `d × on + (1 − d) × off`, where `on` and `off` are the shares of slow requests in the two kinds of
//! phases. Both are counted, and the largest d follows. Rejected: steps up and down by the p99 of the
//! last seconds, which says nothing about which part of the tail lending causes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// The latest requests count more: what is this old counts half.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// Of the slow requests that the limit allows, this share is planned for.
const PLANNED: f64 = 0.7;
/// Lending never ends altogether: otherwise nobody would know when it is possible again.
const LEAST: f64 = 0.02;
/// The share to begin with.
const FIRST: f64 = 0.2;
/// Fewer requests of on-phases are no reason to lend more.
const FEWEST: f64 = 20.0;

/// A limit for a quantile of the server's latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slo {
    /// The quantile: 0.99 for p99.
    pub quantile: f64,
    /// The limit in ns.
    pub limit_ns: u64,
}

/// What `--slo` was given is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a limit; write a percentile and a time: p99=2ms")]
pub struct SloError(String);

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let wrong = || SloError(text.to_owned());
        let (percentile, limit) = text.split_once('=').ok_or_else(wrong)?;
        let percent = percentile.strip_prefix('p').ok_or_else(wrong)?;
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        let limit_ns = parse_ns(limit).ok_or_else(wrong)?;
        if percent > 0.0 && percent < 100.0 {
            Ok(Self {
                // 99.9 / 100 is not the number that 0.999 is.
                quantile: (percent * 1e7).round() / 1e9,
                limit_ns,
            })
        } else {
            Err(wrong())
        }
    }
}

/// Reads a short time: `150us`, `2ms`, `1.5s`; above 0.
#[must_use]
pub fn parse_ns(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * factor;
    (1.0..1e15).contains(&ns).then_some(ns as u64)
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.quantile * 1e9).round() / 1e7;
        let (number, unit) = match self.limit_ns {
            ns if ns.is_multiple_of(1_000_000_000) => (ns as f64 / 1e9, "s"),
            ns if ns >= 1_000_000 => (ns as f64 / 1e6, "ms"),
            ns if ns >= 1_000 => (ns as f64 / 1e3, "us"),
            ns => (ns as f64, "ns"),
        };
        write!(f, "p{percent}={number}{unit}")
    }
}

/// Requests and slow ones among them, the latest with the most weight.
#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    requests: f64,
    slow: f64,
}

impl Slow {
    fn share(self) -> f64 {
        if self.requests > 0.0 {
            self.slow / self.requests
        } else {
            0.0
        }
    }

    /// More than this is unlikely: one standard deviation and one request above what was counted.
    fn at_most(self) -> f64 {
        (self.slow + (self.slow + 1.0).sqrt() + 1.0) / self.requests.max(1.0)
    }
}

/// Decides how much is lent.
#[derive(Debug, Clone)]
pub struct Controller {
    slo: Slo,
    most: f64,
    on: Slow,
    off: Slow,
    share: f64,
}

impl Controller {
    /// Lends at most the share `most` of the time.
    #[must_use]
    pub fn new(slo: Slo, most: f64) -> Self {
        let most = most.max(LEAST);
        Self {
            slo,
            most,
            on: Slow::default(),
            off: Slow::default(),
            share: FIRST.min(most),
        }
    }

    /// The limit.
    #[must_use]
    pub fn slo(&self) -> Slo {
        self.slo
    }

    /// The share of time in which the batch may run.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Enters a request of an on-phase or an off-phase.
    pub fn enter(&mut self, on: bool, wall_ns: u64) {
        let kind = if on { &mut self.on } else { &mut self.off };
        kind.requests += 1.0;
        kind.slow += f64::from(u8::from(wall_ns > self.slo.limit_ns));
    }

    /// Decides anew after so much time.
    pub fn step(&mut self, passed: Duration) -> f64 {
        let allowed = PLANNED * (1.0 - self.slo.quantile);
        let (on, off) = (self.on.at_most(), self.off.share());
        let wanted = if on <= allowed {
            self.most
        } else if off >= allowed {
            LEAST
        } else {
            ((allowed - off) / (on - off)).clamp(LEAST, self.most)
        };
        // Down at once. Up only by what was seen, and slowly: requests come in with a delay.
        let seen = self.on.requests >= FEWEST;
        let up = self.share + (0.02 + 0.2 * self.share) * passed.as_secs_f64().min(1.0);
        self.share = match (wanted > self.share, seen) {
            (true, true) => wanted.min(up),
            (true, false) => self.share,
            (false, true) => wanted,
            // Too few requests to know: what few there are may be all fast.
            (false, false) => self.share.min(wanted.max(FIRST)),
        };
        let kept = 0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        for kind in [&mut self.on, &mut self.off] {
            kind.requests *= kept;
            kind.slow *= kept;
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    const P99: Slo = Slo {
        quantile: 0.99,
        limit_ns: 2_000_000,
    };

    /// Plays a server with `rate` requests a second, of which the shares `on` and `off` are slow: the
    /// share of slow requests in the second half, and the share lent in it.
    fn play(on: f64, off: f64, rate: usize, seed: u64) -> (f64, f64) {
        let mut random = Rng::with_seed(seed);
        let mut controller = Controller::new(P99, 0.96);
        let (mut slow, mut all, mut lent) = (0.0, 0.0, 0.0);
        let steps = 400;
        for step in 0..steps {
            for _ in 0..rate / 2 {
                let is_on = random.f64() < controller.share();
                let is_slow = random.f64() < if is_on { on } else { off };
                controller.enter(is_on, if is_slow { 3_000_000 } else { 1_000_000 });
                if step >= steps / 2 {
                    all += 1.0;
                    slow += f64::from(u8::from(is_slow));
                }
            }
            let share = controller.step(Duration::from_millis(500));
            if step >= steps / 2 {
                lent += share / (steps / 2) as f64;
            }
        }
        (slow / all, lent)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_limit_is_held_where_it_can_be(on in 0.0..0.5f64, off in 0.0..0.004f64, seed: u64) {
            let (slow, _) = play(on, off, 2_000, seed);
            // The probing itself may be slow: 2 % of the time.
            prop_assert!(slow <= 0.01 + 0.02 * on, "{} of {} and {}", slow, on, off);
        }
    }

    #[test]
    fn what_costs_nothing_is_lent_whole() {
        let (_, lent) = play(0.001, 0.001, 2_000, 3);
        assert!(lent > 0.94, "{lent}");
    }

    #[test]
    fn what_costs_too_much_is_hardly_lent() {
        let (_, lent) = play(0.9, 0.001, 2_000, 3);
        assert!(lent < 0.03, "{lent}");
    }

    #[test]
    fn in_between_lending_uses_most_of_what_the_limit_allows() {
        let (slow, lent) = play(0.05, 0.001, 5_000, 3);
        assert!((0.08..0.2).contains(&lent), "{lent}");
        assert!((0.004..0.01).contains(&slow), "{slow}");
    }

    #[test]
    fn limits_are_read_and_shown() {
        for (text, quantile, ns) in [
            ("p99=2ms", 0.99, 2_000_000),
            ("p99.9=150us", 0.999, 150_000),
            ("p50=1.5s", 0.5, 1_500_000_000),
        ] {
            let slo: Slo = text.parse().expect("it is one");
            assert!((slo.quantile - quantile).abs() < 1e-12);
            assert_eq!(slo.limit_ns, ns);
            assert_eq!(slo.to_string().parse::<Slo>(), Ok(slo));
        }
        for text in [
            "", "p99", "99=2ms", "p99=2", "p100=2ms", "p99=0ms", "p99=-1ms", "p99=2y",
        ] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }
}
