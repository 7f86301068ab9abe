//! What a thread knows: its attachment, and what the begins of its open spans saw.

use core::cell::{Cell, RefCell};
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::rc::Rc;

use super::abi::{CAUSES, Chunk, Meter, RECORDERS};
use super::counters::{Counted, Counters};

/// What a begin saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) begin: Cell<u64>,
    pub(super) seq: Cell<u32>,
    pub(super) ns: [Cell<u64>; CAUSES],
    pub(super) n: [Cell<u32>; CAUSES],
    pub(super) counted: Counted,
}

impl Seen {
    const fn nothing() -> Self {
        Self {
            begin: Cell::new(0),
            seq: Cell::new(0),
            ns: [const { Cell::new(0) }; CAUSES],
            n: [const { Cell::new(0) }; CAUSES],
            counted: Counted::new(),
        }
    }
}

/// Where to find what a begin saw: whose it is, and the place. That stays where it is while the span's value is
/// moved about: copying it would be work that the span's counters count, some other number of instructions in
/// each program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    owner: NonZeroU32,
    place: u32,
}

impl Reading {
    /// Whether its place is in the thread's own part. The way to the others takes some 60 instructions of its
    /// own, too many for counters to be right.
    pub(super) fn is_near(self) -> bool {
        self.place < PLACES
    }
}

/// How many open spans have a place in the thread's own part. More take memory of the heap, and count nothing.
const PLACES: u32 = 16;

/// The places of spans beyond those.
#[derive(Default)]
struct More {
    seen: Vec<Rc<Seen>>,
    free: Vec<u32>,
}

/// What a thread knows of its attachment to one recorder; never freed, as the kernel takes the meter back itself.
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
    seen: [Seen; PLACES as usize],
}

// All zeros, so that a thread that is never recorded touches none of it.
thread_local! {
    static THREADS: [Thread; RECORDERS] = const { [const { Thread::nothing() }; RECORDERS] };
}

thread_local! {
    static MORE: RefCell<More> = RefCell::default();
}

static OWNERS: AtomicU32 = AtomicU32::new(1);

/// Runs it with this thread's part for one recorder.
#[inline(always)]
pub(crate) fn with_thread<T>(which: usize, run: impl FnOnce(&Thread) -> T) -> T {
    let threads = THREADS.with(core::ptr::from_ref);
    // SAFETY: they have no destructor, so they stay until the thread is no more. Passing `run` on would have it
    // compiled apart from its caller.
    let threads = unsafe { &*threads };
    run(&threads[which])
}

impl Thread {
    const fn nothing() -> Self {
        Self {
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
            seen: [const { Seen::nothing() }; PLACES as usize],
        }
    }

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

    /// A place for what a begin sees; `None` before the thread's first attachment, or where there is no memory.
    #[inline(always)]
    pub(super) fn open(&self) -> Option<Reading> {
        let owner = NonZeroU32::new(self.owner.get())?;
        let taken = self.taken.get();
        let place = taken.trailing_ones();
        if place >= PLACES {
            return open_more(owner);
        }
        self.taken.set(taken | 1 << place);
        Some(Reading { owner, place })
    }

    /// Runs it with what the begin of this span saw; `None`: it was another thread's begin, or one under another
    /// recorder.
    #[inline(always)]
    pub(super) fn with_seen<T>(&self, reading: Reading, run: impl FnOnce(&Seen) -> T) -> Option<T> {
        if reading.owner.get() != self.owner.get() {
            return None;
        }
        match self.seen.get(reading.place as usize) {
            Some(seen) => Some(run(seen)),
            None => seen_more(reading.place).map(|seen| run(&seen)),
        }
    }

    /// It has ended: a span of this thread.
    #[inline(always)]
    pub(super) fn close(&self, reading: Reading) {
        if reading.place < PLACES {
            self.taken.set(self.taken.get() & !(1 << reading.place));
        } else {
            close_more(reading.place);
        }
    }
}

#[cold]
#[inline(never)]
fn open_more(owner: NonZeroU32) -> Option<Reading> {
    let open = |more: &RefCell<More>| {
        let mut more = more.try_borrow_mut().ok()?;
        let at = more.free.pop().or_else(|| {
            more.seen.push(Rc::new(Seen::nothing()));
            u32::try_from(more.seen.len() - 1).ok()
        })?;
        Some(Reading {
            owner,
            place: at + PLACES,
        })
    };
    MORE.try_with(open).ok()?
}

#[cold]
#[inline(never)]
fn seen_more(place: u32) -> Option<Rc<Seen>> {
    let find = |more: &RefCell<More>| {
        let more = more.try_borrow().ok()?;
        more.seen.get((place - PLACES) as usize).cloned()
    };
    MORE.try_with(find).ok()?
}

#[cold]
#[inline(never)]
fn close_more(place: u32) {
    // A thread that is ending has none left.
    let _ = MORE.try_with(|more| {
        if let Ok(mut more) = more.try_borrow_mut() {
            more.free.push(place - PLACES);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{PLACES, Reading, Seen, with_thread};

    fn open() -> Reading {
        with_thread(0, |thread| thread.open()).expect("the thread has begun")
    }

    fn with_seen<T>(reading: Reading, run: impl FnOnce(&Seen) -> T) -> Option<T> {
        with_thread(0, |thread| thread.with_seen(reading, run))
    }

    #[test]
    fn spans_have_places_of_their_own_in_whatever_order_they_end() {
        with_thread(0, |thread| {
            assert!(thread.open().is_none());
            thread.forget(1);
        });
        let mut open: Vec<Reading> = (0..PLACES + 3).map(|_| self::open()).collect();
        for (at, reading) in (0..).zip(&open) {
            with_seen(*reading, |seen| seen.begin.set(at)).expect("its own");
        }
        for (at, reading) in (0..).zip(&open) {
            assert_eq!(with_seen(*reading, |seen| seen.begin.get()), Some(at));
        }
        for at in [PLACES + 1, 5] {
            let ended = open.remove(at as usize);
            with_thread(0, |thread| thread.close(ended));
        }
        assert_eq!(self::open().place, 5);
        assert_eq!(self::open().place, PLACES + 1);
        assert_eq!(self::open().place, PLACES + 3);
    }

    #[test]
    fn a_span_of_another_thread_is_no_span_of_this_one() {
        with_thread(0, |thread| thread.forget(1));
        let other = std::thread::spawn(|| {
            with_thread(0, |thread| thread.forget(1));
            open()
        });
        let other = other.join().expect("it ends");
        let own = open();
        assert!(with_seen(own, |_| ()).is_some());
        assert!(with_seen(other, |_| ()).is_none());
        with_thread(0, |thread| thread.forget(1)); // another recorder
        assert!(with_seen(own, |_| ()).is_none());
    }
}
