//! A process whose only life is to be measured: it takes page faults, or is interrupted.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{MembarrierCommand, membarrier};

/// Faults in a round: few, so that a round is over before most ticks.
pub(super) const PAGES: usize = 32;
const PAGE: usize = 4096;
/// How long a round of interrupts is: dozens of them.
const SPIN_NS: u64 = 200_000;
/// Readings of the clock that show how long one takes.
const READINGS: usize = 64;
/// As many times longer than one reading is an interruption.
const GAP: u64 = 4;
/// How long a round may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the child does in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Work {
    /// Touches fresh pages.
    Touch = 1,
    /// Reads the clock again and again, while its CPU is interrupted.
    Spin = 2,
}

/// Ends when it is dropped, and when its parent ends.
pub(super) struct Child {
    pub(super) pid: libc::pid_t,
    go: File,
    said: File,
}

impl Child {
    pub(super) fn begin() -> io::Result<Self> {
        let (listen, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (said, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child only makes system calls and touches memory of its own, which is
        // allowed after a fork of a process with threads, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((go, said));
                // SAFETY: this is the child, and it has nothing else to do.
                unsafe { obey(&listen, &tell) }
            }
            pid => Ok(Self {
                pid,
                go: go.into(),
                said: said.into(),
            }),
        }
    }

    /// What a round's events took (ns), by the child's clock.
    pub(super) fn round(&mut self, work: Work) -> io::Result<u64> {
        self.go.write_all(&[work as u8])?;
        let deadline = Instant::now() + PATIENCE;
        let pause = match work {
            Work::Touch => PATIENCE,
            Work::Spin => Duration::ZERO,
        };
        while !self.has_said(pause)? {
            if Instant::now() >= deadline {
                return Err(io::Error::other("the machine is too busy"));
            }
            // Interrupts each CPU where a process runs that has asked for it: the child.
            membarrier(MembarrierCommand::GlobalExpedited)?;
        }
        let mut word = [0; 8];
        self.said.read_exact(&mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn has_said(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).map_err(io::Error::other)?;
        Ok(poll(&mut [PollFd::new(&self.said, PollFlags::IN)], Some(&within))? != 0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // To close the pipe is not enough: another thread may have forked while it was open, and that
        // child has it too.
        // SAFETY: it is our child and was not waited for, so the id is still its own; the calls
        // take no pointer that must be valid.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The child's life.
///
/// # Safety
/// Must be called in a process that has nothing else to do: it never comes back.
unsafe fn obey(listen: &OwnedFd, tell: &OwnedFd) -> ! {
    // Where that is refused, no interrupt comes, and too few are counted.
    let _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
    loop {
        let mut word = 0u8;
        // SAFETY: the byte is ours and outlives the call.
        let got = unsafe { libc::read(listen.as_raw_fd(), (&raw mut word).cast(), 1) };
        if got != 1 {
            // SAFETY: ends this process without running what its parent has registered.
            unsafe { libc::_exit(0) };
        }
        let took = if word == Work::Spin as u8 {
            spin()
        } else {
            touch()
        };
        // SAFETY: the word is ours and outlives the call.
        unsafe { libc::write(tell.as_raw_fd(), (&raw const took).cast(), 8) };
    }
}

/// How much longer it takes to touch fresh pages than to touch them again; 0 without memory.
fn touch() -> u64 {
    let length = PAGES * PAGE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping aliases nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0) };
    if at == libc::MAP_FAILED {
        return 0;
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
    (between - begin).saturating_sub(end - between)
}

/// How long this thread did not run between two readings of the clock, in all.
fn spin() -> u64 {
    let begin = now();
    let (mut last, mut reading) = (begin, u64::MAX);
    for _ in 0..READINGS {
        let at = now();
        reading = reading.min(at - last);
        last = at;
    }
    let mut lost = 0;
    while last - begin < SPIN_NS {
        let at = now();
        let step = at - last;
        if step > GAP * reading {
            lost += step - reading;
        }
        last = at;
    }
    lost
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
