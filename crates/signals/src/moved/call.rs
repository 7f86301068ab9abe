//! System calls that a thread which stands still makes for us.
//!
//! The thread is stepped over one instruction, a system call in the kernel's own page of code that
//! every process has (vDSO), with registers of ours. Signals are held back meanwhile, all but SIGTRAP, by
//! which a step ends; who ignores that is refused beforehand, for the kernel would have it no longer
//! ignored. Such a stop is of the kind in which the thread was first: when it goes on, the kernel looks
//! whether a system call of the thread's own is to begin again, by the registers that it has then.

use std::fs;
use std::io;

use super::Unmoved;
#[cfg(target_arch = "aarch64")]
use super::aarch64 as cpu;
use super::trace::{Registers, Stop, Thread};
#[cfg(target_arch = "x86_64")]
use super::x86_64 as cpu;
use crate::remote;

/// Signals by which a wrong instruction shows: held back, they would change what the program does
/// about them.
const FAULTS: [libc::c_int; 6] = [
    libc::SIGTRAP,
    libc::SIGILL,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

fn held_back() -> u64 {
    !FAULTS
        .iter()
        .fold(0, |mask, signal| mask | 1u64 << (signal - 1))
}

/// Where in a process an instruction is that makes a system call.
pub(super) fn instruction(pid: u32) -> Result<u64, Unmoved> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|_| Unmoved::Gone)?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split_once(' ')).map(|(r, _)| r);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .and_then(|(start, end)| hex(start).zip(hex(end)))
        .ok_or(Unmoved::NoInstruction)?;
    let mut code = vec![0; end.saturating_sub(start).min(1 << 20) as usize];
    remote::read(pid, start, &mut code).map_err(|e| Unmoved::failed("read its vDSO", e))?;
    code.windows(cpu::CALL.len())
        .enumerate()
        .find(|(at, bytes)| at.is_multiple_of(cpu::ALIGNED) && **bytes == cpu::CALL)
        .map(|(at, _)| start + at as u64)
        .ok_or(Unmoved::NoInstruction)
}

/// Whether its registers may be others for a moment.
///
/// Not those of a thread within a restartable sequence: the kernel would see it outside, and not
/// send it back to the begin.
pub(super) fn can_call(pid: u32, thread: Thread) -> io::Result<bool> {
    let Some(registers) = thread.registers()? else {
        return Ok(false);
    };
    if !cpu::is_wide(&registers) || thread.dispatches()? {
        return Ok(false);
    }
    let Some(area) = thread.restartable()? else {
        return Ok(true);
    };
    let number = |at: u64| {
        let mut bytes = [0; 8];
        remote::read(pid, at, &mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    // struct rseq: two numbers of 4 bytes, then the address of the sequence, 0 outside of any.
    let sequence = number(area + 8)?;
    if sequence == 0 {
        return Ok(true);
    }
    // struct rseq_cs: two numbers of 4 bytes, its begin, its length.
    let (begin, length) = (number(sequence + 8)?, number(sequence + 16)?);
    Ok(cpu::next(&registers).wrapping_sub(begin) >= length)
}

/// A thread that makes system calls. It has to be [`Caller::end`]ed.
#[derive(Debug)]
pub(super) struct Caller {
    thread: Thread,
    instruction: u64,
    registers: Registers,
    mask: u64,
    /// Signals that it was about to get.
    owed: Vec<libc::c_int>,
}

impl Caller {
    pub(super) fn begin(thread: Thread, instruction: u64) -> io::Result<Self> {
        let registers = thread
            .registers()?
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
        let mask = thread.blocked()?;
        thread.block((mask | held_back()) & !(1 << (libc::SIGTRAP - 1)))?;
        Ok(Self {
            thread,
            instruction,
            registers,
            mask,
            owed: Vec::new(),
        })
    }

    /// Makes a call.
    ///
    /// # Errors
    /// What it returned, or why it could not be made.
    pub(super) fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> io::Result<u64> {
        let number = number as u64;
        let prepared = cpu::prepared(&self.registers, self.instruction, number, arguments);
        self.thread.set_registers(&prepared)?;
        let result = loop {
            self.thread.step()?;
            let signal = match self.thread.wait()? {
                Stop::Asked | Stop::Group => continue,
                Stop::Signal(signal) => signal,
                Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            };
            let after = self.thread.registers()?;
            let after = after.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
            if cpu::next(&after) == self.instruction + cpu::CALL.len() as u64 {
                break cpu::result(&after);
            }
            // Not now: its handler would see registers that are ours.
            self.owed.push(signal);
            if FAULTS.contains(&signal) {
                return Err(io::Error::other(format!("it got signal {signal}")));
            }
        };
        match result {
            -4095..=-1 => Err(io::Error::from_raw_os_error(-result as i32)),
            value => Ok(value as u64),
        }
    }

    /// Has the thread as it was: the signals that are to be sent to it when it goes on.
    pub(super) fn end(self) -> io::Result<Vec<libc::c_int>> {
        self.thread.set_registers(&self.registers)?;
        self.thread.block(self.mask)?;
        Ok(self.owed)
    }
}
