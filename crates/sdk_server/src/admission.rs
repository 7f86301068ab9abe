//! How many processes of one user may get a region and a map of meters.
//!
//! Making them takes milliseconds. Without a limit, programs that start and end all the time would keep
//! the recorder busy with nothing else. Those of a process that has soon ended count twice: the workers
//! of a server stay. Each user has a separate allowance, so no user can use up that of another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most processes of a user at once: the workers of a server on a large machine.
const AT_ONCE: u32 = 64;
/// After those, one more in each interval of this length.
const EVERY: Duration = Duration::from_millis(100);
/// A process that has ended before this age counts twice.
const SOON: Duration = Duration::from_secs(2);
/// Above this number of users, those with a whole allowance are forgotten.
const MOST_USERS: usize = 256;

/// The allowances of all users: for each, when it will be whole again.
#[derive(Debug, Default)]
pub(crate) struct Admission(HashMap<u32, Instant>);

impl Admission {
    /// Whether a user has the whole allowance: none of the user's processes has come recently.
    pub(crate) fn is_whole(&self, user: u32, now: Instant) -> bool {
        self.0.get(&user).is_none_or(|whole| *whole <= now)
    }

    /// Whether one more process of this user would be admitted now.
    pub(crate) fn has_left(&self, user: u32, now: Instant) -> bool {
        let whole = self.0.get(&user).map_or(now, |whole| (*whole).max(now));
        whole + EVERY - now <= EVERY * AT_ONCE
    }

    /// Whether one more process of this user is admitted now. If so, it is counted.
    pub(crate) fn admits(&mut self, user: u32, now: Instant) -> bool {
        if self.0.len() >= MOST_USERS {
            self.0.retain(|_, whole| *whole > now);
        }
        let is_left = self.has_left(user, now);
        if is_left {
            let whole = self.0.entry(user).or_insert(now);
            *whole = (*whole).max(now) + EVERY;
        }
        is_left
    }

    /// An admitted process of this user has ended at this age, or is served no more.
    pub(crate) fn ended(&mut self, user: u32, age: Duration, now: Instant) {
        // A user who has the whole allowance may have been forgotten.
        if let Some(whole) = self.0.get_mut(&user).filter(|_| age < SOON) {
            *whole = (*whole).max(now) + EVERY;
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
        assert!(admission.is_whole(1, now) && admission.has_left(1, now));
        assert_eq!(admitted(&mut admission, 1, now), AT_ONCE);
        assert!(!admission.is_whole(1, now) && !admission.has_left(1, now));
        assert_eq!(admitted(&mut admission, 2, now), AT_ONCE);
        assert_eq!(admitted(&mut admission, 1, now + 3 * EVERY), 3);
        assert_eq!(admitted(&mut admission, 1, now + 1000 * EVERY), AT_ONCE);
    }

    #[test]
    fn processes_that_end_soon_count_twice() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let mut short_lived = 0;
        while admission.admits(1, now) {
            admission.ended(1, SOON / 2, now);
            short_lived += 1;
        }
        assert_eq!(short_lived, AT_ONCE / 2);
        // What is owed is bounded by what was admitted.
        assert_eq!(
            admitted(&mut admission, 1, now + EVERY * 2 * AT_ONCE),
            AT_ONCE
        );
        for _ in 0..AT_ONCE {
            assert!(admission.admits(2, now));
            admission.ended(2, SOON, now);
        }
        admission.ended(3, Duration::ZERO, now);
        assert!(admission.is_whole(3, now));
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
