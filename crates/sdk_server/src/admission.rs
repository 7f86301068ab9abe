//! How many processes of one user may get a region and a map of meters.
//!
//! Making them takes milliseconds. Without a limit, programs that start and end all the time would keep
//! the recorder busy with nothing else. So there is a second, lower limit for processes that soon end:
//! the workers of a server stay. Each user has a separate allowance, so no user can use up that of
//! another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most processes of a user at once: the workers of a server on a large machine.
const AT_ONCE: u32 = 64;
/// After those, one more in each interval of this length.
const EVERY: Duration = Duration::from_millis(100);
/// A process that ends before this age is one of those that soon end. After [`AT_ONCE`] of these, there
/// is one more in each interval of the second length.
const SOON: Duration = Duration::from_secs(2);
const EVERY_SHORT: Duration = Duration::from_millis(250);
/// Above this number of users, those with a whole allowance are forgotten.
const MOST_USERS: usize = 256;

/// The allowances of all users.
#[derive(Debug, Default)]
pub(crate) struct Admission(HashMap<u32, Allowance>);

/// When the two parts of an allowance will be whole again: for all processes, and for those that soon
/// end.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    all: Instant,
    short: Instant,
}

impl Allowance {
    fn is_whole(&self, now: Instant) -> bool {
        self.all <= now && self.short <= now
    }

    fn has_left(&self, now: Instant) -> bool {
        let owed = |whole: Instant| whole.saturating_duration_since(now);
        owed(self.all) + EVERY <= EVERY * AT_ONCE
            && owed(self.short) + EVERY_SHORT <= EVERY_SHORT * AT_ONCE
    }
}

impl Admission {
    fn of(&self, user: u32, now: Instant) -> Allowance {
        let whole = Allowance {
            all: now,
            short: now,
        };
        self.0.get(&user).copied().unwrap_or(whole)
    }

    /// Whether none of the user's processes has come recently.
    pub(crate) fn is_rare(&self, user: u32, now: Instant) -> bool {
        self.of(user, now).all <= now
    }

    /// Whether one more process of this user would be admitted now.
    pub(crate) fn has_left(&self, user: u32, now: Instant) -> bool {
        self.of(user, now).has_left(now)
    }

    /// Whether one more process of this user is admitted now. If so, it is counted.
    pub(crate) fn admits(&mut self, user: u32, now: Instant) -> bool {
        if self.0.len() >= MOST_USERS {
            self.0.retain(|_, allowance| !allowance.is_whole(now));
        }
        let mut allowance = self.of(user, now);
        let is_left = allowance.has_left(now);
        if is_left {
            allowance.all = allowance.all.max(now) + EVERY;
            self.0.insert(user, allowance);
        }
        is_left
    }

    /// An admitted process of this user has ended at this age, or is served no more.
    pub(crate) fn ended(&mut self, user: u32, age: Duration, now: Instant) {
        // A user who has the whole allowance may have been forgotten.
        if let Some(allowance) = self.0.get_mut(&user).filter(|_| age < SOON) {
            allowance.short = allowance.short.max(now) + EVERY_SHORT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(admission: &mut Admission, user: u32, now: Instant) -> u32 {
        (0..1000)
            .map(|_| u32::from(admission.admits(user, now)))
            .sum()
    }

    #[test]
    fn an_allowance_is_used_up_and_grows_back_and_is_no_others() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        assert!(admission.is_rare(1, now) && admission.has_left(1, now));
        assert_eq!(admitted(&mut admission, 1, now), AT_ONCE);
        assert!(!admission.is_rare(1, now) && !admission.has_left(1, now));
        assert_eq!(admitted(&mut admission, 2, now), AT_ONCE);
        assert_eq!(admitted(&mut admission, 1, now + 3 * EVERY), 3);
        assert_eq!(admitted(&mut admission, 1, now + 1000 * EVERY), AT_ONCE);
    }

    #[test]
    fn processes_that_soon_end_are_fewer_in_the_long_run() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let mut run = |user, age, second: u32| {
            let now = now + Duration::from_secs(1) * second;
            let admitted = (0..1000).filter(|_| {
                let is_admitted = admission.admits(user, now);
                if is_admitted {
                    admission.ended(user, age, now);
                }
                is_admitted
            });
            admitted.count()
        };
        assert_eq!(run(1, SOON / 2, 0), AT_ONCE as usize);
        assert_eq!((1..=10).map(|s| run(1, SOON / 2, s)).sum::<usize>(), 40);
        assert_eq!(run(2, SOON, 0), AT_ONCE as usize);
        assert_eq!((1..=10).map(|s| run(2, SOON, s)).sum::<usize>(), 100);
    }

    #[test]
    fn nobody_is_remembered_for_a_process_that_was_not_counted() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        admission.ended(3, Duration::ZERO, now);
        assert!(admission.is_rare(3, now) && admission.0.is_empty());
    }

    #[test]
    fn users_that_have_all_of_it_are_forgotten() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        for user in 0..10_000 {
            let later = now + EVERY * user;
            assert!(admission.admits(user, later));
            assert!(admission.0.len() <= MOST_USERS + 1);
        }
    }
}
