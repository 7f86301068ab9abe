//! The circular path of elements, in memory.
//!
//! An element is a word of 32 bits: where the next element is, whether that one is written, and
//! whether a phase ends with this one. So a walk touches nothing but the elements, as in the thesis.
//!
//! ```text
//! bit 31      a phase ends with this element
//! bit 30      the next element is written
//! bit 29      the next element lies in the session's own lines
//! bits 28..0  the next element, as an index into its region
//! ```

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fastrand::Rng;
use tailscope_fibre::{Memory, Pages};

use crate::chase::plan::{Plan, PlanError, SLOTS, Scope};

const END: u32 = 1 << 31;
const WRITE: u32 = 1 << 30;
const OWN: u32 = 1 << 29;
const INDEX: u32 = OWN - 1;
/// A walk adds to its counter once in this number of accesses.
const REPORT: u64 = 1024;

/// Where a walk goes on: the position bits of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

/// A path that all sessions walk. Lines of one session have the same layout in each session.
#[derive(Debug)]
pub struct Path {
    shared: Memory,
    /// The content of one session's own lines.
    own: Vec<u32>,
    /// The first element of each visit, in the order of a loop.
    starts: Vec<Place>,
    phases: usize,
    elements: u64,
    writes: u64,
}

/// An element before it is linked: its position, and whether it is written.
type Element = u32;

impl Path {
    /// Lays out a plan.
    ///
    /// # Errors
    ///
    /// If the plan has more lines than an element can address.
    pub fn new(plan: &Plan, pages: Pages, rng: &mut Rng) -> Result<Self, PathError> {
        let words = |scope| {
            let groups = plan.groups.iter().filter(|group| group.scope == scope);
            groups.map(|group| group.lines * SLOTS).sum::<usize>()
        };
        let (shared, own) = (words(Scope::Global), words(Scope::Session));
        if shared.max(own) > INDEX as usize {
            return Err(PlanError::TooLarge(u64::from(INDEX) * 4).into());
        }
        let mut chains = elements(plan, rng);
        let counts = chains.iter().flatten();
        let mut path = Self {
            elements: counts.clone().count() as u64,
            writes: counts.filter(|element| **element & WRITE != 0).count() as u64,
            shared: Memory::new(shared, pages)?,
            own: vec![0; own],
            starts: Vec::new(),
            phases: 0,
        };
        for chain in &mut chains {
            rng.shuffle(chain);
        }
        let visits = in_visits(&chains, plan.visits);
        path.starts = visits.iter().map(|visit| Place(visit[0])).collect();
        path.phases = plan.phases;
        path.link(&visits);
        Ok(path)
    }

    fn link(&mut self, visits: &[&[Element]]) {
        for (number, visit) in visits.iter().enumerate() {
            let after = visits[(number + 1) % visits.len()][0];
            for (i, element) in visit.iter().enumerate() {
                let word = visit.get(i + 1).map_or(after | END, |next| *next);
                let index = (element & INDEX) as usize;
                if element & OWN != 0 {
                    self.own[index] = word;
                } else {
                    self.shared.words()[index].store(word, Ordering::Relaxed);
                }
            }
        }
    }

    /// One session's own lines.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn own_lines(&self, pages: Pages) -> io::Result<Memory> {
        let memory = Memory::new(self.own.len(), pages)?;
        for (word, value) in memory.words().iter().zip(&self.own) {
            word.store(*value, Ordering::Relaxed);
        }
        Ok(memory)
    }

    /// Where a phase starts, in a part of the loop: 0 is its beginning, and just below 1 its end.
    ///
    /// # Panics
    ///
    /// If there is no such phase, or no such part.
    #[must_use]
    pub fn start(&self, phase: usize, part: f64) -> Place {
        let round = (part * (self.visits() / self.phases) as f64) as usize;
        self.starts[round * self.phases + phase]
    }

    /// Accesses of one loop.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Writes of one loop.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Visits of all phases in one loop.
    #[must_use]
    pub fn visits(&self) -> usize {
        self.starts.len()
    }

    /// The number of phases.
    #[must_use]
    pub fn phases(&self) -> usize {
        self.phases
    }

    /// Walks to the end of the phase, and returns where the next one starts. `done` grows by the
    /// number of accesses; only one walk may have it at a time.
    #[inline(never)]
    pub fn walk(&self, from: Place, own: &Memory, done: &AtomicU64) -> Place {
        let (shared, own) = (self.shared.words(), own.words());
        let mut place = from.0;
        loop {
            for before in 0..REPORT {
                let index = (place & INDEX) as usize;
                let region = if place & OWN == 0 { shared } else { own };
                let word = access(&region[index], place);
                if word & END != 0 {
                    add(done, before + 1);
                    return Place(word & !END);
                }
                place = word;
            }
            add(done, REPORT);
        }
    }
}

/// One access. A write stores what it loaded, as no instruction fetches a line for writing only.
#[inline(always)]
fn access(element: &AtomicU32, place: u32) -> u32 {
    let word = element.load(Ordering::Relaxed);
    if place & WRITE != 0 {
        element.store(word, Ordering::Relaxed);
    }
    word
}

/// A load and a store: there is one writer.
fn add(done: &AtomicU64, count: u64) {
    done.store(done.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// The elements of each phase, with the lines of a group in random order of rank, the slots of a
/// line in random order, and the exact share of writes at random elements.
fn elements(plan: &Plan, rng: &mut Rng) -> Vec<Vec<Element>> {
    let mut chains = vec![Vec::new(); plan.phases];
    let mut next = [0usize; 2];
    for group in &plan.groups {
        let (flag, first) = match group.scope {
            Scope::Session => (OWN, &mut next[0]),
            Scope::Global => (0, &mut next[1]),
        };
        let mut slots: Vec<Vec<u32>> = (0..group.lines)
            .map(|line| {
                let start = (*first + line) * SLOTS;
                let mut slots: Vec<u32> = (start..start + SLOTS).map(|i| i as u32).collect();
                rng.shuffle(&mut slots);
                slots
            })
            .collect();
        *first += group.lines;
        for used in &group.uses {
            let mut ranks: Vec<usize> = (0..group.lines).collect();
            rng.shuffle(&mut ranks);
            let counts = plan.counts(group, used);
            let mut found: Vec<Element> = Vec::new();
            for (rank, line) in counts.into_iter().zip(ranks) {
                let left = slots[line].len() - rank;
                found.extend(slots[line].drain(left..).map(|slot| slot | flag));
            }
            rng.shuffle(&mut found);
            let writes = (used.updates * found.len() as f64).round() as usize;
            found[..writes]
                .iter_mut()
                .for_each(|element| *element |= WRITE);
            chains[used.phase].append(&mut found);
        }
    }
    chains
}

/// The elements of each visit, in the order of a loop: a visit of each phase, and so on. A phase
/// with fewer elements than visits makes the loop have fewer of them.
fn in_visits(chains: &[Vec<Element>], visits: usize) -> Vec<&[Element]> {
    let shortest = chains.iter().map(Vec::len).min().unwrap_or(1);
    let visits = visits.clamp(1, shortest.max(1));
    let part = move |visit: usize, chain: &[Element]| {
        let end = |visit: usize| visit * chain.len() / visits;
        end(visit)..end(visit + 1)
    };
    let of_visit = |visit| chains.iter().map(move |chain| &chain[part(visit, chain)]);
    (0..visits).flat_map(of_visit).collect()
}

/// Why there is no path.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The plan can't be laid out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel has no memory for it.
    #[error("can't map memory for the lines: {0}; use fewer lines or sessions")]
    Memory(#[from] io::Error),
}

#[cfg(test)]
mod tests;
