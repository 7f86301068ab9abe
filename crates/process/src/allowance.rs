//! An allowance of time, which bounds what the processes of one user may cost.

use std::time::{Duration, Instant};

/// Time that may be spent: a share of all that passes, and some at once.
#[derive(Debug)]
pub struct Allowance {
    share: f64,
    at_once: Duration,
    began: Instant,
    spent: Duration,
}

impl Allowance {
    /// A share of all time, 0 to 1, and so much at once.
    #[must_use]
    pub fn new(share: f64, at_once: Duration) -> Self {
        Self {
            share,
            at_once,
            began: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    fn allowed(&mut self) -> Duration {
        let earned = self.began.elapsed().mul_f64(self.share);
        // What was not spent is not saved up beyond what may be spent at once.
        if self.spent < earned {
            self.began += (earned - self.spent).div_f64(self.share);
        }
        self.began.elapsed().mul_f64(self.share) + self.at_once
    }

    /// Some was spent.
    pub fn add(&mut self, time: Duration) {
        self.spent += time;
    }

    /// How much may be spent now.
    pub fn left(&mut self) -> Duration {
        self.allowed().saturating_sub(self.spent)
    }

    /// How long to pause until something may be spent again.
    pub fn debt(&mut self) -> Duration {
        let allowed = self.allowed();
        self.spent.saturating_sub(allowed).div_f64(self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_a_share_of_the_time() {
        let mut allowance = Allowance::new(0.5, Duration::from_secs(60));
        assert!(allowance.left() >= Duration::from_secs(60));
        allowance.add(Duration::from_secs(3600));
        assert_eq!(allowance.left(), Duration::ZERO);
        assert!(allowance.debt() > Duration::from_secs(7000));
        allowance.began -= Duration::from_secs(7200);
        assert!(allowance.left() >= Duration::from_secs(59));
        // An hour of rest is not a saving.
        allowance.began -= Duration::from_secs(7200);
        assert!(allowance.left() <= Duration::from_secs(61));
    }
}
