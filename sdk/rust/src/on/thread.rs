//! What a thread knows: its attachment, and what the begins of its open spans saw.

use core::cell::Cell;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::abi::{CAUSES, Chunk, Meter};
use super::counters::{Counted, Counters};

/// What a begin saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) begin: Cell<u64>,
    pub(super) seq: Cell<u32>,
    /// Of the counters that `counted` are; 0: they are not read.
    pub(super) turn: Cell<u32>,
    pub(super) ns: [Cell<u64>; CAUSES],
    pub(super) n: [Cell<u32>; CAUSES],
    pub(super) counted: Counted,
}

impl Seen {
    const fn nothing() -> Self {
        Self {
            begin: Cell::new(0),
            seq: Cell::new(0),
            turn: Cell::new(0),
            ns: [const { Cell::new(0) }; CAUSES],
            n: [const { Cell::new(0) }; CAUSES],
            counted: Counted::new(),
        }
    }
}

/// Where to find what a begin saw. It stays where it is while the span's value is moved about: copying it would
/// be work that the span's counters count, some other number of instructions in each program.
#[derive(Debug)]
pub(crate) enum Reading {
    /// In this place of the thread that this number is of.
    Kept(NonZeroU32, u32),
    /// All places were taken: many spans are open, or values were leaked.
    Apart(NonZeroU32, Box<Seen>),
}

/// How many spans a thread may have open without memory of their own.
const KEPT: usize = 16;

/// What a thread knows of its attachment; never freed, as the kernel takes the meter back itself.
pub(crate) struct Thread {
    pub(super) epoch: Cell<u64>,
    pub(super) meter: Cell<Option<&'static Meter>>,
    pub(super) chunk: Cell<Option<(&'static Chunk, u32)>>,
    pub(super) used: Cell<u32>,
    /// Rows to lose before a free chunk is looked for again.
    pub(super) skip: Cell<u32>,
    random: Cell<u64>,
    /// The last names used, by their address, and their numbers.
    pub(super) names: [Cell<(usize, u8)>; 16],
    pub(super) counters: Counters,
    /// Whose the open spans are: of this attachment of this thread, a number that is never used twice.
    owner: Cell<u32>,
    /// Bit i: `seen[i]` is an open span's.
    taken: Cell<u32>,
    seen: [Seen; KEPT],
}

// All zeros, so that a thread that is never recorded touches none of it.
thread_local! {
    static THREAD: Thread = const {
        Thread {
            epoch: Cell::new(0),
            meter: Cell::new(None),
            chunk: Cell::new(None),
            used: Cell::new(0),
            skip: Cell::new(0),
            random: Cell::new(0),
            names: [const { Cell::new((0, 0)) }; 16],
            counters: Counters::none(),
            owner: Cell::new(0),
            taken: Cell::new(0),
            seen: [const { Seen::nothing() }; KEPT],
        }
    };
}

static OWNERS: AtomicU32 = AtomicU32::new(1);

/// Runs it with this thread's part.
#[inline(always)]
pub(crate) fn with_thread<T>(run: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(run)
}

impl Thread {
    /// xorshift64 (Marsaglia 2003), its upper half.
    pub(super) fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x >> 32
    }

    /// Begins anew: spans that are open are nobody's.
    pub(super) fn forget(&self, seed: u64) {
        self.epoch.set(0);
        self.meter.set(None);
        self.chunk.set(None);
        self.used.set(0);
        self.skip.set(0);
        self.random.set(seed | 1);
        for name in &self.names {
            name.set((0, 0));
        }
        self.counters.forget();
        self.owner.set(OWNERS.fetch_add(1, Relaxed));
        self.taken.set(0);
    }

    /// A place for what a begin sees; `None` only before the thread's first attachment.
    #[inline(always)]
    pub(super) fn open(&self) -> Option<Reading> {
        let owner = NonZeroU32::new(self.owner.get())?;
        let taken = self.taken.get();
        let place = taken.trailing_ones();
        if place as usize >= KEPT {
            return Some(open_apart(owner));
        }
        self.taken.set(taken | 1 << place);
        Some(Reading::Kept(owner, place))
    }

    /// What the begin of this span saw; `None`: it was another thread's begin, or under another recorder.
    #[inline(always)]
    pub(super) fn seen<'a>(&'a self, reading: &'a Reading) -> Option<&'a Seen> {
        let (owner, seen) = match reading {
            Reading::Kept(owner, place) => (owner, &self.seen[*place as usize % KEPT]),
            Reading::Apart(owner, seen) => (owner, &**seen),
        };
        (owner.get() == self.owner.get()).then_some(seen)
    }

    /// It has ended: of a span of this thread.
    #[inline(always)]
    pub(super) fn close(&self, reading: Reading) {
        if let Reading::Kept(_, place) = reading {
            self.taken.set(self.taken.get() & !(1 << place));
        }
    }
}

#[cold]
#[inline(never)]
fn open_apart(owner: NonZeroU32) -> Reading {
    Reading::Apart(owner, Box::new(Seen::nothing()))
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Reading, with_thread};

    fn open() -> Reading {
        with_thread(|thread| thread.open()).expect("the thread has begun")
    }

    #[test]
    fn spans_have_places_of_their_own_in_whatever_order_they_end() {
        with_thread(|thread| {
            assert!(thread.open().is_none());
            thread.forget(1);
            let mut open: Vec<Reading> = (0..KEPT + 3).map(|_| self::open()).collect();
            for (at, reading) in open.iter().enumerate() {
                thread.seen(reading).expect("its own").begin.set(at as u64);
            }
            for (at, reading) in open.iter().enumerate() {
                assert_eq!(matches!(reading, Reading::Apart(..)), at >= KEPT);
                assert_eq!(
                    thread.seen(reading).expect("its own").begin.get(),
                    at as u64
                );
            }
            thread.close(open.remove(5));
            assert!(matches!(self::open(), Reading::Kept(_, 5)));
            while !open.is_empty() {
                thread.close(open.remove(open.len() / 2));
            }
        });
    }

    #[test]
    fn a_span_of_another_thread_is_no_span_of_this_one() {
        with_thread(|thread| thread.forget(1));
        let other = std::thread::spawn(|| {
            with_thread(|thread| thread.forget(1));
            open()
        });
        let other = other.join().expect("it ends");
        with_thread(|thread| {
            let own = thread.open().expect("the thread has begun");
            assert!(thread.seen(&own).is_some());
            assert!(thread.seen(&other).is_none());
            thread.forget(1); // another recorder
            assert!(thread.seen(&own).is_none());
        });
    }
}
