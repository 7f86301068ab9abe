//! Hazards that no event announces.

use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Change, Kind};

use super::Work;
use super::search::state_of;
use crate::board::Board;

impl Work {
    /// Looks for what no event announces: a wait for a CPU that has become too long, and without
    /// the kernel's programs everything.
    pub(super) fn look(&mut self, each: &mut dyn FnMut(&Board, Change)) {
        let now = Monotonic::now();
        if self.hazards.is_none() {
            self.poll_processes(now, each);
        }
        self.poll_collectors(now, each);
        for seat in &mut self.seats {
            // Requests that wait there are woken, if it has become silent.
            let _ = self.board.is_silent(seat.slot as usize, now);
            let active = self.board.active(seat.slot as usize, now);
            if active != seat.before {
                seat.before = active;
                self.board.wake(seat.slot as usize);
            }
        }
    }

    fn poll_processes(&self, now: Monotonic, each: &mut dyn FnMut(&Board, Change)) {
        for seat in self.seats.iter().filter(|seat| seat.remote.is_none()) {
            let Some(first) = seat.pids.first().copied() else {
                continue;
            };
            let states: Vec<Option<u8>> = seat.pids.iter().map(|pid| state_of(*pid)).collect();
            let is_stopped = states
                .iter()
                .any(|state| matches!(state, Some(b'T' | b't')));
            let is_gone = states
                .iter()
                .all(|state| matches!(state, None | Some(b'Z' | b'X')));
            for (kind, holds) in [(Kind::Stopped, is_stopped), (Kind::Gone, is_gone)] {
                let since = holds.then_some(now);
                self.polled((seat.slot, first), kind, since, now, each);
            }
        }
    }

    fn poll_collectors(&self, now: Monotonic, each: &mut dyn FnMut(&Board, Change)) {
        for seat in self.seats.iter().filter(|seat| seat.remote.is_none()) {
            let pids = seat.pids.iter();
            let mut all = pids
                .filter_map(|pid| Some((*pid, self.collectors.get(pid)?)))
                .peekable();
            let Some((first, _)) = all.peek().copied() else {
                continue;
            };
            let holds = all.any(|(_, collectors)| collectors.are_collecting());
            let since = holds.then_some(now);
            self.polled((seat.slot, first), Kind::Collection, since, now, each);
        }
    }

    /// Takes over what was polled or reported, and hands it on if it has changed. `holds`: since when
    /// it does.
    pub(super) fn polled(
        &self,
        (slot, pid): (u32, u32),
        kind: Kind,
        holds: Option<Monotonic>,
        now: Monotonic,
        each: &mut dyn FnMut(&Board, Change),
    ) {
        let word = self.board.word(slot as usize);
        let since = holds.unwrap_or_else(|| word.since(kind));
        let changes = match holds {
            Some(since) => word.begin(kind, since),
            None => word.end(kind),
        };
        if changes {
            let change = Change {
                at: now,
                since,
                slot,
                pid,
                kind,
                ends: holds.is_none(),
            };
            self.board.changed(change);
            each(&self.board, change);
        }
    }
}
