//! Events as profilers open them: for a thread or a CPU, counted or sampled into a ring.
//!
//! For measuring what they cost: the samples themselves are counted and thrown away.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::ring::{Record, Ring};

/// `ax` to `ss` and `r8` to `r15`, by the numbers of `asm/perf_regs.h`.
#[cfg(target_arch = "x86_64")]
pub(crate) const USER_REGISTERS: u64 = 0x00ff_0fff;
/// No sampler can use these yet: [`ThreadSampler`](crate::ThreadSampler) refuses.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const USER_REGISTERS: u64 = 0;
/// Pages of samples in a ring.
const PAGES: usize = 64;
/// The same where a sample has a copy of the stack, which is a page or more.
const PAGES_OF_STACKS: usize = 512;

/// What is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// `type` of `struct perf_event_attr`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// Events from one sample to the next; 0: it only counts.
    pub period: u64,
    /// Whether a sample has the call chain.
    pub chain: bool,
    /// Whether a sample has the tracepoint's fields.
    pub raw: bool,
    /// `precise_ip`: 0, or 2 for a sample that the processor takes itself (PEBS, IBS).
    pub precise: u8,
    /// Bytes of the thread's stack in a sample, with the registers: as for
    /// [`ThreadSampler`](crate::ThreadSampler); 0 for none.
    pub stack: u32,
}

impl Sampling {
    /// The clock of the CPU time, a sample each `period` ns.
    #[must_use]
    pub fn cpu_clock(period: u64) -> Self {
        Self::new(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK, period)
    }

    /// Context switches, counted.
    #[must_use]
    pub fn switches() -> Self {
        let config = b::PERF_COUNT_SW_CONTEXT_SWITCHES;
        Self::new(b::PERF_TYPE_SOFTWARE, config, 0)
    }

    /// Cycles of the processor, a sample each `period` cycles.
    #[must_use]
    pub fn cycles(period: u64) -> Self {
        Self::new(b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_CPU_CYCLES, period)
    }

    /// A tracepoint by its number in tracefs, counted, or each hit sampled with its fields.
    #[must_use]
    pub fn tracepoint(id: u64, sampled: bool) -> Self {
        Self {
            kind: b::PERF_TYPE_TRACEPOINT,
            config: id,
            raw: sampled,
            ..Self::new(b::PERF_TYPE_TRACEPOINT, 0, sampled.into())
        }
    }

    fn new(kind: u32, config: u32, period: u64) -> Self {
        Self {
            kind,
            config: config.into(),
            period,
            chain: false,
            raw: false,
            precise: 0,
            stack: 0,
        }
    }

    fn attributes(self) -> b::perf_event_attr {
        let mut attributes = b::perf_event_attr {
            size: size_of::<b::perf_event_attr>() as u32,
            type_: self.kind,
            config: self.config,
            ..Default::default()
        };
        attributes.set_disabled(1);
        attributes.set_precise_ip(self.precise.into());
        if self.period > 0 {
            attributes.__bindgen_anon_1.sample_period = self.period;
            let wanted = [
                (b::PERF_SAMPLE_IP, true),
                (b::PERF_SAMPLE_TID, true),
                (b::PERF_SAMPLE_TIME, true),
                (b::PERF_SAMPLE_PERIOD, true),
                (b::PERF_SAMPLE_CALLCHAIN, self.chain),
                (b::PERF_SAMPLE_RAW, self.raw),
                (b::PERF_SAMPLE_REGS_USER, self.stack > 0),
                (b::PERF_SAMPLE_STACK_USER, self.stack > 0),
            ];
            attributes.sample_type = wanted
                .iter()
                .filter(|(_, is_wanted)| *is_wanted)
                .fold(0, |all, (bit, _)| all | u64::from(*bit));
            attributes.sample_stack_user = self.stack;
            if self.stack > 0 {
                attributes.sample_regs_user = USER_REGISTERS;
            }
        }
        attributes
    }
}

/// Whose events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A thread's, wherever it runs; 0 is the calling one.
    Thread(u32),
    /// Everybody's on one CPU.
    Cpu(u32),
}

/// What a ring held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Samples.
    pub samples: u64,
    /// Samples that found the ring full.
    pub lost: u64,
    /// How often the kernel stopped the event because it came too often.
    pub throttled: u64,
}

impl Drained {
    pub(crate) fn count(&mut self, record: Record<'_>) {
        match record.kind {
            b::PERF_RECORD_SAMPLE => self.samples += 1,
            // The event's number comes first.
            b::PERF_RECORD_LOST => self.lost += record.word(1),
            b::PERF_RECORD_LOST_SAMPLES => self.lost += record.word(0),
            b::PERF_RECORD_THROTTLE => self.throttled += 1,
            _ => {}
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            lost: self.lost + other.lost,
            throttled: self.throttled + other.throttled,
        }
    }
}

/// An event that is open. It is closed when this is dropped.
#[derive(Debug)]
pub struct SampledEvent {
    fd: OwnedFd,
    ring: Option<Ring>,
}

impl SampledEvent {
    /// Opens it. It does nothing until it is [enabled](Self::enable).
    ///
    /// # Errors
    /// The kernel's: `ENOENT` and `EOPNOTSUPP` where there is no such event, `EACCES` where it is not
    /// allowed.
    pub fn open(sampling: Sampling, whose: Whose) -> io::Result<Self> {
        let mut attributes = sampling.attributes();
        let (tid, cpu) = match whose {
            Whose::Thread(tid) => (tid.cast_signed(), -1),
            Whose::Cpu(cpu) => (-1, cpu.cast_signed()),
        };
        // SAFETY: the attributes are a valid structure of the size that they name; the call
        // returns a fresh descriptor or an error.
        let fd = unsafe {
            let flags = b::PERF_FLAG_FD_CLOEXEC.into();
            perf::perf_event_open(&mut attributes, tid, cpu, -1, flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let pages = if sampling.stack > 0 {
            PAGES_OF_STACKS
        } else {
            PAGES
        };
        let ring = (sampling.period > 0)
            // Without privileges the kernel may have no room for the larger one.
            .then(|| Ring::of(&fd, pages).or_else(|_| Ring::of(&fd, PAGES)))
            .transpose()?;
        Ok(Self { fd, ring })
    }

    /// Starts it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: a perf event's descriptor; the argument is a number.
        done(unsafe { perf::ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Stops it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: a perf event's descriptor; the argument is a number.
        done(unsafe { perf::ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// The count now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }

    /// Empties the ring.
    #[must_use]
    pub fn drain(&self) -> Drained {
        let mut drained = Drained::default();
        if let Some(ring) = &self.ring {
            ring.drain(|record| drained.count(record));
        }
        drained
    }
}

impl AsFd for SampledEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn done(code: i32) -> io::Result<()> {
    match code {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_sampled() {
        let event = match SampledEvent::open(Sampling::cpu_clock(100_000), Whose::Thread(0)) {
            Ok(event) => event,
            Err(e) => {
                println!("skipped: {e}");
                return;
            }
        };
        event.enable().expect("it is open");
        let mut samples = 0;
        while samples < 3 {
            samples += event.drain().samples;
        }
        event.disable().expect("it is open");
        let _ = event.drain();
        let counted = event.count().expect("it can be read");
        assert!(counted > 0);
    }
}
