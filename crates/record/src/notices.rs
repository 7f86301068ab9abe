//! What a person should know, at a rate that a person can read: a watched process must not be able to
//! fill a log.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// So many are let through at once,
const BURST: u32 = 50;
/// and one more after each of these.
const EVERY: Duration = Duration::from_secs(6);
/// So many different ones are remembered, to be said once.
const MOST_KNOWN: usize = 1024;

/// Notices that wait to be shown.
#[derive(Debug)]
pub struct Notices {
    waiting: Vec<String>,
    known: HashSet<String>,
    /// How many more may be let through, as of `refilled`.
    left: u32,
    refilled: Instant,
    /// Left out since the last time.
    left_out: u64,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            known: HashSet::new(),
            left: BURST,
            refilled: Instant::now(),
            left_out: 0,
        }
    }
}

impl Notices {
    /// With some that are shown in any case.
    pub(crate) fn of(waiting: impl IntoIterator<Item = String>) -> Self {
        Self {
            waiting: waiting.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Shows one, unless there were too many lately.
    pub fn say(&mut self, notice: String) {
        self.refill(Instant::now());
        if self.left > 0 {
            self.left -= 1;
            self.waiting.push(notice);
        } else {
            self.left_out += 1;
        }
    }

    /// The same, and only the first time.
    pub fn say_once(&mut self, notice: String) {
        if self.known.contains(&notice) {
            return;
        }
        if self.known.len() < MOST_KNOWN {
            self.known.insert(notice.clone());
        }
        self.say(notice);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled).as_secs() / EVERY.as_secs();
        if passed > 0 {
            self.refilled += EVERY * u32::try_from(passed).unwrap_or(u32::MAX);
            let passed = u32::try_from(passed).unwrap_or(BURST);
            self.left = (self.left + passed).min(BURST);
        }
    }

    /// Whether some wait.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those that wait, and how many were left out, once there is room to say that.
    pub fn take(&mut self, now: Instant) -> Vec<String> {
        self.refill(now);
        if self.left_out > 0 && self.left > 0 {
            self.left -= 1;
            let left_out = std::mem::take(&mut self.left_out);
            self.waiting
                .push(format!("{left_out} further notices are not shown"));
        }
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_shown() {
        let mut notices = Notices::of(["first".to_owned()]);
        (0..100_000).for_each(|number| notices.say(number.to_string()));
        let now = notices.refilled;
        assert_eq!(notices.take(now).len(), 1 + BURST as usize);
        assert!(notices.take(now).is_empty());
        let later = notices.take(now + EVERY);
        assert_eq!(later.len(), 1);
        assert!(later[0].contains("further notices"), "{later:?}");
        notices.say("one more".into());
        assert!(!notices.any(), "its room was taken by the count");
        assert_eq!(notices.take(now + EVERY * 1000).len(), 1);
    }

    #[test]
    fn what_is_said_once_is_not_said_again() {
        let mut notices = Notices::default();
        (0..10).for_each(|_| notices.say_once("a file is broken".into()));
        assert_eq!(notices.take(Instant::now()), ["a file is broken"]);
    }
}
