//! When threads loaded and initialised classes, from the JVM's own probes.
//!
//! An initialisation has a begin and an end: its own code, and all that this loads, or the wait for
//! another thread that is at the same class. A load is told at its end alone.

use std::collections::{HashMap, HashSet};

use tailscope_signals::event::{Event, Jvm, What};

/// Initialisations that may be open on a thread: more are lost ends.
const DEEPEST: usize = 256;

/// What one thread did for classes, in the order of the ends.
#[derive(Debug, Default)]
struct Work {
    loaded: Vec<u64>,
    open: Vec<u64>,
    initialized: Vec<(u64, u64)>,
}

/// Makes stretches of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Classes {
    threads: HashMap<u32, Work>,
    processes: HashMap<u32, HashSet<u32>>,
}

impl Classes {
    /// Takes the next event, of a thread of this process; `kept`: somebody may ask for what is now.
    pub fn take(&mut self, event: &Event, kept: bool, process: Option<u32>) {
        let What::Jvm { what, begins, .. } = event.what else {
            return;
        };
        if !matches!(what, Jvm::Class | Jvm::Initialization) {
            return;
        }
        let work = self.threads.entry(event.tid).or_default();
        match (what, begins) {
            (Jvm::Class, _) if kept => work.loaded.push(event.at),
            (Jvm::Initialization, true) => {
                if work.open.len() == DEEPEST {
                    work.open.clear();
                }
                work.open.push(event.at);
            }
            (Jvm::Initialization, false) => {
                if let Some(begin) = work.open.pop().filter(|_| kept) {
                    work.initialized.push((begin, event.at));
                }
            }
            _ => {}
        }
        if let Some(process) = process {
            self.processes.entry(process).or_default().insert(event.tid);
        }
    }

    /// When a thread had loaded classes, within `from..to`.
    #[must_use]
    pub fn loaded(&self, tid: u32, from: u64, to: u64) -> &[u64] {
        let all = self.threads.get(&tid).map_or(&[][..], |work| &work.loaded);
        let first = all.partition_point(|at| *at < from);
        let after = all.partition_point(|at| *at < to);
        &all[first..after.max(first)]
    }

    /// The initialisations of a thread that began and ended within `from..to`: one that was under way before,
    /// as a program's that runs in its main class's initialiser, is not what this time went to.
    pub fn initialized(
        &self,
        tid: u32,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.threads.get(&tid);
        let all = all.map_or(&[][..], |work| &work.initialized);
        let first = all.partition_point(|(_, end)| *end < from);
        all[first..]
            .iter()
            .take_while(move |(_, end)| *end <= to)
            .filter(move |(begin, _)| *begin >= from)
            .copied()
    }

    /// How many classes a process loaded and initialised within `from..to`.
    #[must_use]
    pub fn counts(&self, process: u32, from: u64, to: u64) -> (usize, usize) {
        let threads = self.processes.get(&process).into_iter().flatten();
        threads.fold((0, 0), |(loaded, initialized), &tid| {
            (
                loaded + self.loaded(tid, from, to).len(),
                initialized + self.initialized(tid, from, to).count(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initialisation_belongs_to_the_time_in_which_it_began_and_ended() {
        let mut classes = Classes::default();
        let jvm = |what, begins| What::Jvm {
            what,
            begins,
            name: [0; 12],
            more: false,
        };
        for (at, tid, what) in [
            (10, 5, jvm(Jvm::Initialization, true)), // the main class's, which goes on
            (20, 5, jvm(Jvm::Initialization, true)),
            (25, 6, jvm(Jvm::Initialization, false)), // without a begin: nothing
            (30, 5, jvm(Jvm::Initialization, true)),
            (35, 5, jvm(Jvm::Class, false)),
            (40, 5, jvm(Jvm::Initialization, false)),
            (50, 5, jvm(Jvm::Initialization, false)),
            (90, 5, jvm(Jvm::Initialization, false)),
        ] {
            classes.take(&Event { at, tid, what }, true, Some(4));
        }
        let of = |from, to| classes.initialized(5, from, to).collect::<Vec<_>>();
        assert_eq!(of(15, 60), [(30, 40), (20, 50)]);
        assert_eq!(of(25, 60), [(30, 40)]);
        assert_eq!(of(15, 45), [(30, 40)]);
        assert_eq!(classes.counts(4, 15, 60), (1, 2));
        assert_eq!(classes.counts(9, 15, 60), (0, 0));
        assert_eq!(classes.loaded(5, 35, 36), [35]);
        assert!(classes.loaded(6, 0, 100).is_empty());
    }
}
