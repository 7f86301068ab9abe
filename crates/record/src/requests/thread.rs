//! What a thread does at present, and for whom.

mod habits;
mod timers;
mod waits;

use std::collections::VecDeque;

use tailscope_signals::slice::Slice;

use super::item::Segment;
use super::work::WorkId;
use super::works::Handed;
use timers::Due;
pub(super) use waits::{Wait, since_waking};

/// So many of its latest slices a thread remembers, to blame them for the queue behind it.
const RECENT: usize = 16;

/// A shorter time without anything to do is not kept: who is woken by data needs some of it.
const LEAST_IDLE_NS: u64 = 1_000_000;

/// To more threads a work is not handed in one slice.
const MOST_HANDED_TO: u32 = 1 << 20;

/// The most parts of a slice that are kept: of a thread that never waits, the latest.
const MOST_RUN: usize = 4096;

/// A time in which a thread waited for data of any connection, with nothing in hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    pub(super) from: u64,
    pub(super) to: u64,
    /// A timer ended it.
    pub(super) by_timer: bool,
}

/// A thread of a watched process.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// When its latest entry was written, and which.
    pub(super) last: u64,
    pub(super) number: u32,
    /// For whom its slice is.
    pub(super) owner: Option<WorkId>,
    /// The slice so far.
    pub(super) run: Vec<Segment>,
    pub(super) run_from: u64,
    /// Since when it is busy: its latest wait for something to do ended.
    pub(super) busy_since: u64,
    /// Its slice follows the end of this work, without a wait in between.
    pub(super) after: Option<WorkId>,
    /// It has passed on what it did for some work since it waited for something to do.
    pub(super) passed_on: bool,
    /// It has handed the work of its slice to another thread.
    pub(super) handed: bool,
    /// Since when.
    pub(super) handed_from: u64,
    /// How many threads it handed that to, less those that turned out to do something else.
    handed_to: u32,
    /// Work that it received and has not gone on with, oldest first, and since when.
    pub(super) pending: VecDeque<(WorkId, u64)>,
    /// What it handed to a thread that it woke, since it waited last: it may go on with it all the same.
    pub(super) handed_on: Vec<WorkId>,
    /// Its present wait.
    pub(super) blocked: Option<Wait>,
    /// The futex at which it waits for something to do.
    pub(super) idle_at: u64,
    /// How sure that is.
    idle_votes: u8,
    /// It has done that at a condition variable beside that one, too.
    is_idle_beside: bool,
    /// How many times it was a new one, less those in which it was not.
    idle_moves: u8,
    /// Only to threads that it made: they may be for something else.
    pub(super) has_only_made: bool,
    /// It was made for its work, and may end with it.
    pub(super) is_made_for_it: bool,
    /// Another thread handed it its work, and nothing has shown yet that it goes on with it.
    pub(super) unproven: bool,
    /// A timer ended its latest wait for something to do, at that moment, and nothing has come in since.
    pub(super) timer: Option<u64>,
    /// Up to then, short waits may be the rest of a longer one that a timer ended.
    rests_until: u64,
    /// A timer let the thread go on that woke it with nothing in hand, at that moment: whatever it goes on
    /// with may have waited for a timer.
    pub(super) timer_of_waker: Option<u64>,
    /// When the next of its timers runs out, as it said when it waited for sockets last.
    due: Option<Due>,
    /// What it was handed while it waited.
    pub(super) given: Option<Handed>,
    /// What it had in hand when it waited; `None`: nothing that is known.
    pub(super) held: Option<WorkId>,
    /// Those waits with what it did in between. Only what it goes on with shows for what they were.
    waits: Vec<Segment>,
    /// How many of them end with the latest in which it waited for something to do.
    idle_waits: usize,
    /// How many requests it has received and answered, lately.
    received: u16,
    pub(super) answered: u16,
    /// For which work it received another server's answer last, since it waited, asked or answered.
    pub(super) result: Option<WorkId>,
    /// The request that it received last, if it received nothing else since; and how many times it received,
    /// both since it waited,
    pub(super) turn: Option<WorkId>,
    receives: u32,
    /// and whether it has sent where all was answered since then.
    pub(super) pushed: bool,
    /// The request that it received last.
    pub(super) received_last: Option<WorkId>,
    /// Whether it does what a request asks for where it receives it (above 0), or later.
    works_at_receive: i8,
    /// It has received a request before the one before had an answer.
    pub(super) serves_several: bool,
    /// The end of its latest wait for a socket: from its wake-up to the CPU.
    pub(super) woke: Option<Segment>,
    /// When data let it go on last; 0: it has received since, or that is not known.
    pub(super) woken_by_data: u64,
    /// What it did since, up to its latest wait: it may be for what it receives.
    since_data: Vec<Segment>,
    /// The latest time for which a signal, a tracer or the freezer stopped it.
    pub(super) stopped: Option<Segment>,
    /// The latest times in which it had nothing to do.
    idle: VecDeque<Idle>,
    /// Its latest slices.
    recent: VecDeque<(WorkId, u64, u64)>,
}

impl Thread {
    /// One that was made at that moment, by a thread that handed it this work.
    pub(super) fn made_for(work: Option<WorkId>, at: u64) -> Self {
        Self {
            last: at,
            run_from: at,
            owner: work,
            is_made_for_it: work.is_some(),
            unproven: work.is_some(),
            ..Self::default()
        }
    }

    /// It has received this since it waited. `turn`: it is a request.
    pub(super) fn note_receive(&mut self, turn: Option<WorkId>) {
        let is_more = turn.is_some() && turn == self.turn; // of the same request
        self.turn = turn;
        self.receives = self.receives.saturating_add(u32::from(!is_more));
        self.pushed = false;
    }

    /// It waits.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
        self.receives = 0;
        self.pushed = false;
    }

    /// Whether it has received one request since it waited, and nothing else.
    pub(super) fn has_received_only_one(&self) -> bool {
        self.turn.is_some() && self.receives == 1
    }

    /// It hands the work of its slice to another thread. `by_waking`: that may find nothing to do.
    pub(super) fn hand_over(&mut self, by_waking: bool) {
        if !self.handed {
            self.handed_to = 0;
            self.handed_from = self.run_from;
        }
        self.has_only_made = false;
        self.handed_to += if by_waking { 1 } else { MOST_HANDED_TO };
        self.handed_to = self.handed_to.min(2 * MOST_HANDED_TO);
        self.handed = true;
    }

    /// One that it woke has found nothing to do.
    pub(super) fn take_back(&mut self) {
        self.handed_to = self.handed_to.saturating_sub(1);
        self.handed &= self.handed_to > 0;
    }

    /// Whether this entry follows its latest one: none was lost in between.
    pub(super) fn follows(&self, slice: &Slice) -> bool {
        let is_first = self.number == 0 && !self.is_new();
        is_first || slice.number == self.number.wrapping_add(1)
    }

    /// Whether it was made, and has no entry yet.
    pub(super) fn is_new(&self) -> bool {
        self.number == 0 && self.last != 0
    }

    /// The time since its entry before, up to this one.
    pub(super) fn segment(&self, slice: &Slice) -> Segment {
        let from = if self.last == 0 { slice.at } else { self.last };
        Segment {
            tid: slice.tid,
            from: from.min(slice.at),
            to: slice.at,
            shares: slice.shares.clone(),
        }
    }

    /// Its slice goes on.
    pub(super) fn add(&mut self, segment: Segment) {
        if self.run.len() >= MOST_RUN {
            self.forget_earlier();
        }
        self.run.push(segment);
    }

    /// How many times of it are kept.
    pub(super) fn parts(&self) -> usize {
        self.run.len() + self.waits.len() + self.since_data.len()
    }

    /// Forgets the earlier half of its slice.
    pub(super) fn forget_earlier(&mut self) {
        self.run.drain(..self.run.len().div_ceil(2));
        self.run.shrink_to_fit();
    }

    /// Nothing is known of it any more but what it did lately.
    pub(super) fn forget(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let stopped = self.stopped.take();
        *self = Self {
            recent,
            stopped,
            ..Self::default()
        };
    }

    /// Takes the slice so far.
    pub(super) fn take_run(&mut self, at: u64) -> Vec<Segment> {
        self.run_from = at;
        std::mem::take(&mut self.run)
    }

    /// How long the slice so far is.
    pub(super) fn run_ns(&self) -> u64 {
        self.run.iter().map(|s| s.to - s.from).sum()
    }

    /// How long of that it had a CPU.
    pub(super) fn ran_ns(&self) -> u64 {
        let ran = |s: &Segment| {
            let else_ns: u64 = s.shares.iter().map(|share| share.ns).sum();
            (s.to - s.from).saturating_sub(else_ns)
        };
        self.run.iter().map(ran).sum()
    }

    /// It had nothing to do in that time.
    pub(super) fn was_idle(&mut self, idle: Idle) {
        if idle.to.saturating_sub(idle.from) < LEAST_IDLE_NS {
            return;
        }
        if self.idle.len() >= RECENT {
            self.idle.pop_front();
        }
        self.idle.push_back(idle);
    }

    /// When it had nothing to do in that time, for long; oldest first.
    pub(super) fn idle_in(&self, from: u64, to: u64) -> Vec<Idle> {
        let within = self.idle.iter().map(|idle| Idle {
            from: idle.from.max(from),
            to: idle.to.min(to),
            ..*idle
        });
        let long = |idle: &Idle| idle.to.saturating_sub(idle.from) >= LEAST_IDLE_NS;
        within.filter(long).collect()
    }

    /// Remembers for whom it worked.
    pub(super) fn remember(&mut self, work: WorkId, from: u64, to: u64) {
        if from >= to {
            return;
        }
        match self.recent.back_mut() {
            Some((of, _, until)) if *of == work && *until == from => *until = to,
            _ => self.recent.push_back((work, from, to)),
        }
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// For whom it worked last, and from when until when.
    pub(super) fn latest(&self) -> Option<(WorkId, u64, u64)> {
        self.recent.back().copied()
    }

    /// For whom it worked most of that time, but for `but`.
    pub(super) fn busiest(&self, from: u64, to: u64, but: WorkId) -> Option<WorkId> {
        let overlap = |a: u64, b: u64| b.min(to).saturating_sub(a.max(from));
        let others = self.recent.iter().filter(|(work, ..)| *work != but);
        let most = others.max_by_key(|(_, a, b)| overlap(*a, *b))?;
        (overlap(most.1, most.2) * 2 > to.saturating_sub(from)).then_some(most.0)
    }
}
