//! Two threads on two CPUs: a process that interrupts others does not interrupt its own CPU.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread off the CPU of another, until it is dropped.
pub(super) struct Apart {
    other: Option<Pid>,
    /// Where both were allowed to run.
    allowed: CpuSet,
    cpus: Vec<usize>,
}

impl Apart {
    pub(super) fn from(other: libc::pid_t) -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .collect();
        if cpus.len() < 2 {
            return Err(io::Error::other("only one CPU may be used"));
        }
        Ok(Self {
            other: Pid::from_raw(other),
            allowed,
            cpus,
        })
    }

    /// Gives the other thread a CPU: in each turn the next, as one of them may be busy.
    pub(super) fn take_turn(&self, turn: usize) -> io::Result<()> {
        let cpu = self.cpus[turn % self.cpus.len()];
        let mut only = CpuSet::new();
        only.set(cpu);
        let mut without = self.allowed;
        without.unset(cpu);
        sched_setaffinity(self.other, &only)?;
        Ok(sched_setaffinity(None, &without)?)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It fails only if these CPUs are gone. The kernel has then chosen others.
        let _ = sched_setaffinity(None, &self.allowed);
    }
}
