//! Which requests have a name of their own in the ledger.
//!
//! Clients choose paths, so a scanner can send a million different ones. Goal: in bounded memory, a
//! name that recurs has all its requests, whatever else comes, and the others are one kind that is
//! counted.
//!
//! The first names get their places at once. Later ones have to recur: until then their requests
//! are held, for a while and up to a number, and are called `(other)` after that. The last places
//! are for names that come many times, so that a scanner that sends each path twice takes not all
//! of them. How often a name came is remembered by its hash longer than its requests are held.
//!
//! Rejected: places for whoever comes first, because a scanner may come first. Rejected: to take
//! the places of rare names away, because rows that are written have their names.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Places for names. The first of them are given away at once, the next to names that come twice,
/// the last to names that come often.
const PLACES: usize = 4096;
const AT_ONCE: usize = 1024;
const LAST: usize = 1024;
const OFTEN: u32 = 32;
/// The most requests that are held, and the longest time that one is held (ns).
const MOST_HELD: usize = 16_384;
const HELD_NS: u64 = 5_000_000_000;
/// The most names without a place that are counted.
const MOST_COUNTED: usize = 65_536;

/// A request that waits for its name to recur.
#[derive(Debug)]
struct Held<T> {
    since: u64,
    name: u64,
    /// `None`: its name has a place by now, and it is gone.
    request: Option<T>,
}

/// A name without a place.
#[derive(Debug, Default)]
struct Candidate {
    /// How often it came.
    count: u32,
    /// Its requests that are held, by their number among all that ever were.
    held: Vec<u64>,
}

/// Requests with the name that each has in the ledger; `None`: it is one of the others.
pub(crate) type Named<T> = Vec<(Option<Arc<str>>, T)>;

/// The names that have places, and what waits for one.
#[derive(Debug)]
pub(crate) struct RequestNames<T> {
    places: HashSet<Arc<str>>,
    held: VecDeque<Held<T>>,
    /// The number of the first of them.
    first: u64,
    /// Names without a place, by their hash.
    candidates: HashMap<u64, Candidate>,
    /// Keyed at random, so that no client can make names collide.
    hasher: RandomState,
    /// Requests that are called `(other)`.
    pub(crate) unnamed: u64,
}

impl<T> Default for RequestNames<T> {
    fn default() -> Self {
        Self {
            places: HashSet::new(),
            held: VecDeque::new(),
            first: 0,
            candidates: HashMap::new(),
            hasher: RandomState::new(),
            unnamed: 0,
        }
    }
}

impl<T> RequestNames<T> {
    /// How many names have places.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether this name has a place.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains(name)
    }

    /// A request of this name came at `now` (ns). Adds what is decided by that to `decided`.
    pub(crate) fn offer(&mut self, now: u64, name: &str, request: T, decided: &mut Named<T>) {
        if let Some(known) = self.places.get(name) {
            decided.push((Some(Arc::clone(known)), request));
            return;
        }
        let times = match self.places.len() {
            0..AT_ONCE => 1,
            count if count < PLACES - LAST => 2,
            count if count < PLACES => OFTEN,
            _ => u32::MAX,
        };
        if times == u32::MAX {
            self.unnamed += 1;
            decided.push((None, request));
            return;
        }
        let hash = self.hasher.hash_one(name);
        if self.count(hash) >= times {
            let name: Arc<str> = name.into();
            self.places.insert(Arc::clone(&name));
            self.release(hash, &name, decided);
            decided.push((Some(name), request));
            return;
        }
        if self.held.len() >= MOST_HELD {
            self.let_go(decided);
        }
        let number = self.first + self.held.len() as u64;
        if let Some(candidate) = self.candidates.get_mut(&hash) {
            candidate.held.push(number);
        }
        self.held.push_back(Held {
            since: now,
            name: hash,
            request: Some(request),
        });
    }

    /// Lets go of requests that were held long enough by `now`.
    pub(crate) fn advance(&mut self, now: u64, decided: &mut Named<T>) {
        let is_old = |held: &Held<T>| held.since.saturating_add(HELD_NS) <= now;
        while self.held.front().is_some_and(is_old) {
            self.let_go(decided);
        }
    }

    /// Lets go of all of them.
    pub(crate) fn finish(&mut self, decided: &mut Named<T>) {
        while !self.held.is_empty() {
            self.let_go(decided);
        }
    }

    /// How often this name came without a place, with this time.
    fn count(&mut self, name: u64) -> u32 {
        // Fewer requests are held than names are counted, so there is one to forget.
        while self.candidates.len() >= MOST_COUNTED {
            self.candidates.retain(|_, candidate| {
                candidate.count /= 2;
                candidate.count > 0 || !candidate.held.is_empty()
            });
        }
        let candidate = self.candidates.entry(name).or_default();
        candidate.count = candidate.count.saturating_add(1);
        candidate.count
    }

    /// The requests of a name that has just got a place, in their order.
    fn release(&mut self, hash: u64, name: &Arc<str>, decided: &mut Named<T>) {
        let candidate = self.candidates.remove(&hash).unwrap_or_default();
        for number in candidate.held {
            let place = number.checked_sub(self.first);
            let held = place.and_then(|place| self.held.get_mut(place as usize));
            if let Some(request) = held.and_then(|held| held.request.take()) {
                decided.push((Some(Arc::clone(name)), request));
            }
        }
    }

    /// The oldest that is held is one of the others.
    fn let_go(&mut self, decided: &mut Named<T>) {
        let Some(held) = self.held.pop_front() else {
            return;
        };
        let number = self.first;
        self.first += 1;
        let Some(request) = held.request else { return };
        if let Some(candidate) = self.candidates.get_mut(&held.name) {
            candidate.held.retain(|of| *of != number);
        }
        self.unnamed += 1;
        decided.push((None, request));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What became of requests: how many each name has, and how many have none.
    #[derive(Default)]
    struct Seen {
        names: RequestNames<()>,
        named: HashMap<String, u64>,
        other: u64,
    }

    impl Seen {
        fn take(&mut self, decided: Named<()>) {
            for (name, ()) in decided {
                match name {
                    Some(name) => *self.named.entry(name.to_string()).or_default() += 1,
                    None => self.other += 1,
                }
            }
        }

        fn offer(&mut self, now: u64, name: &str) {
            let mut decided = Vec::new();
            self.names.offer(now, name, (), &mut decided);
            self.names.advance(now, &mut decided);
            self.take(decided);
        }

        fn finish(&mut self) {
            let mut decided = Vec::new();
            self.names.finish(&mut decided);
            self.take(decided);
        }

        fn is_bounded(&self) -> bool {
            self.names.places.len() <= PLACES
                && self.names.held.len() <= MOST_HELD
                && self.names.candidates.len() <= MOST_COUNTED
        }
    }

    #[test]
    fn a_scanner_with_a_million_paths_leaves_the_other_names_exact() {
        let mut seen = Seen::default();
        let mut true_counts = HashMap::<String, u64>::new();
        for number in 0..1_000_000u64 {
            let now = number * 10_000;
            seen.offer(now, &format!("GET /scan-{number}"));
            if number >= 5_000 && number % 2 == 0 {
                // A thousand names, of which the first are the most frequent.
                let name = format!("GET /{}", (number / 2) % 1000 % (1 + number / 2 % 7 * 150));
                seen.offer(now, &name);
                *true_counts.entry(name).or_default() += 1;
            }
            assert!(seen.is_bounded());
        }
        seen.finish();
        for (name, count) in &true_counts {
            assert_eq!(seen.named.get(name), Some(count), "{name}");
        }
        assert!(seen.named.len() <= PLACES);
        assert_eq!(seen.other, seen.names.unnamed);
        let all: u64 = true_counts.values().sum::<u64>() + 1_000_000;
        assert_eq!(seen.other + seen.named.values().sum::<u64>(), all);
    }

    #[test]
    fn a_name_that_comes_often_gets_a_place_even_if_each_path_of_a_scanner_comes_twice() {
        let mut seen = Seen::default();
        for number in 0..50_000 {
            seen.offer(0, &format!("GET /scan-{}", number / 2));
        }
        for _ in 0..100 {
            seen.offer(0, "GET /search");
        }
        assert_eq!(seen.named.get("GET /search"), Some(&100));
    }

    #[test]
    fn a_rare_name_is_held_for_a_while_only() {
        let mut seen = Seen::default();
        (0..AT_ONCE).for_each(|number| seen.offer(0, &format!("GET /{number}")));
        seen.offer(1, "GET /rare");
        assert_eq!(seen.other, 0);
        seen.offer(HELD_NS, "GET /0");
        assert_eq!(seen.other, 0);
        seen.offer(HELD_NS + 1, "GET /0");
        assert_eq!((seen.other, seen.names.unnamed), (1, 1));
        // It is remembered all the same.
        seen.offer(HELD_NS + 2, "GET /rare");
        assert_eq!(seen.named.get("GET /rare"), Some(&1));
    }

    proptest! {
        #[test]
        fn every_request_is_decided_once(
            names in proptest::collection::vec((0u32..3000, 0u64..4_000_000_000), 0..5000),
        ) {
            let (mut seen, mut now) = (Seen::default(), 0);
            let mut came = HashMap::<u32, Vec<u64>>::new();
            for (name, pause) in &names {
                now += pause / 1000;
                came.entry(*name).or_default().push(now);
                seen.offer(now, &name.to_string());
                prop_assert!(seen.is_bounded());
            }
            seen.finish();
            let named: u64 = seen.named.values().sum();
            prop_assert_eq!(named + seen.other, names.len() as u64);
            prop_assert_eq!(seen.other, seen.names.unnamed);
            // At most the first request of a name is one of the others, and only if the second
            // came too late.
            for (name, times) in came {
                let count = times.len() as u64;
                let found = seen.named.get(&name.to_string()).copied().unwrap_or(0);
                let in_time = times.get(1).is_some_and(|second| second - times[0] < HELD_NS);
                prop_assert!(
                    found == count || (found + 1 == count && !in_time),
                    "{} of {}, in time: {}", found, count, in_time
                );
            }
        }
    }
}
