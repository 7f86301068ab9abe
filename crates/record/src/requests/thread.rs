//! What a thread does at present, and for whom.

use std::collections::VecDeque;

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Share, Shares, Slice};

use super::item::Segment;
use super::work::{Handed, WorkId};

/// So many of its latest slices a thread remembers, to blame them for the queue behind it.
const RECENT: usize = 16;

/// A thread that waits longer without work waits for some.
const LONG_WAIT_NS: u64 = 500_000;

/// A shorter time without anything to do is not kept: who is woken by data needs some of it.
const LEAST_IDLE_NS: u64 = 1_000_000;

/// A thread that data lets go on is woken so soon after that was ready.
const SOON_NS: u64 = 100_000;

/// Who is woken, finds nothing to do and waits again takes less.
const NOTHING_NS: u64 = 50_000;

/// Programs round the time until their next timer up to this, if it is long.
const ROUNDED_NS: u64 = 1_000_000;
/// A busy loop looks at its timers at least this often. What it goes on with later has another reason.
const LOOKS_EVERY_NS: u64 = 5_000_000;

/// The most waits, and times in between, of which a thread has yet to show for what they were.
const MOST_HELD: usize = 64;

/// From this number of new futexes on, a thread counts as one that waits for something to do at ever new ones.
const CHANGES_ITS_PLACE: u8 = 3;

/// How many requests show whether a thread answers what it receives, and how many are counted.
const LEAST_COUNTED: u16 = 8;
const MOST_COUNTED: u16 = 256;

/// To more threads a work is not handed in one slice.
const MOST_HANDED_TO: u32 = 1 << 20;

/// The most parts of a slice that are kept: of a thread that never waits, the latest.
const MOST_RUN: usize = 4096;

/// A wait that goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) since: u64,
    /// Why it waits: a cause.
    pub(super) cause: u8,
    /// The futex; 0: none.
    pub(super) futex: u64,
    /// In a call that sends.
    pub(super) sends: bool,
    /// In a call that receives from one socket.
    pub(super) receives: bool,
}

/// When a timer runs out, as its thread has said.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: u64,
    /// By how much that may have been rounded up.
    rounded: u64,
}

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
    /// How many times it was a new one, less those in which it was not.
    idle_moves: u8,
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

/// Causes of the part of a wait before the wake-up.
const BEFORE_WAKING: [u32; 4] = [abi::TS_LOCK, abi::TS_IO, abi::TS_NETWORK, abi::TS_SLEEP];

/// Votes for when a thread works for a request, less those against it, from which on that is known,
const SURE_VOTES: i8 = 3;
/// and from which on more are not counted: it may change its ways.
const MOST_VOTES: i8 = 8;

/// A condition variable of glibc has two futexes, the halves of a word of this size
/// (`__g_signals` of `bits/thread-shared-types.h`). The mutex for it often lies right behind them.
const TWO_FUTEXES_BYTES: u64 = 8;

impl Thread {
    /// Whether it waits where it waits for something to do.
    pub(super) fn is_idle_at(&self, futex: u64) -> bool {
        self.idle_at != 0 && self.idle_at / TWO_FUTEXES_BYTES == futex / TWO_FUTEXES_BYTES
    }

    /// Whether it serves nobody and waits for something to do at ever new futexes, as with a new event for
    /// each piece of work.
    pub(super) fn changes_its_place(&self) -> bool {
        self.idle_votes == 0 && self.idle_moves >= CHANGES_ITS_PLACE && self.serves_nobody()
    }

    /// It has waited there without work.
    pub(super) fn vote_idle_at(&mut self, futex: u64) {
        if futex == 0 {
            return;
        }
        if self.is_idle_at(futex) {
            self.idle_votes = (self.idle_votes + 1).min(8);
            self.idle_moves = self.idle_moves.saturating_sub(1);
        } else if self.idle_votes == 0 {
            self.idle_at = futex;
            self.idle_moves = self.idle_moves.saturating_add(1);
        } else {
            self.idle_votes -= 1;
        }
    }

    /// Data lets it go on.
    pub(super) fn goes_on_with_data(&mut self, woken: u64) {
        self.woken_by_data = woken;
        self.since_data.clear();
    }

    /// It waits for sockets, and for at most that long; 0: without a limit that is known.
    pub(super) fn waits_at_most(&mut self, since: u64, most: u64) {
        let due = || Due {
            at: since.saturating_add(most),
            rounded: ROUNDED_NS.min(most / 4),
        };
        self.due = (most != 0).then(due);
    }

    /// It may go on with something else than its timers.
    pub(super) fn forget_timers(&mut self) {
        self.timer = None;
        self.due = None;
    }

    /// A timer that let it go on had a reason: the next one may follow soon.
    pub(super) fn goes_on_at_timer(&mut self, at: u64) {
        if self.timer.is_some() {
            self.rests_until = at + ROUNDED_NS;
        }
    }

    /// Whether a wait that a timer ended was not for that: `is_short`, and no rest of a longer one, which
    /// had ended too early because its time was rounded.
    pub(super) fn only_looks(&mut self, is_short: bool, woken: u64) -> bool {
        if !is_short {
            self.rests_until = woken + ROUNDED_NS;
        }
        is_short && (self.timer.is_none() || woken > self.rests_until)
    }

    /// Its wait for something to do has ended, by a timer at that moment if it was one.
    pub(super) fn end_wait(&mut self, timer: Option<u64>) {
        self.timer = timer;
        let is_this = |due: &mut Due| timer.is_some_and(|timer| due.at <= timer + due.rounded);
        self.due.take_if(is_this);
    }

    /// When a timer has let it go on with what it did so far: the end of its wait, or the moment when one
    /// had run out while it did something else.
    pub(super) fn take_timer(&mut self) -> Option<u64> {
        let begun = self.run.first().map_or(self.run_from, |run| run.from);
        let has_just_run_out = |due: &mut Due| {
            due.at <= begun + due.rounded && begun <= due.at.saturating_add(LOOKS_EVERY_NS)
        };
        let due = self.due.take_if(has_just_run_out);
        due.map(|due| due.at.min(begun)).or(self.timer)
    }

    /// Whether one has run out, as it had said when it waited.
    pub(super) fn has_timer_at(&self, now: u64) -> bool {
        self.timer.is_some() || self.due.is_some_and(|due| due.at <= now + due.rounded)
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

    /// It has waited since.
    pub(super) fn waits_after_data(&mut self, wait: &Segment) {
        if self.woken_by_data != 0 && self.since_data.len() < MOST_HELD {
            self.since_data.extend(self.woke.clone());
            self.since_data
                .extend(self.run.iter().take(MOST_HELD).cloned());
            self.since_data.push(wait.clone());
        }
    }

    /// What it did up to its latest wait, since the data that was ready then let it go on; nothing if that
    /// did not, or if it has not waited.
    pub(super) fn take_since_data(&mut self, ready: u64) -> Vec<Segment> {
        let woken = std::mem::take(&mut self.woken_by_data);
        match woken >= ready && woken - ready < SOON_NS {
            true => std::mem::take(&mut self.since_data),
            false => Vec::new(),
        }
    }

    /// It has waited, with this work in hand or with none that is known. `is_idle`: where it waits for
    /// something to do.
    pub(super) fn hold(&mut self, work: Option<WorkId>, wait: Segment, is_idle: bool) {
        self.passed_on &= !is_idle;
        if (work.is_some() && work != self.held) || (work.is_none() && is_idle) {
            self.let_go();
        }
        self.held = work;
        if work.is_some() || !is_idle {
            if self.waits.len() >= MOST_HELD {
                let oldest = self.waits.len() / 2;
                self.waits.drain(..oldest);
                self.idle_waits = self.idle_waits.saturating_sub(oldest);
            }
            let surplus = self.run.len().saturating_sub(MOST_HELD);
            self.waits.extend(self.run.drain(..).skip(surplus));
            self.waits.push(wait);
            if is_idle {
                self.idle_waits = self.waits.len();
            }
        }
    }

    /// Its waits so far were not for what it goes on with.
    pub(super) fn let_go(&mut self) {
        self.held = None;
        self.waits.clear();
        self.idle_waits = 0;
    }

    /// All of its waits, and what it did in between.
    pub(super) fn take_waits(&mut self) -> Vec<Segment> {
        self.idle_waits = 0;
        self.held = None;
        std::mem::take(&mut self.waits)
    }

    /// The latest of them.
    pub(super) fn latest_wait(&self) -> Option<&Segment> {
        self.waits.last()
    }

    /// Takes the same: what it did, since when it did nothing but wait, and the latest wait.
    pub(super) fn take_latest_waits(&mut self) -> Option<(Vec<Segment>, u64, Segment)> {
        let latest = self.waits.pop()?;
        let did = |part: &Segment| !part.is_for_lock() && part.to - part.from >= NOTHING_NS;
        let from = self.waits.iter().rposition(did).map_or(0, |last| last + 1);
        let waits = self.waits.split_off(from);
        let since = waits.first().unwrap_or(&latest).from;
        let mut did = self.take_waits();
        did.extend(waits.into_iter().filter(|part| !part.is_for_lock()));
        Some((did, since, latest))
    }

    /// The same since it waited for something to do.
    pub(super) fn take_waits_at_work(&mut self) -> Vec<Segment> {
        let from = self.idle_waits.min(self.waits.len());
        let waits = self.waits.split_off(from);
        self.let_go();
        waits
    }

    /// It has worked for long between two receives, for the first.
    pub(super) fn has_worked_at_receive(&mut self) {
        self.works_at_receive = (self.works_at_receive + 1).min(MOST_VOTES);
    }

    /// It has worked for long for a request that it had received before it answered another.
    pub(super) fn has_worked_later(&mut self) {
        self.works_at_receive = (self.works_at_receive - 2).max(-MOST_VOTES);
    }

    /// Whether it does what a request asks for where it receives it, and not later; `None`: not known.
    pub(super) fn works_at_receive(&self) -> Option<bool> {
        let is_sure = self.works_at_receive.abs() >= SURE_VOTES;
        is_sure.then_some(self.works_at_receive > 0)
    }

    /// It has received a request.
    pub(super) fn count_received(&mut self) {
        if self.received >= MOST_COUNTED {
            self.received /= 2;
            self.answered /= 2;
        }
        self.received += 1;
    }

    /// Whether it leaves its requests to other threads.
    pub(super) fn only_receives(&self) -> bool {
        self.received >= LEAST_COUNTED && self.answered <= self.received / 16
    }

    /// Whether it has received requests.
    pub(super) fn receives_requests(&self) -> bool {
        self.received > 0
    }

    /// Whether it neither receives nor answers requests.
    pub(super) fn serves_nobody(&self) -> bool {
        self.received == 0 && self.answered == 0
    }

    /// It hands the work of its slice to another thread. `by_waking`: that may find nothing to do.
    pub(super) fn hand_over(&mut self, by_waking: bool) {
        if !self.handed {
            self.handed_to = 0;
            self.handed_from = self.run_from;
        }
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
        self.number == 0 || slice.number == self.number.wrapping_add(1)
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

    /// Forgets its waits, of which nothing has shown for what they were.
    pub(super) fn forget_waits(&mut self) {
        self.waits = Vec::new();
        self.since_data = Vec::new();
        self.let_go();
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

impl Wait {
    /// Whether it took long until the thread was woken. How long it then had no CPU says nothing.
    pub(super) fn is_long(&self, woken: u64) -> bool {
        woken.saturating_sub(self.since) > LONG_WAIT_NS
    }

    /// Some kernels do not report every switch. `next` is the thread's next entry after a switch to it
    /// that was not reported, with the causes of the wait and of what followed: the entry that is
    /// missing, and `next` without the wait.
    pub(super) fn unseen_end(&self, next: &Slice) -> (Slice, Slice) {
        let for_cpu = |share: &&Share| {
            [abi::TS_RUNQUEUE, abi::TS_THROTTLED].contains(&u32::from(share.cause))
        };
        let sleeps = [abi::TS_LOCK as u8, abi::TS_SLEEP as u8];
        let is_it = |cause| cause == self.cause || (self.cause == sleeps[0] && cause == sleeps[1]);
        let blocked = next.shares.iter().find(|share| is_it(share.cause));
        let waits = next.shares.iter().filter(for_cpu);
        let shares: Shares = blocked.into_iter().chain(waits).copied().collect();
        let woken = blocked.map_or(0, |share| self.since + share.ns);
        let waited: u64 = shares.iter().map(|share| share.ns).sum();
        let mut rest = next.clone();
        rest.shares.retain(|share| !shares.contains(share));
        let run = Slice {
            at: (self.since + waited).min(next.at),
            since: woken.min(next.at),
            length: 0,
            act: Act::Run(self.cause),
            shares,
            ..next.clone()
        };
        (run, rest)
    }
}

/// The part of a wait after the wake-up: what the thread then waited for.
pub(super) fn since_waking(wait: &Segment, woken: u64) -> Segment {
    let before = |share: &Share| BEFORE_WAKING.contains(&u32::from(share.cause));
    Segment {
        tid: wait.tid,
        from: woken.clamp(wait.from, wait.to),
        to: wait.to,
        shares: wait.shares.iter().copied().filter(|s| !before(s)).collect(),
    }
}
