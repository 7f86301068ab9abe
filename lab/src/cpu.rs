//! Which CPU a thread runs on.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread on one CPU; threads that it starts later inherit that.
pub fn pin(cpu: usize) -> anyhow::Result<()> {
    anyhow::ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| {
        format!("can't run on CPU {cpu}: not on this machine, or outside this process's cpuset")
    })
}

/// Pins if a CPU was asked for.
pub fn pin_if_asked(cpu: Option<usize>) -> anyhow::Result<()> {
    cpu.map_or(Ok(()), pin)
}
