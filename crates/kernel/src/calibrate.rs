//! What the tracepoints of a page fault can't see: the way into the kernel and back.
//!
//! Goal: a fault's whole time in `fault`, where the hooks lie inside of the kernel's handling of it
//! and the exception itself (of a small fault some 0.5 of 1.1 µs, more on virtual machines) would
//! stay in `running`. Rejected: a constant for all machines, as it depends on the processor, its
//! mitigations and the hypervisor. Chosen: a child that lives for some milliseconds touches fresh
//! pages while it is watched, and times that. What it took longer than to touch them again, less
//! what its meter was charged, is the unseen part. It is the median of many rounds, so that an
//! interrupt or a neighbour in some of them changes nothing.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tailscope_signals::abi;

use crate::load::Kernel;
use crate::mechanism::Measurement;
use crate::object::map_of;
use crate::shared::{self, Plain};

const ROUNDS: usize = 64;
/// Rounds that must have told something.
const ENOUGH: usize = 16;
/// Faults in a round: few, so that a round is over before most ticks.
const PAGES: usize = 32;
const PAGE: usize = 4096;
/// No way in and out takes longer; what says so was disturbed.
const MOST_NS: u64 = 5_000;
/// How long a round may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a round took (ns): to touch fresh pages, and to touch them again.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    fresh: u64,
    again: u64,
}

impl Kernel {
    /// Measures the unseen part of a fault (ns) and has it charged with each fault from now on.
    pub(crate) fn calibrate_faults(&mut self) {
        let Some(known) = self.mechanisms.get(Measurement::Fault).cloned() else {
            return;
        };
        let Some(hook) = known.hook else {
            return;
        };
        let said = match self.unseen_fault().and_then(|ns| self.charge_unseen(ns)) {
            Ok(ns) => {
                format!("{ns} ns are added to each fault for entering and leaving the kernel")
            }
            Err(why) => format!("the time to enter and leave the kernel stays in running: {why}"),
        };
        let why = [known.why, said].map(|part| part.trim().to_owned());
        let parts: Vec<_> = why.iter().filter(|part| !part.is_empty()).collect();
        let why: Vec<_> = parts.iter().map(|part| part.as_str()).collect();
        self.mechanisms
            .set(Measurement::Fault, Some(hook), why.join("; "));
    }

    fn charge_unseen(&mut self, ns: u64) -> io::Result<u64> {
        let unseen = shared::unseen { fault_ns: ns };
        map_of(&self.object, ".bss.unseen")
            .update(&0u32.to_ne_bytes(), unseen.as_bytes(), MapFlags::ANY)
            .map_err(io::Error::other)?;
        Ok(ns)
    }

    fn unseen_fault(&mut self) -> io::Result<u64> {
        let mut child = Child::begin()?;
        self.watch(child.pid as u32).map_err(io::Error::other)?;
        let found = self.measure(&mut child);
        self.unwatch(child.pid as u32);
        found
    }

    fn measure(&self, child: &mut Child) -> io::Result<u64> {
        let meter = Meter::of(&self.own_meters, child.pid as u32)
            .ok_or_else(|| io::Error::other("no meter was free"))?;
        // Under --sample only threads with a selected span are metered.
        meter.open()?;
        let mut unseen = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = meter.faults()?;
            let round = child.round()?;
            let after = meter.faults()?;
            let count = u64::from(after.1.wrapping_sub(before.1));
            // A huge page, or a fault that was passed over, makes it another measurement.
            if count as usize != PAGES {
                continue;
            }
            let seen = after.0 - before.0;
            let whole = round.fresh.saturating_sub(round.again);
            unseen.push(whole.saturating_sub(seen) / count);
        }
        median(unseen)
    }
}

fn median(mut rounds: Vec<u64>) -> io::Result<u64> {
    if rounds.len() < ENOUGH {
        return Err(io::Error::other("too few faults were metered"));
    }
    rounds.sort_unstable();
    let ns = rounds[rounds.len() / 2];
    if ns > MOST_NS {
        return Err(io::Error::other(format!("{ns} ns is not plausible")));
    }
    Ok(ns)
}

/// The meter of one thread that only the kernel meters.
struct Meter<'k> {
    map: &'k MapHandle,
    slot: [u8; 4],
}

impl<'k> Meter<'k> {
    /// Slots are handed out from the last one on, so the search ends soon.
    fn of(maps: &'k [MapHandle], tid: u32) -> Option<Self> {
        maps.iter().rev().find_map(|map| {
            (0..abi::TS_METERS).rev().find_map(|slot| {
                let slot = slot.to_ne_bytes();
                let meter = Self { map, slot };
                (meter.read().ok()?.kernel_tid == tid).then_some(meter)
            })
        })
    }

    fn read(&self) -> io::Result<abi::ts_meter> {
        let bytes = self
            .map
            .lookup(&self.slot, MapFlags::ANY)
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("the meter no longer exists"))?;
        if bytes.len() < size_of::<abi::ts_meter>() {
            return Err(io::Error::other("the meter is truncated"));
        }
        // SAFETY: there are as many bytes as a meter has, which is plain integers; they need not
        // be aligned.
        Ok(unsafe { bytes.as_ptr().cast::<abi::ts_meter>().read_unaligned() })
    }

    /// ns and number of its faults.
    fn faults(&self) -> io::Result<(u64, u32)> {
        let totals = self.read()?.totals;
        let cause = abi::TS_FAULT as usize;
        Ok((totals.ns[cause], totals.n[cause]))
    }

    /// Says that a span is open. Its thread is blocked, so nobody else writes.
    fn open(&self) -> io::Result<()> {
        let mut bytes = self
            .map
            .lookup(&self.slot, MapFlags::ANY)
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("the meter no longer exists"))?;
        let at = std::mem::offset_of!(abi::ts_meter, open);
        bytes[at..at + 4].copy_from_slice(&1u32.to_ne_bytes());
        self.map
            .update(&self.slot, &bytes, MapFlags::ANY)
            .map_err(io::Error::other)
    }
}

/// A process that takes page faults when told to, and ends when nobody tells it any more.
struct Child {
    pid: libc::pid_t,
    /// Closed first when it is dropped: the child then ends.
    go: Option<File>,
    said: File,
}

impl Child {
    fn begin() -> io::Result<Self> {
        let (listen, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (said, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child only makes system calls and touches memory of its own, which is
        // allowed after a fork of a process with threads, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((go, said));
                // SAFETY: this is the child, and it has nothing else to do.
                unsafe { touch_pages(&listen, &tell) }
            }
            pid => Ok(Self {
                pid,
                go: Some(go.into()),
                said: said.into(),
            }),
        }
    }

    fn round(&mut self) -> io::Result<Round> {
        self.go.as_mut().map_or(Ok(()), |go| go.write_all(&[1]))?;
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.said, PollFlags::IN)];
        if poll(&mut ready, Some(&patience))? == 0 {
            return Err(io::Error::other("the machine is too busy"));
        }
        let mut words = [0; 16];
        self.said.read_exact(&mut words)?;
        let word = |at: usize| u64::from_ne_bytes(words[at..at + 8].try_into().unwrap_or_default());
        Ok(Round {
            fresh: word(0),
            again: word(8),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.go = None;
        // SAFETY: it is our child and was not waited for, so the id is still its own; the call
        // takes no pointer that must be valid.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The child's life.
///
/// # Safety
/// Must be called in a process that has nothing else to do: it never comes back.
unsafe fn touch_pages(listen: &OwnedFd, tell: &OwnedFd) -> ! {
    use std::os::fd::AsRawFd as _;
    loop {
        let mut word = 0u8;
        // SAFETY: the byte is ours and outlives the call.
        let got = unsafe { libc::read(listen.as_raw_fd(), (&raw mut word).cast(), 1) };
        if got != 1 {
            // SAFETY: ends this process without running what its parent has registered.
            unsafe { libc::_exit(0) };
        }
        let round = touch();
        // SAFETY: the two words are ours and outlive the call.
        unsafe {
            libc::write(
                tell.as_raw_fd(),
                [round.fresh, round.again].as_ptr().cast(),
                16,
            )
        };
    }
}

/// Touches fresh pages, and again; nothing where there is no memory.
fn touch() -> Round {
    let length = PAGES * PAGE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping aliases nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return Round::default();
    }
    // SAFETY: the mapping is ours. One huge page would be one fault; refusing them may fail.
    unsafe { libc::madvise(at, length, libc::MADV_NOHUGEPAGE) };
    let pages = || {
        for page in 0..PAGES {
            // SAFETY: inside the mapping, which nobody else knows.
            unsafe { at.cast::<u8>().add(page * PAGE).write_volatile(1) };
        }
    };
    let begin = now();
    pages();
    let between = now();
    pages();
    let end = now();
    // SAFETY: mapped above with this length, and nothing points into it any more.
    unsafe { libc::munmap(at, length) };
    Round {
        fresh: between - begin,
        again: end - between,
    }
}

/// The clock that the programs read.
fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure that is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_disturbed_rounds_change_nothing() {
        let mut rounds = vec![500; 40];
        rounds.extend([90_000; 10]);
        assert_eq!(median(rounds).expect("there are enough"), 500);
    }

    #[test]
    fn what_was_hardly_measured_or_can_not_be_is_not_charged() {
        assert!(median(vec![500; ENOUGH - 1]).is_err());
        assert!(median(vec![MOST_NS + 1; ENOUGH]).is_err());
    }
}
