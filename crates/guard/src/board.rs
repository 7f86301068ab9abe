//! What is known of all replicas: their hazard words, and who is woken when one changes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Active, Change, Kind, Word, Words};
use tokio::sync::watch;

use crate::silence::Signs;

/// How much is known of a replica; each knows at least as much as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Nothing: it is on another machine that does not report, or its processes were not found.
    None,
    /// `/proc` says whether it is stopped or gone, some ms later.
    Polled,
    /// The same, and HotSpot's counters say up to a ms late whether it collects.
    PolledHsperf,
    /// The kernel's programs report stops, quotas, waits for a CPU, and its end.
    Kernel,
    /// The same, and HotSpot's counters.
    KernelHsperf,
    /// Also the JVM's own probes: collections and safepoints.
    Jvm,
}

impl Coverage {
    /// Whether hazards come at once, so that no percentile is needed.
    #[must_use]
    pub fn has_events(self) -> bool {
        matches!(self, Self::Kernel | Self::KernelHsperf | Self::Jvm)
    }
}

/// How long a hazard of a kind is expected to last before any was seen.
fn first_guess_ns(kind: Kind) -> u64 {
    match kind {
        Kind::Safepoint => 1_000_000,
        Kind::Collection | Kind::Runqueue => 10_000_000,
        Kind::Throttled => 100_000_000,
        Kind::Stopped => 3_600_000_000_000,
        Kind::Gone => 36_000_000_000_000,
    }
}

/// Why a replica gets no requests although it could answer some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is to collect while it has none.
    Drains = 1,
    /// It has started again, and gets copies at first.
    Warms = 2,
    /// It was asked to collect, and may begin at any moment.
    Collects = 4,
}

/// The latest changes that a status shows.
const LATEST: usize = 64;

#[derive(Debug)]
struct Place {
    /// The slot of its word: its own, or that of another replica which the same processes serve.
    word: AtomicU32,
    /// What distinguishes the oldest of its processes from others, also of another machine's start.
    life: AtomicU32,
    changes: watch::Sender<u64>,
    coverage: Mutex<Coverage>,
    pids: Mutex<Vec<u32>>,
    /// Which publisher reports its hazards; none: they are seen here.
    source: Mutex<Option<SocketAddr>>,
    counts: [AtomicU64; Kind::ALL.len()],
    total_ns: [AtomicU64; Kind::ALL.len()],
    /// The mean of past lengths, the latest with a quarter of the weight; 0: none was seen.
    usual_ns: [AtomicU64; Kind::ALL.len()],
    /// The bits of [`Hold`] that apply.
    held: AtomicU8,
    /// What is seen from outside.
    signs: Arc<Signs>,
    /// Collections that it was asked for while it had no requests.
    asked: AtomicU64,
    /// Collections that began while it had requests.
    met: AtomicU64,
}

impl Place {
    fn count(&self, change: Change) {
        let at = change.kind as usize;
        if change.ends {
            let lasted = change.at.0.saturating_sub(change.since.0);
            self.total_ns[at].fetch_add(lasted, Relaxed);
            let usual = self.usual_ns[at].load(Relaxed);
            let usual = if usual == 0 {
                lasted
            } else {
                usual - usual / 4 + lasted / 4
            };
            self.usual_ns[at].store(usual.max(1), Relaxed);
        }
        // A wait for a CPU is only reported when it ends, at least by the kernel's programs.
        if change.ends == (change.kind == Kind::Runqueue) {
            self.counts[at].fetch_add(1, Relaxed);
        }
        let is_met = self.signs.outstanding() > 0;
        if change.kind == Kind::Collection && !change.ends && is_met {
            self.met.fetch_add(1, Relaxed);
        }
    }
}

/// All replicas' hazards.
#[derive(Debug)]
pub struct Board {
    words: Words,
    places: Vec<Place>,
    latest: Mutex<VecDeque<Change>>,
    any: watch::Sender<u64>,
    /// How long a slow request takes; 0: nothing is known of that yet.
    slow_ns: AtomicU64,
}

impl Board {
    /// A board for this number of replicas. A replica's number is the slot of its word.
    #[must_use]
    pub fn new(words: Words, replicas: usize) -> Self {
        let place = |slot| Place {
            word: AtomicU32::new(slot as u32),
            life: AtomicU32::new(0),
            changes: watch::Sender::new(0),
            coverage: Mutex::new(Coverage::None),
            pids: Mutex::default(),
            source: Mutex::default(),
            counts: Default::default(),
            total_ns: Default::default(),
            usual_ns: Default::default(),
            held: AtomicU8::new(0),
            signs: Arc::default(),
            asked: AtomicU64::new(0),
            met: AtomicU64::new(0),
        };
        Self {
            words,
            places: (0..replicas).map(place).collect(),
            latest: Mutex::default(),
            any: watch::Sender::new(0),
            slow_ns: AtomicU64::new(0),
        }
    }

    /// How many replicas there may be.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.places.len()
    }

    /// What keeps this replica from answering now.
    #[must_use]
    pub fn active(&self, replica: usize, now: Monotonic) -> Active {
        self.word(replica).read(now)
    }

    /// When the longest of its hazards is expected to end.
    #[must_use]
    pub fn expected_end(&self, replica: usize, now: Monotonic) -> u64 {
        let word = self.word(replica);
        let end = |kind: Kind| {
            let usual = self.usual_ns(replica, kind);
            // One that lasts longer than usual is expected to last as long again.
            let lasted = now.0.saturating_sub(word.since(kind).0);
            now.0 + usual.saturating_sub(lasted).max(lasted.min(usual))
        };
        word.read(now).kinds().map(end).max().unwrap_or(now.0)
    }

    /// How long a hazard of this kind usually lasts.
    #[must_use]
    pub fn usual_ns(&self, replica: usize, kind: Kind) -> u64 {
        match self.places[replica].usual_ns[kind as usize].load(Relaxed) {
            0 => first_guess_ns(kind),
            _ if kind == Kind::Gone => first_guess_ns(kind),
            usual => usual,
        }
    }

    /// The word that has its hazards.
    #[must_use]
    pub fn word(&self, replica: usize) -> Word<'_> {
        self.words.word(self.places[replica].word.load(Relaxed))
    }

    /// The word of this slot has its hazards from now on: processes that serve both are watched there.
    pub fn set_word(&self, replica: usize, slot: u32) {
        self.places[replica].word.store(slot, Relaxed);
    }

    /// Wakes those who wait for this replica or others with its word, and counts a hazard that ended.
    pub fn changed(&self, change: Change) {
        let word = |place: &Place| place.word.load(Relaxed);
        let Some(of) = self.places.get(change.slot as usize).map(word) else {
            return;
        };
        let served = || (0..self.places.len()).filter(|slot| word(&self.places[*slot]) == of);
        // First of all: each µs of the rest is one more in which nobody is answered.
        served().for_each(|slot| self.wake(slot));
        served().for_each(|slot| self.places[slot].count(change));
        let mut latest = lock(&self.latest);
        if latest.len() == LATEST {
            latest.pop_front();
        }
        latest.push_back(change);
    }

    /// Whether it gets no requests for this reason.
    #[must_use]
    pub fn is_held(&self, replica: usize, why: Hold) -> bool {
        self.places[replica].held.load(Relaxed) & why as u8 != 0
    }

    /// Whether it gets no requests while others can take them.
    #[must_use]
    pub fn is_held_at_all(&self, replica: usize) -> bool {
        self.places[replica].held.load(Relaxed) != 0
    }

    /// Keeps requests from it, or no longer, for this reason.
    pub fn hold(&self, replica: usize, why: Hold, holds: bool) {
        let (held, bit) = (&self.places[replica].held, why as u8);
        let before = if holds {
            held.fetch_or(bit, Relaxed)
        } else {
            held.fetch_and(!bit, Relaxed)
        };
        if (before & bit != 0) != holds {
            self.wake(replica);
        }
    }

    /// What is seen of it from outside.
    #[must_use]
    pub fn signs(&self, replica: usize) -> &Arc<Signs> {
        &self.places[replica].signs
    }

    /// From now on, a request that takes longer than this is slow.
    pub fn set_slow(&self, slow: Duration) {
        let slow = slow.as_nanos() as u64;
        if self.slow_ns.load(Relaxed) != slow {
            self.slow_ns.store(slow, Relaxed);
        }
    }

    /// Whether it has requests, and has answered none for as long as a slow one takes.
    #[must_use]
    pub fn is_silent(&self, replica: usize, now: Monotonic) -> bool {
        let slow = self.slow_ns.load(Relaxed);
        if slow == 0 {
            return false; // nothing is known yet
        }
        let (is_silent, is_new) = self.places[replica].signs.is_silent(now, slow);
        if is_new {
            self.wake(replica);
        }
        is_silent
    }

    /// It was asked to collect.
    pub fn asked(&self, replica: usize) {
        self.places[replica].asked.fetch_add(1, Relaxed);
    }

    /// Collections that it was asked for, and collections that began while it had requests.
    #[must_use]
    pub fn collections(&self, replica: usize) -> (u64, u64) {
        let place = &self.places[replica];
        (place.asked.load(Relaxed), place.met.load(Relaxed))
    }

    /// Wakes whoever waits for this replica.
    pub fn wake(&self, replica: usize) {
        self.places[replica].changes.send_modify(|n| *n += 1);
        self.any.send_modify(|n| *n += 1);
    }

    /// Changes whenever the hazards of any replica do.
    #[must_use]
    pub fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.any.subscribe()
    }

    /// Changes whenever this replica's hazards do.
    #[must_use]
    pub fn subscribe(&self, replica: usize) -> watch::Receiver<u64> {
        self.places[replica].changes.subscribe()
    }

    /// How much is known of it.
    #[must_use]
    pub fn coverage(&self, replica: usize) -> Coverage {
        *lock(&self.places[replica].coverage)
    }

    /// Its processes.
    #[must_use]
    pub fn pids(&self, replica: usize) -> Vec<u32> {
        lock(&self.places[replica].pids).clone()
    }

    /// Its processes, and how much is known of it, from now on.
    pub fn set(&self, replica: usize, pids: Vec<u32>, coverage: Coverage) {
        *lock(&self.places[replica].pids) = pids;
        *lock(&self.places[replica].coverage) = coverage;
    }

    /// Which publisher reports its hazards; `None`: they are seen here, or not at all.
    #[must_use]
    pub fn source(&self, replica: usize) -> Option<SocketAddr> {
        *lock(&self.places[replica].source)
    }

    /// A publisher reports its hazards from now on, or no longer.
    pub fn set_source(&self, replica: usize, source: Option<SocketAddr>) {
        *lock(&self.places[replica].source) = source;
    }

    /// What distinguishes its present processes from later ones; 0: nothing is known of them.
    #[must_use]
    pub fn life(&self, replica: usize) -> u32 {
        self.places[replica].life.load(Relaxed)
    }

    /// It has other processes from now on.
    pub fn set_life(&self, replica: usize, life: u32) {
        self.places[replica].life.store(life, Relaxed);
    }

    /// Its slot is free for another replica, of which nothing is known yet.
    pub fn forget(&self, replica: usize) {
        self.set(replica, Vec::new(), Coverage::None);
        self.set_source(replica, None);
        self.set_life(replica, 0);
        for (slot, place) in self.places.iter().enumerate() {
            if place.word.load(Relaxed) == replica as u32 {
                place.word.store(slot as u32, Relaxed);
            }
        }
        self.set_word(replica, replica as u32);
        let place = &self.places[replica];
        let all = [&place.counts, &place.total_ns, &place.usual_ns];
        let single = [&place.asked, &place.met];
        for count in all.into_iter().flatten().chain(single) {
            count.store(0, Relaxed);
        }
        place.signs.forget();
        place.held.store(0, Relaxed);
    }

    /// How many hazards of this kind it had, and how many ns of those have ended.
    #[must_use]
    pub fn counted(&self, replica: usize, kind: Kind) -> (u64, u64) {
        let place = &self.places[replica];
        let at = kind as usize;
        (
            place.counts[at].load(Relaxed),
            place.total_ns[at].load(Relaxed),
        )
    }

    /// The latest changes, the oldest first.
    #[must_use]
    pub fn latest(&self) -> Vec<Change> {
        lock(&self.latest).iter().copied().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
