//! Which events the threads of SDK processes count, and whose turn it is.
//!
//! A CPU counts only a few events at a time. The kernel would let more of them take turns by
//! itself, every few milliseconds, in the middle of spans; so no more are asked for than fit, and
//! it is groups that take turns, a second each. Statistics on pairs of events need spans that have both.
//! So the events are cut into blocks of half of what fits, and a group is two blocks: every pair of
//! events meets in some group, with the fewest groups. Their order is drawn anew each round, so
//! that no turn keeps step with anything that the program does every few seconds.

use std::time::{Duration, Instant};

use tailscope_counters::{Event, Pmus, Refusal, can_count};
use tailscope_signals::abi;
use tailscope_signals::row;
use tailscope_trace::{Counter, Counts, Rung};

/// How long a group's turn is.
const SWITCH_EVERY: Duration = Duration::from_secs(1);

/// The events of a recording, by their columns.
#[derive(Debug)]
pub(crate) struct Counting {
    events: Vec<Event>,
    /// Why an event is not counted, by its place.
    refused: Vec<Option<String>>,
    /// Places of events; those of one group are counted together.
    groups: Vec<Vec<u8>>,
    /// The groups whose turn is still to come in this round, the next one last.
    round: Vec<usize>,
    switched: Instant,
}

impl Counting {
    /// Tries what of these can be counted here, and together.
    pub(crate) fn start(events: Vec<Event>) -> Self {
        Self::plan(events, can_count)
    }

    fn plan(
        events: Vec<Event>,
        can_count: impl Fn(&[abi::ts_event]) -> Result<(), Refusal>,
    ) -> Self {
        let told: Vec<_> = events.iter().map(Event::for_threads).collect();
        let refused: Vec<_> = told
            .iter()
            .map(|event| can_count(&[*event]).err().map(|why| why.to_string()))
            .collect();
        let usable: Vec<u8> = (0u8..)
            .zip(&refused)
            .filter_map(|(place, refused)| refused.is_none().then_some(place))
            .collect();
        let fits = |group: &Vec<u8>| {
            let told: Vec<_> = group
                .iter()
                .map(|place| told[usize::from(*place)])
                .collect();
            can_count(&told).is_ok()
        };
        let groups = (1..=row::COUNTERS)
            .rev()
            .map(|width| groups(&usable, width))
            .find(|groups| groups.iter().all(fits))
            .unwrap_or_default();
        Self {
            events,
            refused,
            groups,
            round: Vec::new(),
            switched: Instant::now(),
        }
    }

    /// Whether there is anything to count.
    pub(crate) fn counts(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The group whose turn begins now, if a turn does: always where it never did.
    pub(crate) fn switch_group(
        &mut self,
        now: Instant,
        first: bool,
    ) -> Option<(u16, Vec<abi::ts_event>)> {
        if !first && (self.groups.len() < 2 || now.duration_since(self.switched) < SWITCH_EVERY) {
            return None;
        }
        self.switched = now;
        if self.round.is_empty() {
            self.round = (0..self.groups.len()).collect();
            fastrand::shuffle(&mut self.round);
        }
        let group = self.round.pop()?;
        let events = &self.groups[group];
        let told = events
            .iter()
            .map(|place| self.events[usize::from(*place)].for_threads());
        Some((group as u16, told.collect()))
    }

    /// What a row counted, by columns. A process may have written any numbers.
    pub(crate) fn of_row(&self, counts: &row::Counts) -> Counts {
        let mut found = Counts::default();
        let group = self.groups.get(usize::from(counts.group));
        for (counter, value) in group.into_iter().flatten().zip(counts.values) {
            if let Some(value) = value {
                found.push(*counter, i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        found
    }

    /// The ledger's columns.
    pub(crate) fn columns(&self) -> Vec<Counter> {
        self.events
            .iter()
            .zip(&self.refused)
            .map(|(event, refused)| Counter {
                column: event.column.clone(),
                event: event.name.clone(),
                counted: refused.is_none() && self.counts(),
            })
            .collect()
    }

    /// How it is done here, or why not.
    pub(crate) fn rung(&self) -> Rung {
        let together = self.groups.iter().map(Vec::len).max().unwrap_or(0);
        let mut why: Vec<(Vec<&str>, &String)> = Vec::new();
        for (event, refused) in self.events.iter().zip(&self.refused) {
            let Some(reason) = refused else { continue };
            match why.iter_mut().find(|(_, known)| *known == reason) {
                Some((names, _)) => names.push(&event.name),
                None => why.push((vec![&event.name], reason)),
            }
        }
        let why: Vec<String> = why
            .into_iter()
            .map(|(names, reason)| format!("{}: {reason}", names.join(", ")))
            .collect();
        Rung {
            rung: self.counts().then(|| {
                let taking_turns = match self.groups.len() {
                    1 => String::new(),
                    groups => format!(
                        ", {groups} groups, switched every {} s",
                        SWITCH_EVERY.as_secs()
                    ),
                };
                format!("{READ_BY} at start and end, {together} events at a time{taking_turns}")
            }),
            why: why.join("; "),
        }
    }
}

/// Whether this machine's threads can count for themselves, tried with instructions and cycles.
#[must_use]
pub fn rung_here() -> Rung {
    let events = Event::parse_list("instructions,cycles", &Pmus::default()).unwrap_or_default();
    Counting::start(events).rung()
}

/// The instruction that reads a counter.
pub const READ_BY: &str = if cfg!(target_arch = "x86_64") {
    "rdpmc"
} else {
    "mrs"
};

/// Groups of at most `width` events in which every pair of events meets; for a width of 1 none do.
fn groups(events: &[u8], width: usize) -> Vec<Vec<u8>> {
    if events.len() <= width {
        return (!events.is_empty())
            .then(|| events.to_vec())
            .into_iter()
            .collect();
    }
    if width < 2 {
        return events.iter().map(|event| vec![*event]).collect();
    }
    let blocks: Vec<&[u8]> = events.chunks(width / 2).collect();
    let with_later = |first: usize| {
        let blocks = &blocks;
        (first + 1..blocks.len()).map(move |second| [blocks[first], blocks[second]].concat())
    };
    (0..blocks.len()).flat_map(with_later).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io;

    use super::*;
    use proptest::prelude::*;

    fn events(count: usize) -> Vec<Event> {
        let name = |number| format!("r{number:x}");
        (0..count)
            .map(|number| Event::parse(&name(number), &Pmus::default()).expect("a raw number"))
            .collect()
    }

    fn crowded(width: usize) -> impl Fn(&[abi::ts_event]) -> Result<(), Refusal> {
        move |group| {
            if group.len() > width {
                return Err(Refusal::Kernel(io::Error::from_raw_os_error(22)));
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn every_pair_of_events_meets(count in 1usize..40, width in 2usize..9) {
            let all: Vec<u8> = (0..count as u8).collect();
            let groups = groups(&all, width);
            prop_assert!(groups.iter().all(|group| group.len() <= width));
            for one in &all {
                for other in &all {
                    let meet = |group: &Vec<u8>| group.contains(one) && group.contains(other);
                    prop_assert!(groups.iter().any(meet), "{one} {other}");
                }
            }
        }

        #[test]
        fn every_group_has_its_turn_in_every_round(count in 1usize..30, width in 1usize..7) {
            let mut counting = Counting::plan(events(count), crowded(width));
            let mut now = Instant::now();
            for _ in 0..3 {
                let seen: HashSet<u16> = (0..counting.groups.len())
                    .map(|_| {
                        now += SWITCH_EVERY;
                        counting.switch_group(now, true).expect("a group").0
                    })
                    .collect();
                prop_assert_eq!(seen.len(), counting.groups.len());
            }
        }

        #[test]
        fn what_a_row_counted_goes_to_its_columns(
            count in 1usize..12, group: u16, values: [Option<u64>; row::COUNTERS],
        ) {
            let counting = Counting::plan(events(count), crowded(3));
            let found = counting.of_row(&row::Counts { group, values });
            let of_group = counting.groups.get(usize::from(group)).cloned().unwrap_or_default();
            for (counter, value) in found.iter() {
                let place = of_group.iter().position(|c| usize::from(*c) == counter).expect("of the group");
                prop_assert_eq!(Some(value), values[place].map(|v| i64::try_from(v).unwrap_or(i64::MAX)));
            }
        }
    }

    #[test]
    fn events_that_fit_take_no_turns() {
        let mut counting = Counting::plan(events(4), crowded(4));
        let begin = Instant::now();
        let (group, told) = counting.switch_group(begin, true).expect("a group");
        assert_eq!((group, told.len()), (0, 4));
        assert!(
            counting
                .switch_group(begin + 10 * SWITCH_EVERY, false)
                .is_none()
        );
        assert!(
            counting
                .rung()
                .rung
                .expect("it can count")
                .ends_with("4 events at a time")
        );
    }

    #[test]
    fn events_that_do_not_fit_take_turns_of_a_second() {
        let mut counting = Counting::plan(events(6), crowded(4));
        assert_eq!(counting.groups.len(), 3);
        let begin = Instant::now();
        assert!(counting.switch_group(begin, true).is_some());
        assert!(
            counting
                .switch_group(begin + SWITCH_EVERY / 2, false)
                .is_none()
        );
        assert!(counting.switch_group(begin + SWITCH_EVERY, false).is_some());
    }

    #[test]
    fn a_machine_without_counters_counts_nothing_and_says_why() {
        let refuse = |_: &[_]| Err(Refusal::Kernel(io::Error::from_raw_os_error(2)));
        let mut counting = Counting::plan(events(2), refuse);
        assert!(!counting.counts());
        assert!(counting.switch_group(Instant::now(), true).is_none());
        assert!(counting.columns().iter().all(|column| !column.counted));
        let rung = counting.rung();
        assert_eq!(rung.rung, None);
        assert!(
            rung.why.contains("r0, r1: the kernel refused"),
            "{}",
            rung.why
        );
        assert!(rung.why.contains("no such counter"));
    }

    #[test]
    fn one_event_that_is_refused_leaves_the_others() {
        let refuse_r1 = |group: &[abi::ts_event]| match group {
            [one] if one.config == 1 => Err(Refusal::NotReadable),
            _ => Ok(()),
        };
        let counting = Counting::plan(events(3), refuse_r1);
        assert_eq!(counting.groups, [vec![0, 2]]);
        let counted: Vec<_> = counting.columns().iter().map(|c| c.counted).collect();
        assert_eq!(counted, [true, false, true]);
    }
}
