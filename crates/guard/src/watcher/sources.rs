//! Hazards that publishers report: of replicas on other machines, or that are not seen here.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Change, Kind};

use super::{Seat, Work};
use crate::board::{Board, Coverage, Hold};
use crate::remote::{SILENCE, Source};
use crate::target::Target;

/// How long the start, or a reload, waits for the first reports.
const FIRST: Duration = Duration::from_millis(500);
/// A hazard that began this much later than the known one is another one. It is more than reports take.
const ANOTHER_NS: u64 = 100_000_000;

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
    pub(super) fn wait_for_sources(&mut self, each: &mut dyn FnMut(&Board, Change)) {
        let until = Instant::now() + FIRST;
        loop {
            self.ask_sources(each);
            self.take(each);
            self.look(each);
            // One that was silent before keeps nobody waiting.
            let waits = |source: &Source| source.is_worth_waiting() && !source.has_answered();
            if !self.sources.iter().any(waits) || Instant::now() >= until {
                return;
            }
            let sockets = self.sources.iter().filter_map(Source::socket);
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
        // After a long pause of this process, what has come is old.
        let is_late =
            now.saturating_duration_since(std::mem::replace(&mut self.read, now)) > SILENCE;
        for source in &mut self.sources {
            source.receive(now, is_late);
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

    /// The source that knows this replica, if it knows more than is seen here. Addresses of containers
    /// may exist on several machines: so one at the replica's own address is preferred, then one here.
    fn best(&self, seat: &Seat, now: Instant) -> Option<usize> {
        if seat.coverage.has_events() {
            return None; // the kernel's programs write the word
        }
        let Target::Address(replica) = seat.target else {
            return None;
        };
        let known = self.sources.iter().enumerate().filter_map(|(at, source)| {
            let coverage = source.state(seat.slot, now)?.coverage;
            let near = source.nearness(replica);
            (coverage > seat.coverage).then_some((near, coverage, Reverse(at)))
        });
        known.max().map(|(.., Reverse(at))| at)
    }

    /// What a source has said of this replica no longer counts.
    pub(super) fn release(&self, seat: &mut Seat) {
        let slot = seat.slot as usize;
        seat.remote = None;
        for kind in Kind::ALL {
            self.board.word(slot).end(kind);
        }
        self.board.set_source(slot, None);
        self.board.set(slot, seat.pids.clone(), seat.coverage);
        self.board.wake(slot);
    }

    fn take_over(&self, seat: &mut Seat, now: Instant, each: &mut dyn FnMut(&Board, Change)) {
        let (slot, board) = (seat.slot as usize, &self.board);
        let best = self.best(seat, now);
        let Some((at, state)) = best.and_then(|at| {
            let state = self.sources[at].state(seat.slot, now)?;
            Some((at, *state))
        }) else {
            if seat.remote.is_some() {
                self.release(seat);
            }
            return;
        };
        let before = seat.remote.replace(at);
        if before.is_none() {
            board.set_word(slot, seat.slot); // what was watched here has ended
        }
        // Another publisher counts incarnations anew.
        if state.life != 0
            && seat
                .life
                .replace(state.life)
                .is_some_and(|life| life != state.life)
        {
            // First, so that no request gets between.
            board.hold(slot, Hold::Warms, true);
        }
        board.word(slot).set_incarnation(state.incarnation);
        if before != Some(at) || board.coverage(slot) != state.coverage {
            board.set_source(slot, Some(self.sources[at].address()));
            board.set(slot, seat.pids.clone(), state.coverage);
            board.wake(slot);
        }
        let clock = Monotonic::now();
        for (kind, age) in Kind::ALL.into_iter().zip(state.hazards) {
            let since = age.map(|us| Monotonic(clock.0.saturating_sub(u64::from(us) * 1000)));
            // It may have ended and begun again between two reports.
            if since.is_some_and(|since| since.0 > board.word(slot).since(kind).0 + ANOTHER_NS) {
                self.polled((seat.slot, 0), kind, None, clock, each);
            }
            self.polled((seat.slot, 0), kind, since, clock, each);
        }
    }
}
