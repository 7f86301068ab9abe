//! How many processes of one user may get a region and a map of meters.
//!
//! Making them takes milliseconds. Without a limit, programs that start and end all the time would keep
//! the recorder busy with nothing else. Each user has a separate allowance, so no user can use up that
//! of another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most processes of a user at once: the workers of a server on a large machine.
const AT_ONCE: u32 = 64;
/// After those, one more in each interval of this length.
const EVERY: Duration = Duration::from_millis(100);
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
    fn users_that_have_all_of_it_are_forgotten() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        for user in 0..10_000 {
            let later = now + EVERY * user;
            assert!(admission.admits(user, later));
            assert!(admission.0.len() <= MOST_USERS + 1);
        }
    }
}
