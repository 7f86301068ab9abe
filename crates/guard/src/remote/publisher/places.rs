//! Which replica a publisher watches in which slot.

use std::collections::HashSet;
use std::net::SocketAddr;

use tailscope_kernel::hazard::SLOTS;

use crate::target::Target;

/// The slots, and the searches for the processes of those that are new.
#[derive(Debug)]
pub(super) struct Places {
    /// By slot.
    replicas: Vec<Option<SocketAddr>>,
    /// Searches that were wanted, that were begun, and that have ended, by their numbers.
    wanted: u64,
    begun: u64,
    ended: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            replicas: vec![None; SLOTS as usize],
            wanted: 0,
            begun: 0,
            ended: 0,
        }
    }
}

impl Places {
    /// Watches these from now on, as many as there are slots for. Returns the search after which all
    /// of them are known.
    pub fn want(&mut self, replicas: impl Iterator<Item = SocketAddr>) -> u64 {
        let wanted: HashSet<SocketAddr> = replicas.collect();
        let before = self.replicas.clone();
        for place in &mut self.replicas {
            *place = place.filter(|replica| wanted.contains(replica));
        }
        for replica in wanted {
            if self.slot(replica).is_none()
                && let Some(free) = self.replicas.iter_mut().find(|place| place.is_none())
            {
                *free = Some(replica);
            }
        }
        if self.replicas != before {
            self.wanted += 1;
        }
        self.wanted
    }

    /// Where this one is watched; `None`: there was no slot left.
    pub fn slot(&self, replica: SocketAddr) -> Option<u32> {
        let at = self
            .replicas
            .iter()
            .position(|place| *place == Some(replica));
        at.map(|at| at as u32)
    }

    /// The search that is to begin now, with what is watched from then on. One runs at a time.
    pub fn next_search(&mut self) -> Option<(u64, Vec<(u32, Target)>)> {
        if self.begun > self.ended || self.wanted == self.begun {
            return None;
        }
        self.begun = self.wanted;
        let all = (0..).zip(&self.replicas);
        let targets = all.filter_map(|(slot, one)| Some((slot, Target::Address((*one)?))));
        Some((self.begun, targets.collect()))
    }

    /// This search has ended.
    pub fn searched(&mut self, search: u64) {
        self.ended = search;
    }

    /// Whether this search has ended.
    pub fn is_known(&self, search: u64) -> bool {
        self.ended >= search
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn a_replica_keeps_its_slot_while_others_come_and_go() {
        let mut places = Places::default();
        assert_eq!(places.next_search(), None);
        let first = places.want([replica(1), replica(2)].into_iter());
        let (search, targets) = places.next_search().expect("two are new");
        assert_eq!((search, targets.len()), (first, 2));
        let kept = places.slot(replica(2)).expect("it has one");
        let second = places.want([replica(2), replica(3)].into_iter());
        assert_eq!(places.slot(replica(2)), Some(kept));
        assert_eq!(places.slot(replica(1)), None);
        assert_eq!(places.next_search(), None, "one search runs");
        places.searched(search);
        assert!(places.is_known(first) && !places.is_known(second));
        let (search, targets) = places.next_search().expect("one is new");
        assert!(targets.contains(&(kept, Target::Address(replica(2)))));
        places.searched(search);
        assert!(places.is_known(second));
        let same = places.want([replica(3), replica(2)].into_iter());
        assert_eq!((same, places.next_search()), (second, None));
    }

    #[test]
    fn those_without_a_slot_are_unknown() {
        let mut places = Places::default();
        places.want((0..SLOTS as u16 + 1).map(replica));
        let known = (0..SLOTS as u16 + 1).filter(|port| places.slot(replica(*port)).is_some());
        assert_eq!(known.count(), SLOTS as usize);
    }
}
