//! Which processes were watched: those that were when the window was written, and those that had ended by
//! then, as a server that was restarted.

use std::collections::{HashMap, HashSet};

use tailscope_signals::event::{Event, What};

use crate::trace::Trace;

/// Finds them in a trace's events.
#[derive(Debug, Default)]
pub struct Watched {
    processes: HashSet<u32>,
    /// Threads that did what is told of watched processes alone.
    threads: HashSet<u32>,
    /// Threads' processes, as switches have them.
    members: HashMap<u32, u32>,
}

impl Watched {
    /// Begins with those that the trace knows.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        Self {
            processes: trace.about.watched.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match event.what {
            What::Switch { process, .. } if !self.members.contains_key(&event.tid) => {
                self.members.insert(event.tid, process);
            }
            What::SyscallIn { .. }
            | What::Receive { .. }
            | What::Send { .. }
            | What::Jvm { .. } => {
                self.threads.insert(event.tid);
            }
            _ => {}
        }
    }

    /// All that were watched.
    #[must_use]
    pub fn processes(self) -> HashSet<u32> {
        let mut all = self.processes;
        let of = |tid: &u32| self.members.get(tid);
        all.extend(
            self.threads
                .iter()
                .filter_map(of)
                .filter(|process| **process != 0),
        );
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_was_watched_if_what_it_did_was_told() {
        let mut watched = Watched::default();
        let leaves = |process| What::Switch {
            process,
            state: 1,
            preempted: false,
            real_time: false,
            to: 0,
            to_process: 0,
        };
        let call = What::SyscallIn {
            number: 0,
            argument: 0,
        };
        for (tid, what) in [
            (0, leaves(0)),
            (71, leaves(70)),
            (71, call),
            (72, call), // of which no switch is told
            (90, leaves(90)),
        ] {
            watched.take(&Event { at: 1, tid, what });
        }
        assert_eq!(watched.processes(), HashSet::from([70]));
    }
}
