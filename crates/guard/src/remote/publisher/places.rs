//! Which replica a publisher watches in which slot.

use std::collections::HashSet;
use std::net::SocketAddr;

use tailscope_kernel::hazard::SLOTS;

use crate::target::Target;

/// The slots, and the searches for the processes of those that are new.
#[derive(Debug)]
pub(super) struct Places {
    slots: Vec<Slot>,
    /// Searches that were wanted, that were begun, and that have ended, by their numbers.
    wanted: u64,
    begun: u64,
    ended: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slot {
    replica: Option<SocketAddr>,
    /// The search after which something is known of it.
    after: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            slots: vec![Slot::default(); SLOTS as usize],
            wanted: 0,
            begun: 0,
            ended: 0,
        }
    }
}

impl Places {
    /// Watches these from now on, as many as there are slots for.
    pub fn want(&mut self, replicas: impl Iterator<Item = SocketAddr>) {
        let wanted: HashSet<SocketAddr> = replicas.collect();
        let before = self.slots.clone();
        for slot in &mut self.slots {
            slot.replica = slot.replica.filter(|replica| wanted.contains(replica));
        }
        for replica in wanted {
            if self.slot(replica).is_none()
                && let Some(free) = self.slots.iter_mut().find(|slot| slot.replica.is_none())
            {
                *free = Slot {
                    replica: Some(replica),
                    after: self.wanted + 1,
                };
            }
        }
        if self.slots != before {
            self.wanted += 1;
        }
    }

    /// Where this one is watched; `None`: there was no slot left.
    pub fn slot(&self, replica: SocketAddr) -> Option<u32> {
        let mut slots = self.slots.iter();
        let at = slots.position(|slot| slot.replica == Some(replica));
        at.map(|at| at as u32)
    }

    /// Whether the processes of the replica in this slot were searched for.
    pub fn is_known(&self, slot: u32) -> bool {
        self.slots[slot as usize].after <= self.ended
    }

    /// The search that is to begin now, with what is watched from then on. One runs at a time.
    pub fn next_search(&mut self) -> Option<(u64, Vec<(u32, Target)>)> {
        if self.begun > self.ended || self.wanted == self.begun {
            return None;
        }
        self.begun = self.wanted;
        let all = (0..).zip(&self.slots);
        let targets = all.filter_map(|(at, slot)| Some((at, Target::Address(slot.replica?))));
        Some((self.begun, targets.collect()))
    }

    /// This search has ended.
    pub fn searched(&mut self, search: u64) {
        self.ended = search;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn is_known(places: &Places, port: u16) -> bool {
        let slot = places.slot(replica(port));
        places.is_known(slot.expect("it has a slot"))
    }

    #[test]
    fn a_replica_keeps_its_slot_while_others_come_and_go() {
        let mut places = Places::default();
        assert_eq!(places.next_search(), None);
        places.want([replica(1), replica(2)].into_iter());
        let (search, targets) = places.next_search().expect("two are new");
        assert_eq!(targets.len(), 2);
        let kept = places.slot(replica(2)).expect("it has one");
        places.want([replica(2), replica(3)].into_iter());
        assert_eq!(places.slot(replica(2)), Some(kept));
        assert_eq!(places.slot(replica(1)), None);
        assert_eq!(places.next_search(), None, "one search runs");
        assert!(!is_known(&places, 2));
        places.searched(search);
        assert!(is_known(&places, 2) && !is_known(&places, 3));
        let (search, targets) = places.next_search().expect("one is new");
        assert!(targets.contains(&(kept, Target::Address(replica(2)))));
        places.searched(search);
        assert!(is_known(&places, 3));
        places.want([replica(3), replica(2)].into_iter());
        assert_eq!(places.next_search(), None);
    }

    #[test]
    fn those_without_a_slot_get_one_when_others_leave_and_are_unknown_until_then() {
        let mut places = Places::default();
        let most = SLOTS as u16;
        places.want((0..most).map(replica));
        places.want((0..=most).map(replica));
        assert_eq!(places.slot(replica(most)), None);
        let (search, _) = places.next_search().expect("they are new");
        places.searched(search);
        places.want((1..=most).map(replica));
        assert!(
            !is_known(&places, most),
            "what the slot has is another one's"
        );
    }
}
