//! The rings of the timeline's events: one a CPU, in one mapped BPF array. The kernel's programs
//! write over the oldest events and never look here; a reader finds out afterwards whether what it
//! copied was written over meanwhile.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::event::{EVENT_BYTES, abi, place_of};
use crate::mapping::Mapping;

/// How many events are copied at a time: few enough that the copy is still in the fastest cache when it is
/// looked at.
const CHUNK: u64 = 512;

/// All CPUs' rings.
#[derive(Debug)]
pub struct EventRings {
    memory: Mapping,
    cpus: usize,
    slots: u64,
}

/// What reading a stretch of a ring came to. Together these are the stretch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Read {
    /// Events that were handed on.
    pub events: u64,
    /// Events at its begin that newer ones had been written over, or were while it was read.
    pub overwritten: u64,
    /// Events within it that had been begun and not written: the writer was interrupted.
    pub unwritten: u64,
}

impl EventRings {
    /// Bytes of a BPF array's value that holds `slots` events.
    #[must_use]
    pub const fn value_size(slots: u32) -> u32 {
        abi::TL_RING_HEAD + slots * abi::TL_EVENT_BYTES
    }

    /// Maps the rings of `cpus` CPUs, of `slots` events each.
    pub fn map(array: impl AsFd, cpus: usize, slots: u32) -> io::Result<Self> {
        assert!(slots > 0, "an event needs a place");
        let memory = Mapping::new(array, cpus * Self::value_size(slots) as usize)?;
        Ok(Self {
            memory,
            cpus,
            slots: slots.into(),
        })
    }

    /// One ring in memory of our own, for what no program of the kernel tells of.
    pub fn ours(slots: u32) -> io::Result<Self> {
        let file = memfd_create("tailscope-events", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, Self::value_size(slots).into())?;
        Self::map(&file, 1, slots)
    }

    /// Writes an event to a ring of [our own](Self::ours), of which the caller is the only writer. Its
    /// place is filled in.
    pub fn write(&self, event: abi::tl_event) {
        let head = self.memory.u64(offset_of!(abi::tl_ring, head));
        let number = head.fetch_add(1, SeqCst);
        // A reader of half a new event has to find out by the head that the old one is gone.
        fence(SeqCst);
        let slot = (number % self.slots) as usize;
        let base = abi::TL_RING_HEAD as usize + slot * EVENT_BYTES;
        let word = |offset, value| self.memory.u32(base + offset).store(value, Relaxed);
        self.memory
            .u64(base + offset_of!(abi::tl_event, at))
            .store(event.at, Relaxed);
        let [kind, flags] = [event.kind, event.flags].map(u32::from);
        let small = u32::from(event.small);
        word(offset_of!(abi::tl_event, tid), event.tid);
        word(
            offset_of!(abi::tl_event, kind),
            kind | flags << 8 | small << 16,
        );
        word(offset_of!(abi::tl_event, x), event.x);
        word(offset_of!(abi::tl_event, y), event.y);
        word(offset_of!(abi::tl_event, z), event.z);
        let place = self.memory.u32(base + offset_of!(abi::tl_event, place));
        place.store(number as u32, Release);
    }

    /// How many CPUs have one.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// How many events each holds.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    fn base(&self, cpu: usize) -> usize {
        cpu * Self::value_size(self.slots as u32) as usize
    }

    /// How many events were begun on a CPU so far: the next one's number.
    #[must_use]
    pub fn head(&self, cpu: usize) -> u64 {
        self.memory
            .u64(self.base(cpu) + offset_of!(abi::tl_ring, head))
            .load(Acquire)
    }

    /// Hands on the events of a CPU with the numbers `from..to`, oldest first, as far as they are
    /// still there. Ends early when `each` says `false`: what it was given then counts as read.
    pub fn read(
        &self,
        cpu: usize,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &[u8; EVENT_BYTES]) -> bool,
    ) -> Read {
        let mut read = Read::default();
        let mut at = from;
        let mut buffer = [[0; EVENT_BYTES]; CHUNK as usize];
        while at < to {
            let oldest = self.head(cpu).saturating_sub(self.slots);
            if at < oldest {
                let gone = oldest.min(to) - at;
                read.overwritten += gone;
                at += gone;
                continue;
            }
            let slot = at % self.slots;
            let count = (to - at).min(CHUNK).min(self.slots - slot) as usize;
            let begin = self.base(cpu) + abi::TL_RING_HEAD as usize + slot as usize * EVENT_BYTES;
            self.memory.copy(begin, buffer[..count].as_flattened_mut());
            // What was begun before this look at the head may have been written into the copy.
            fence(SeqCst);
            let whole = self.head(cpu).saturating_sub(self.slots);
            for (bytes, number) in buffer[..count].iter().zip(at..) {
                if number < whole {
                    read.overwritten += 1;
                } else if place_of(bytes) != number as u32 {
                    read.unwritten += 1;
                } else {
                    read.events += 1;
                    if !each(number, bytes) {
                        return read;
                    }
                }
            }
            at += count as u64;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Event, What};

    const SLOTS: u32 = 60;

    struct Made {
        memory: Mapping,
        rings: EventRings,
    }

    fn ring() -> Made {
        let file = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a memfd");
        let len = u64::from(EventRings::value_size(SLOTS));
        ftruncate(&file, len).expect("sized");
        Made {
            memory: Mapping::new(&file, len as usize).expect("mapped"),
            rings: EventRings::map(&file, 1, SLOTS).expect("mapped again"),
        }
    }

    impl Made {
        fn begin(&self) -> u64 {
            self.memory.u64(0).fetch_add(1, Relaxed)
        }

        /// What the programs do (crates/kernel/src/bpf/timeline.bpf.c), in Rust.
        fn write(&self, number: u64) {
            let slot = (number % u64::from(SLOTS)) as usize;
            let at = abi::TL_RING_HEAD as usize + slot * EVENT_BYTES;
            self.memory.u64(at).store(number * 3, Relaxed);
            self.memory.u32(at + 8).store(number as u32, Relaxed);
        }

        fn read(&self, from: u64, to: u64) -> (Vec<u64>, Read) {
            let mut numbers = Vec::new();
            let read = self.rings.read(0, from, to, |number, bytes| {
                assert_eq!(crate::event::at_of(bytes), number * 3);
                numbers.push(number);
                true
            });
            (numbers, read)
        }
    }

    proptest! {
        #[test]
        fn what_is_read_and_what_was_overwritten_is_all_that_was_written(
            bursts in proptest::collection::vec(0u64..150, 1..30)
        ) {
            let made = ring();
            let mut seen = 0;
            for burst in bursts {
                for _ in 0..burst {
                    made.write(made.begin());
                }
                let head = made.rings.head(0);
                let (numbers, read) = made.read(seen, head);
                prop_assert_eq!(read.overwritten, burst.saturating_sub(SLOTS.into()));
                prop_assert_eq!(read.unwritten, 0);
                prop_assert_eq!(numbers, (seen + read.overwritten..head).collect::<Vec<_>>());
                seen = head;
            }
        }
    }

    #[test]
    fn what_is_written_to_a_ring_of_our_own_is_read_from_it() {
        let ring = EventRings::ours(SLOTS).expect("memory");
        for number in 0..100u64 {
            ring.write(abi::tl_event {
                at: number,
                tid: 7,
                kind: abi::TL_SPAN as u8,
                small: 258,
                x: 1,
                y: 2,
                ..Default::default()
            });
        }
        let mut at = Vec::new();
        let read = ring.read(0, 0, ring.head(0), |_, bytes| {
            let event = Event::parse(bytes).expect("an event");
            let what = What::Span {
                source: 258,
                ns: 2 << 32 | 1,
            };
            assert_eq!((event.tid, event.what), (7, what));
            at.push(event.at);
            true
        });
        assert_eq!((read.overwritten, read.unwritten), (40, 0));
        assert_eq!(at, (40..100).collect::<Vec<_>>());
    }

    #[test]
    fn an_event_that_is_not_written_yet_is_a_hole_and_its_neighbours_are_read() {
        let made = ring();
        for _ in 0..100 {
            made.write(made.begin());
        }
        let interrupted = made.begin();
        made.write(made.begin());
        let (numbers, read) = made.read(90, 102);
        assert_eq!(numbers, (90..100).chain([101]).collect::<Vec<_>>());
        assert_eq!((read.events, read.unwritten), (11, 1));
        made.write(interrupted);
        assert_eq!(made.read(90, 102).1.unwritten, 0);
    }

    #[test]
    fn a_reader_beside_a_writer_at_full_speed_never_takes_a_torn_event() {
        let made = ring();
        std::thread::scope(|scope| {
            let memory = scope.spawn(|| {
                for _ in 0..300_000 {
                    let number = made.memory.u64(0).fetch_add(1, SeqCst);
                    made.write(number);
                }
            });
            let mut seen = 0;
            while !memory.is_finished() {
                let head = made.rings.head(0);
                let read = made.rings.read(0, seen, head, |number, bytes| {
                    assert_eq!(crate::event::at_of(bytes), number * 3);
                    true
                });
                assert_eq!(read.events + read.overwritten + read.unwritten, head - seen);
                seen = head;
            }
        });
    }
}
