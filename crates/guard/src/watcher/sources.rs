//! Hazards that publishers report: of replicas on other machines, or that are not seen here.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Change, Kind};

use super::{Seat, Work};
use crate::board::{Board, Coverage, Hold};
use crate::remote::Source;
use crate::target::Target;

/// How long the start waits for the first reports.
const FIRST: Duration = Duration::from_millis(500);

impl Work {
    /// Asks the sources for the replicas that are watched now.
    pub(super) fn subscribe(&mut self) {
        for source in &mut self.sources {
            let replicas = self.seats.iter().filter_map(|seat| match seat.target {
                Target::Address(address) => Some((seat.slot, address)),
                Target::Process(_) => None,
            });
            source.want(replicas);
        }
    }

    /// Returns when all sources have reported, or after a while.
    pub(super) fn wait_for_sources(&mut self) {
        let until = Instant::now() + FIRST;
        loop {
            self.ask_sources(&mut |_, _| {});
            let waits = self.sources.iter().any(|source| !source.has_answered());
            if !waits || Instant::now() >= until {
                return;
            }
            let sockets = self.sources.iter().map(Source::socket);
            let mut polled: Vec<_> = sockets.map(|s| PollFd::new(s, PollFlags::IN)).collect();
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            // Interrupted by a signal, it looks earlier.
            let _ = poll(&mut polled, Some(&pause));
        }
    }

    /// The sources that have not reported.
    pub(super) fn silent_sources(&self) -> Vec<SocketAddr> {
        let silent = self.sources.iter().filter(|source| !source.has_answered());
        silent.map(Source::address).collect()
    }

    /// Reads what was reported, and takes it over.
    pub(super) fn ask_sources(&mut self, each: &mut dyn FnMut(&Board, Change)) {
        if self.sources.is_empty() {
            return;
        }
        let now = Instant::now();
        for source in &mut self.sources {
            source.receive(now);
            source.renew(now);
        }
        let mut seats = std::mem::take(&mut self.seats);
        for seat in &mut seats {
            self.take_over(seat, now, each);
        }
        self.seats = seats;
    }

    /// How much a source knows of this replica.
    pub(super) fn remote_coverage(&self, seat: &Seat) -> Coverage {
        let state = seat
            .remote
            .and_then(|at| self.sources[at].state(seat.slot, Instant::now()));
        state.map_or(Coverage::None, |state| state.coverage)
    }

    /// The source that knows most of this replica, if it knows more than is seen here.
    fn best(&self, seat: &Seat, now: Instant) -> Option<usize> {
        if seat.coverage.has_events() {
            return None; // the kernel's programs write the word
        }
        let coverage = |at: &usize| {
            let state = self.sources[*at].state(seat.slot, now);
            state.map_or(Coverage::None, |state| state.coverage)
        };
        let best = (0..self.sources.len()).max_by_key(coverage)?;
        (coverage(&best) > seat.coverage).then_some(best)
    }

    fn take_over(&self, seat: &mut Seat, now: Instant, each: &mut dyn FnMut(&Board, Change)) {
        let (slot, board) = (seat.slot as usize, &self.board);
        let best = self.best(seat, now);
        if best != seat.remote {
            board.set_source(slot, best.map(|at| self.sources[at].address()));
        }
        let Some((at, state)) = best.and_then(|at| {
            let state = self.sources[at].state(seat.slot, now)?;
            Some((at, *state))
        }) else {
            if seat.remote.take().is_some() {
                // Silent, or seen here: what it said no longer counts.
                for kind in Kind::ALL {
                    board.words().word(seat.slot).end(kind);
                }
                board.set(slot, seat.pids.clone(), seat.coverage);
                board.wake(slot);
            }
            return;
        };
        let before = seat.remote.replace(at);
        let life = seat.life.replace(state.incarnation);
        if life.is_some_and(|life| life != state.incarnation) {
            // First, so that no request gets between.
            board.hold(slot, Hold::Warms, true);
        }
        board
            .words()
            .word(seat.slot)
            .set_incarnation(state.incarnation);
        if before.is_none() || board.coverage(slot) != state.coverage {
            board.set(slot, seat.pids.clone(), state.coverage);
            board.wake(slot);
        }
        let clock = Monotonic::now();
        for (kind, age) in Kind::ALL.into_iter().zip(state.hazards) {
            let since = age.map(|us| Monotonic(clock.0.saturating_sub(u64::from(us) * 1000)));
            self.polled((seat.slot, 0), kind, since, clock, each);
        }
    }
}
