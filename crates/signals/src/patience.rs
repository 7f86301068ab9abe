//! Patience with a process that has just started: it may not have made yet what it is asked for.
//!
//! A program and whoever observes it are often started by one script, so the observer can be there
//! first: before the process runs its own program, has mapped its libraries or made its channels.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A process has just started as long as it is younger than this.
const YOUNG: Duration = Duration::from_secs(1);
/// How long it is waited for at most.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// How long to go on trying.
#[derive(Debug)]
pub struct Patience {
    until: Option<Instant>,
}

impl Patience {
    /// A second from now if any of these processes has just started; else none.
    pub fn with(pids: impl IntoIterator<Item = u32>) -> Self {
        let is_young = |pid| age(pid).is_some_and(|age| age < YOUNG);
        let any = pids.into_iter().any(is_young);
        Self {
            until: any.then(|| Instant::now() + PATIENCE),
        }
    }

    /// Waits for a moment. False, at once: there is no time left.
    #[must_use]
    pub fn once_more(&self) -> bool {
        let is_left = self.until.is_some_and(|until| Instant::now() < until);
        if is_left {
            std::thread::sleep(PAUSE);
        }
        is_left
    }
}

/// How long ago a process was made. It keeps its age when it runs another program.
fn age(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started = started(&stat, rustix::param::clock_ticks_per_second())?;
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    Some(now.saturating_sub(started))
}

/// When it was made, in time since boot, from its line in /proc/PID/stat (proc(5)).
fn started(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    const STARTTIME: usize = 22;
    // A name may hold anything, brackets too; the third field follows it.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let ticks: u64 = fields.nth(STARTTIME - 3)?.parse().ok()?;
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
    Some(Duration::from_nanos(u64::try_from(ns).ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_start_is_the_22nd_field_whatever_the_name_is() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9";
        assert_eq!(started(stat, 100), Some(Duration::from_millis(123_450)));
        assert_eq!(started("7 (a) S 1 7", 100), None);
    }

    #[test]
    fn a_process_is_as_old_as_it_is_and_ages() {
        let before = Instant::now();
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let first = age(child.id()).expect("it lives");
        // The kernel counts in ticks of 10 ms.
        assert!(first <= before.elapsed() + Duration::from_millis(20));
        while age(child.id()).expect("it lives") <= first {
            std::thread::sleep(PAUSE);
        }
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert_eq!(age(child.id()), None);
    }

    #[test]
    fn nobody_waits_for_a_process_that_has_ended_or_is_none() {
        assert!(!Patience::with([]).once_more());
        assert!(!Patience::with([u32::MAX]).once_more());
    }

    #[test]
    fn patience_ends() {
        let until = |until| Patience { until: Some(until) };
        assert!(until(Instant::now() + Duration::from_secs(3600)).once_more());
        assert!(!until(Instant::now()).once_more());
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(stat: String, ticks: u64) {
            let _ = started(&stat, ticks);
        }
    }
}
