//! What waits for its answer, in bounded number.

use std::collections::HashMap;

/// The most that wait at a time, of all users and of one.
const MOST: usize = 256;
const MOST_OF_USER: usize = 64;

/// Requests in the order of their coming.
#[derive(Debug)]
pub(crate) struct Waiting<R> {
    requests: Vec<R>,
    of_user: HashMap<u32, usize>,
}

impl<R> Default for Waiting<R> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            of_user: HashMap::new(),
        }
    }
}

impl<R> Waiting<R> {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.requests.iter()
    }

    /// All of them; none waits any more.
    pub(crate) fn take(&mut self) -> Vec<R> {
        self.of_user.clear();
        std::mem::take(&mut self.requests)
    }

    /// Adds a request of this user.
    ///
    /// # Errors
    /// Too many wait: the request is given back.
    pub(crate) fn add(&mut self, user: u32, request: R) -> Result<(), R> {
        let count = self.of_user.entry(user).or_default();
        if *count >= MOST_OF_USER || self.requests.len() >= MOST {
            return Err(request);
        }
        *count += 1;
        self.requests.push(request);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_take_the_room_of_the_others() {
        let mut waiting = Waiting::default();
        let added = |waiting: &mut Waiting<u32>, user| {
            (0..1000).filter(|n| waiting.add(user, *n).is_ok()).count()
        };
        assert_eq!(added(&mut waiting, 1), MOST_OF_USER);
        assert_eq!(added(&mut waiting, 2), MOST_OF_USER);
        assert_eq!(waiting.take().len(), 2 * MOST_OF_USER);
        assert!(waiting.is_empty());
        let all: usize = (0..100).map(|user| added(&mut waiting, user)).sum();
        assert_eq!((all, waiting.iter().count()), (MOST, MOST));
    }
}
