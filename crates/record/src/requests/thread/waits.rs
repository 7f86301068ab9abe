//! The waits of a thread, of which only what it goes on with shows for whom they were.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Share, Shares, Slice};

use super::Thread;
use crate::requests::item::Segment;
use crate::requests::work::WorkId;

/// A thread that waits longer without work waits for some.
const LONG_WAIT_NS: u64 = 500_000;

/// A thread that data lets go on is woken so soon after that was ready.
const SOON_NS: u64 = 100_000;

/// Who is woken, finds nothing to do and waits again takes less.
const NOTHING_NS: u64 = 50_000;

/// The most waits, and times in between, of which a thread has yet to show for what they were.
const MOST_HELD: usize = 64;

/// Causes of the part of a wait before the wake-up.
const BEFORE_WAKING: [u32; 4] = [abi::TS_LOCK, abi::TS_IO, abi::TS_NETWORK, abi::TS_SLEEP];

/// A wait that goes on.
#[derive(Debug, Clone, Copy)]
pub(in crate::requests) struct Wait {
    pub(in crate::requests) since: u64,
    /// Why it waits: a cause.
    pub(in crate::requests) cause: u8,
    /// The futex; 0: none.
    pub(in crate::requests) futex: u64,
    /// In a call that sends.
    pub(in crate::requests) sends: bool,
    /// In a call that receives from one socket.
    pub(in crate::requests) receives: bool,
}

impl Wait {
    /// Whether it took long until the thread was woken. How long it then had no CPU says nothing.
    pub(in crate::requests) fn is_long(&self, woken: u64) -> bool {
        woken.saturating_sub(self.since) > LONG_WAIT_NS
    }

    /// Some kernels do not report every switch. `next` is the thread's next entry after a switch to it
    /// that was not reported, with the causes of the wait and of what followed: the entry that is
    /// missing, and `next` without the wait.
    pub(in crate::requests) fn unseen_end(&self, next: &Slice) -> (Slice, Slice) {
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

impl Thread {
    /// Data lets it go on.
    pub(in crate::requests) fn goes_on_with_data(&mut self, woken: u64) {
        self.woken_by_data = woken;
        self.since_data.clear();
    }

    /// It has waited since.
    pub(in crate::requests) fn waits_after_data(&mut self, wait: &Segment) {
        if self.woken_by_data != 0 && self.since_data.len() < MOST_HELD {
            self.since_data.extend(self.woke.clone());
            self.since_data
                .extend(self.run.iter().take(MOST_HELD).cloned());
            self.since_data.push(wait.clone());
        }
    }

    /// What it did up to its latest wait, since the data that was ready then let it go on; nothing if that
    /// did not, or if it has not waited.
    pub(in crate::requests) fn take_since_data(&mut self, ready: u64) -> Vec<Segment> {
        let woken = std::mem::take(&mut self.woken_by_data);
        match woken >= ready && woken - ready < SOON_NS {
            true => std::mem::take(&mut self.since_data),
            false => Vec::new(),
        }
    }

    /// It has waited, with this work in hand or with none that is known. `is_idle`: where it waits for
    /// something to do.
    pub(in crate::requests) fn hold(&mut self, work: Option<WorkId>, wait: Segment, is_idle: bool) {
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
    pub(in crate::requests) fn let_go(&mut self) {
        self.held = None;
        self.waits.clear();
        self.idle_waits = 0;
    }

    /// All of its waits, and what it did in between.
    pub(in crate::requests) fn take_waits(&mut self) -> Vec<Segment> {
        self.idle_waits = 0;
        self.held = None;
        std::mem::take(&mut self.waits)
    }

    /// The latest of them.
    pub(in crate::requests) fn latest_wait(&self) -> Option<&Segment> {
        self.waits.last()
    }

    /// Takes the same: what it did, since when it did nothing but wait, and the latest wait.
    pub(in crate::requests) fn take_latest_waits(
        &mut self,
    ) -> Option<(Vec<Segment>, u64, Segment)> {
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
    pub(in crate::requests) fn take_waits_at_work(&mut self) -> Vec<Segment> {
        let from = self.idle_waits.min(self.waits.len());
        let waits = self.waits.split_off(from);
        self.let_go();
        waits
    }

    /// Forgets its waits, of which nothing has shown for what they were.
    pub(in crate::requests) fn forget_waits(&mut self) {
        self.waits = Vec::new();
        self.since_data = Vec::new();
        self.let_go();
    }
}

/// The part of a wait after the wake-up: what the thread then waited for.
pub(in crate::requests) fn since_waking(wait: &Segment, woken: u64) -> Segment {
    let before = |share: &Share| BEFORE_WAKING.contains(&u32::from(share.cause));
    Segment {
        tid: wait.tid,
        from: woken.clamp(wait.from, wait.to),
        to: wait.to,
        shares: wait.shares.iter().copied().filter(|s| !before(s)).collect(),
    }
}
