//! How often processes of a user may come for memory of their own.
//!
//! To make it takes milliseconds, so programs that come and go without end would keep a recorder busy
//! with nothing else. Each user has an allowance of his own: nobody can use up another's.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The processes of a user that may come at once: the workers of a server, on a large machine.
const AT_ONCE: u32 = 64;
/// After those, one more may come in each interval of this length.
const EVERY: Duration = Duration::from_millis(100);
/// Users whose allowance has grown back are forgotten once there are so many.
const MOST_USERS: usize = 256;

/// The allowances of all users.
#[derive(Debug, Default)]
pub struct Newcomers(HashMap<u32, Instant>);

impl Newcomers {
    /// Whether a process of this user may come now; if so, it is counted.
    pub fn may_come(&mut self, user: u32, now: Instant) -> bool {
        if self.0.len() >= MOST_USERS {
            self.0.retain(|_, whole| *whole > now);
        }
        // When the allowance will be whole again.
        let whole = self.0.get(&user).map_or(now, |whole| (*whole).max(now));
        let next = whole + EVERY;
        let is_left = next - now <= EVERY * AT_ONCE;
        if is_left {
            self.0.insert(user, next);
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(newcomers: &mut Newcomers, user: u32, now: Instant) -> u32 {
        (0..1000)
            .map(|_| u32::from(newcomers.may_come(user, now)))
            .sum()
    }

    #[test]
    fn an_allowance_is_used_up_and_grows_back_and_is_no_others() {
        let (mut newcomers, now) = (Newcomers::default(), Instant::now());
        assert_eq!(coming(&mut newcomers, 1, now), AT_ONCE);
        assert_eq!(coming(&mut newcomers, 2, now), AT_ONCE);
        assert_eq!(coming(&mut newcomers, 1, now + 3 * EVERY), 3);
        assert_eq!(coming(&mut newcomers, 1, now + 1000 * EVERY), AT_ONCE);
    }

    #[test]
    fn users_that_have_all_of_it_are_forgotten() {
        let (mut newcomers, now) = (Newcomers::default(), Instant::now());
        for user in 0..10_000 {
            let later = now + EVERY * user;
            assert!(newcomers.may_come(user, later));
            assert!(newcomers.0.len() <= MOST_USERS + 1);
        }
    }
}
