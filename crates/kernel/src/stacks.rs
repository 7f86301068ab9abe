//! Samples of stacks: a clock on each CPU that runs a program at every tick, and the ring in which
//! the programs leave what they saw (`bpf/stacks.h`).

use std::mem::offset_of;

use libbpf_rs::{Link, Object};
use perf_event_open_sys::bindings::PERF_COUNT_SW_CPU_CLOCK;
use tailscope_signals::little_endian::{u32_at, u64_at};

use crate::load_error::{LoadError, kernel};
use crate::object::{map_of, program};
use crate::process_events::Ring;
use crate::shared::{
    KERNEL_FRAMES, PYTHON_FRAMES, PYTHON_LAST, STACK_BYTES, STACK_ON_CPU, STACK_RETURNS,
    python_frame, stack_return, stack_sample,
};
use crate::software_event::SoftwareEvent;

/// What runs at each tick.
pub(crate) const PROGRAM: &str = "on_tick";
/// The kernel copies stacks in pieces of this many bytes.
const CHUNK: usize = 1024;

/// Where a thread was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackSample {
    /// When, by `CLOCK_MONOTONIC`, in ns: the tick, or the moment at which the thread blocked.
    pub at: u64,
    /// The time that it stands for, in ns.
    pub ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// For which cause it blocked, by the meter's number; `None`: it had the CPU.
    pub cause: Option<u8>,
    /// With which registers the thread entered the kernel.
    pub registers: Registers,
    /// Where the kernel was, innermost first; empty: the thread ran its own code.
    pub kernel: Vec<u64>,
    /// The functions of Python that it was in, the innermost first.
    pub python: Vec<PythonFrame>,
    /// Whether they reach the thread's first one.
    pub python_whole: bool,
    /// Where `stack` was in the thread's memory.
    pub from: u64,
    /// The thread's stack, from its innermost frame on; bounded to 16 KiB.
    pub stack: Vec<u8>,
}

/// A function of Python that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// The address of its code object.
    pub code: u64,
    /// A [mix](Self::mark_of) of its first line and of the addresses of its name and file name. If that
    /// has changed, another object has the memory by now.
    pub mark: u64,
    /// It is the outermost of its call of the C function that runs them.
    pub last: bool,
}

impl PythonFrame {
    fn parse(bytes: &[u8], at: usize) -> Self {
        let mark = u64_at(bytes, at + offset_of!(python_frame, mark));
        Self {
            code: u64_at(bytes, at + offset_of!(python_frame, code)),
            mark: mark & !u64::from(PYTHON_LAST),
            last: mark & u64::from(PYTHON_LAST) != 0,
        }
    }

    /// The mark of a code object: the addresses of its name and its file's, and its first line
    /// (`PYTHON_MARK` in `bpf/shared.h`).
    #[must_use]
    pub fn mark_of(name: u64, file: u64, line: u32) -> u64 {
        (name ^ file << 17 ^ u64::from(line) << 4) & !u64::from(PYTHON_LAST)
    }
}

/// What unwinding begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// arm64: the return address.
    pub lr: u64,
}

impl StackSample {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let stack = bytes.get(offset_of!(stack_sample, bytes)..)?;
        let word = |at| u64_at(bytes, at);
        let number = |at| u32_at(bytes, at);
        let length = (number(offset_of!(stack_sample, chunks)) as usize) * CHUNK;
        let frames = number(offset_of!(stack_sample, kernel_frames)).min(KERNEL_FRAMES) as usize;
        let kernel = offset_of!(stack_sample, kernel);
        let cause = number(offset_of!(stack_sample, cause));
        let python = number(offset_of!(stack_sample, python_frames)).min(PYTHON_FRAMES) as usize;
        let python_at =
            |frame| offset_of!(stack_sample, python) + frame * size_of::<python_frame>();
        Some(
            Self {
                at: word(offset_of!(stack_sample, at)),
                ns: word(offset_of!(stack_sample, ns)),
                pid: number(offset_of!(stack_sample, pid)),
                tid: number(offset_of!(stack_sample, tid)),
                cause: (cause < STACK_ON_CPU).then_some(cause as u8),
                registers: Registers {
                    ip: word(offset_of!(stack_sample, ip)),
                    sp: word(offset_of!(stack_sample, sp)),
                    fp: word(offset_of!(stack_sample, fp)),
                    lr: word(offset_of!(stack_sample, lr)),
                },
                kernel: (0..frames).map(|frame| word(kernel + frame * 8)).collect(),
                python: (0..python)
                    .map(|frame| PythonFrame::parse(bytes, python_at(frame)))
                    .collect(),
                python_whole: number(offset_of!(stack_sample, python_whole)) != 0,
                from: word(offset_of!(stack_sample, from)),
                stack: stack.get(..length.min(STACK_BYTES as usize))?.to_vec(),
            }
            .with_returns((0..STACK_RETURNS as usize).map(|place| {
                let at = offset_of!(stack_sample, returns) + place * size_of::<stack_return>();
                (word(at), word(at + 8))
            })),
        )
    }

    /// Puts back the return addresses that probes have replaced by their own: where, and which.
    fn with_returns(mut self, returns: impl Iterator<Item = (u64, u64)>) -> Self {
        for (at, to) in returns {
            let place = at.checked_sub(self.from).map(|place| place as usize);
            let place = place.filter(|_| to != 0);
            if let Some(word) = place.and_then(|place| {
                self.stack
                    .get_mut(place..place.checked_add(size_of::<u64>())?)
            }) {
                word.copy_from_slice(&to.to_le_bytes());
            }
        }
        self
    }
}

/// The clocks, and the ring.
pub(crate) struct Stacks {
    _clocks: Vec<Link>,
    ring: Ring<StackSample>,
}

impl Stacks {
    /// Starts a clock with this period on each CPU.
    pub(crate) fn begin(object: &mut Object, period_ns: u64) -> Result<Self, LoadError> {
        let ring = Ring::open(&map_of(object, "stack_ring"), StackSample::parse)
            .map_err(kernel("open the ring of stacks"))?;
        let clock = SoftwareEvent {
            event: PERF_COUNT_SW_CPU_CLOCK,
            period: period_ns,
            idle: false,
        };
        let clocks = clock.attach(&program(object, PROGRAM));
        Ok(Self {
            _clocks: clocks.map_err(|source| LoadError::System {
                what: "start a clock on each CPU",
                source,
            })?,
            ring,
        })
    }

    pub(crate) fn drain(&mut self, each: impl FnMut(StackSample)) {
        self.ring.drain(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_claims_more_than_it_has_is_none() {
        let mut bytes = vec![0; size_of::<stack_sample>()];
        let chunks = offset_of!(stack_sample, chunks);
        bytes[chunks] = 16;
        let sample = StackSample::parse(&bytes).expect("whole");
        assert_eq!(sample.stack.len(), STACK_BYTES as usize);
        bytes.truncate(offset_of!(stack_sample, bytes) + CHUNK);
        assert_eq!(StackSample::parse(&bytes), None);
        let returns = offset_of!(stack_sample, returns);
        bytes[returns..returns + 8].copy_from_slice(&8u64.to_le_bytes());
        bytes[returns + 8..returns + 16].copy_from_slice(&7u64.to_le_bytes());
        bytes[chunks] = 1;
        let put_back = StackSample::parse(&bytes).expect("whole").stack;
        assert_eq!(put_back[8..16], 7u64.to_le_bytes());
        assert_eq!(
            StackSample::parse(&bytes).expect("whole").stack.len(),
            CHUNK
        );
    }
}
