//! What a thread is doing: samples of its registers and stack by a clock of its CPU time, and
//! watchpoints that show when it touches a word of memory.
//!
//! All events of a thread share one ring. The kernel closes them when this process ends, however it
//! ends. Watchpoints are the processor's debug registers: the thread stops for some microseconds at
//! each hit, so a watchpoint is disabled after one hit.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::ring::{Record, Ring};
use crate::sampled::{Drained, USER_REGISTERS, done};

/// Words that can be watched at a time. Each takes two of the four debug registers: one that fires
/// at reads and writes, and one at writes.
pub const WATCHED: usize = 2;
/// Registers of a sample, in the order of their bits in [`USER_REGISTERS`].
pub const REGISTERS: usize = 20;

const HW_BREAKPOINT_W: u32 = 2;
const HW_BREAKPOINT_RW: u32 = 3;
const HW_BREAKPOINT_LEN_8: u64 = 8;

/// A sample of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserSample {
    /// When, by `CLOCK_MONOTONIC`, in ns.
    pub at: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread was in the kernel: the registers are those with which it entered.
    pub in_kernel: bool,
    /// `ax bx cx dx si di bp sp ip flags cs ss r8` to `r15`.
    pub registers: [u64; REGISTERS],
    /// The thread's memory from its stack pointer on.
    pub stack: Vec<u8>,
}

/// A thread touched a watched word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchHit {
    /// Which of the watched words.
    pub place: usize,
    /// When, by `CLOCK_MONOTONIC`, in ns.
    pub at: u64,
    /// The CPU.
    pub cpu: u32,
    /// The instruction after the one that touched it.
    pub ip: u64,
    /// It wrote; a write fires both registers of the word, and so makes two hits.
    pub is_write: bool,
}

/// What a ring held.
#[derive(Debug, Default)]
pub struct ThreadSamples {
    /// Samples, in the order of time.
    pub samples: Vec<UserSample>,
    /// Hits, in the order of time.
    pub hits: Vec<WatchHit>,
    /// Samples without registers: the thread was ending.
    pub without_registers: u64,
    /// Losses. Its samples are those of the clock and the watchpoints together.
    pub drained: Drained,
}

/// The events of one thread. They are closed when this is dropped.
#[derive(Debug)]
pub struct ThreadSampler {
    clock: OwnedFd,
    clock_id: u64,
    ring: Ring,
    tid: u32,
    watchpoints: Vec<Watchpoint>,
}

#[derive(Debug)]
struct Watchpoint {
    fd: OwnedFd,
    id: u64,
    place: usize,
    is_write: bool,
}

impl ThreadSampler {
    /// Samples a thread each `period` ns of its CPU time, with `stack` bytes of its stack, a multiple
    /// of 8 below 64 KiB. `pages`: of the ring, a power of two.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if the thread is gone, `EACCES` or `EPERM` if it is not allowed.
    /// `Unsupported` on processors other than x86-64.
    pub fn open(tid: u32, period: u64, stack: u32, pages: usize) -> io::Result<Self> {
        if USER_REGISTERS == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut attributes = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into());
        attributes.__bindgen_anon_1.sample_period = period;
        attributes.sample_type |=
            u64::from(b::PERF_SAMPLE_REGS_USER) | u64::from(b::PERF_SAMPLE_STACK_USER);
        attributes.sample_regs_user = USER_REGISTERS;
        attributes.sample_stack_user = stack;
        let clock = match open(&mut attributes, tid) {
            // Samples in the kernel are counted where that is allowed.
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                attributes.set_exclude_kernel(1);
                open(&mut attributes, tid)?
            }
            clock => clock?,
        };
        let sampler = Self {
            clock_id: id_of(&clock)?,
            ring: Ring::of(&clock, pages)?,
            clock,
            tid,
            watchpoints: Vec::new(),
        };
        // SAFETY: a perf event's descriptor; the argument is a number.
        done(unsafe { perf::ioctls::ENABLE(sampler.clock.as_raw_fd(), 0) })?;
        Ok(sampler)
    }

    /// The thread.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Sets the time between samples, in ns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        let at = (&raw const period) as u64; // the binding has a number for what is a pointer
        // SAFETY: a perf event's descriptor; the kernel reads the number, which lives until then.
        done(unsafe { perf::ioctls::PERIOD(self.clock.as_raw_fd(), at) })
    }

    /// Watches the aligned 8 bytes at an address until the thread touches them once. It ends the
    /// watch of another word at this place.
    ///
    /// The events are opened each time: on Linux 6.18, a breakpoint that has fired as often as
    /// `PERF_EVENT_IOC_REFRESH` allows stays stopped, also when it is refreshed.
    ///
    /// # Errors
    /// The kernel's: `ENOSPC` if a debugger has the debug registers.
    pub fn watch(&mut self, place: usize, address: u64) -> io::Result<()> {
        self.unwatch(place);
        for is_write in [true, false] {
            let fd = open(&mut watching(address, is_write), self.tid)?;
            let (from, to) = (fd.as_raw_fd(), self.clock.as_raw_fd());
            // SAFETY: two perf events' descriptors.
            done(unsafe { perf::ioctls::SET_OUTPUT(from, to) })?;
            self.watchpoints.push(Watchpoint {
                id: id_of(&fd)?,
                fd,
                place,
                is_write,
            });
        }
        for watchpoint in self.watchpoints.iter().filter(|w| w.place == place) {
            // SAFETY: a perf event's descriptor; the argument is a number.
            done(unsafe { perf::ioctls::REFRESH(watchpoint.fd.as_raw_fd(), 1) })?;
        }
        Ok(())
    }

    /// Ends the watch of a word. Take its hits first: they are not known afterwards.
    pub fn unwatch(&mut self, place: usize) {
        self.watchpoints.retain(|w| w.place != place);
    }

    /// Takes what the ring holds.
    pub fn drain(&self, into: &mut ThreadSamples) {
        self.ring.drain(|record| {
            into.drained.count(record);
            if record.kind != b::PERF_RECORD_SAMPLE {
                return;
            }
            let id = record.word(0);
            if id == self.clock_id {
                match parse(record) {
                    Some(sample) => into.samples.push(sample),
                    None => into.without_registers += 1,
                }
            } else if let Some(watchpoint) = self.watchpoints.iter().find(|w| w.id == id) {
                into.hits.push(WatchHit {
                    place: watchpoint.place,
                    is_write: watchpoint.is_write,
                    ip: record.word(1),
                    at: record.word(3),
                    cpu: record.word(4) as u32,
                });
            }
        });
    }
}

/// A sample of the clock: id, ip, pid and tid, time, CPU, the registers with how they are, the stack
/// with its length. `None`: the thread had no registers any more.
fn parse(record: Record<'_>) -> Option<UserSample> {
    const HEAD: usize = 5;
    const STACK: usize = HEAD + 1 + REGISTERS;
    if record.word(HEAD) != u64::from(b::PERF_SAMPLE_REGS_ABI_64) {
        return None;
    }
    let registers = record.words.get(HEAD + 1..STACK)?.try_into().ok()?;
    let copied = usize::try_from(record.word(STACK)).ok()? / 8;
    let behind = (STACK + 1).checked_add(copied)?;
    let bytes = record.words.get(STACK + 1..behind);
    let mut stack: Vec<u8> = bytes
        .unwrap_or_default()
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    // The kernel says behind it how much of it could be copied.
    stack.truncate(record.word(behind) as usize);
    let mode = u32::from(record.misc) & b::PERF_RECORD_MISC_CPUMODE_MASK;
    Some(UserSample {
        at: record.word(3),
        cpu: record.word(4) as u32,
        in_kernel: mode != b::PERF_RECORD_MISC_USER,
        registers,
        stack,
    })
}

fn watching(address: u64, is_write: bool) -> b::perf_event_attr {
    let mut attributes = attributes(b::PERF_TYPE_BREAKPOINT, 0);
    attributes.bp_type = match is_write {
        true => HW_BREAKPOINT_W,
        false => HW_BREAKPOINT_RW,
    };
    attributes.__bindgen_anon_3.bp_addr = address & !7;
    attributes.__bindgen_anon_4.bp_len = HW_BREAKPOINT_LEN_8;
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_exclude_kernel(1);
    attributes
}

fn attributes(kind: u32, config: u64) -> b::perf_event_attr {
    let mut attributes = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: kind,
        config,
        ..Default::default()
    };
    attributes.sample_type = [
        b::PERF_SAMPLE_IDENTIFIER,
        b::PERF_SAMPLE_IP,
        b::PERF_SAMPLE_TID,
        b::PERF_SAMPLE_TIME,
        b::PERF_SAMPLE_CPU,
    ]
    .iter()
    .fold(0, |all, bit| all | u64::from(*bit));
    attributes.set_disabled(1);
    attributes.set_exclude_hv(1);
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes
}

fn open(attributes: &mut b::perf_event_attr, tid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a valid structure of the size that they name; the call returns a
    // fresh descriptor or an error.
    let fd = unsafe {
        let flags = b::PERF_FLAG_FD_CLOEXEC.into();
        perf::perf_event_open(attributes, tid.cast_signed(), -1, -1, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn id_of(fd: &OwnedFd) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: a perf event's descriptor; the kernel writes one number.
    done(unsafe { perf::ioctls::ID(fd.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    /// `None`: this machine, or this user, has no such events.
    fn sampler_of_this_thread() -> Option<ThreadSampler> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let opened = ThreadSampler::open(tid.cast_unsigned(), 100_000, 4096, 64);
        opened.inspect_err(|e| println!("skipped: {e}")).ok()
    }

    /// Repeats until it is so, for 10 s at most.
    fn until(mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(10), "it never was");
        }
    }

    #[test]
    fn samples_have_the_stack_that_the_stack_pointer_points_to() {
        let Some(sampler) = sampler_of_this_thread() else {
            return;
        };
        let mark = [0x1122_3344_5566_7788u64; 64];
        let mut found = ThreadSamples::default();
        until(|| {
            black_box(&mark);
            sampler.drain(&mut found);
            found.samples.iter().filter(|s| !s.in_kernel).count() > 20
        });
        let at = (&raw const mark) as u64;
        let sees_mark = |sample: &UserSample| {
            let sp = sample.registers[7];
            let place = at.checked_sub(sp).unwrap_or(u64::MAX) as usize;
            let bytes = place
                .checked_add(8)
                .and_then(|end| sample.stack.get(place..end));
            bytes.is_some_and(|bytes| bytes == mark[0].to_ne_bytes())
        };
        assert!(found.samples.iter().any(sees_mark));
    }

    #[test]
    fn a_watched_word_shows_one_write_and_one_read() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let Some(mut sampler) = sampler_of_this_thread() else {
            return;
        };
        let address = (&raw const WORD) as u64;
        let mut hits = |touch: fn()| {
            if let Err(e) = sampler.watch(1, address) {
                println!("skipped: {e}");
                return None;
            }
            for _ in 0..1000 {
                touch();
            }
            let mut found = ThreadSamples::default();
            sampler.drain(&mut found);
            sampler.unwatch(1);
            Some(found.hits)
        };
        let Some(written) = hits(|| WORD.store(1, Ordering::Relaxed)) else {
            return;
        };
        let writes = written.iter().filter(|hit| hit.is_write).count();
        assert_eq!((writes, written.len(), written[0].place), (1, 2, 1));
        let read = hits(|| {
            black_box(WORD.load(Ordering::Relaxed));
        })
        .expect("as before");
        assert_eq!((read.len(), read[0].is_write), (1, false));
    }

    proptest! {
        #[test]
        fn foreign_records_never_panic(words in proptest::collection::vec(any::<u64>(), 0..64), misc: u16) {
            let mut words = words;
            if let Some(abi) = words.get_mut(5) {
                *abi = b::PERF_SAMPLE_REGS_ABI_64.into();
            }
            let _ = parse(Record { kind: b::PERF_RECORD_SAMPLE, misc, words: &words });
        }
    }
}
