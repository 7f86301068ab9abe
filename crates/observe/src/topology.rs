//! Which CPUs there are, and which of them share a core.

use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::process::parse_cpu_list;

/// The CPUs of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Those that run.
    pub online: Vec<u32>,
    /// Those that are there, running or not.
    pub present: Vec<u32>,
    /// By CPU, the hardware threads of its core, itself among them.
    pub(crate) siblings: Vec<(u32, Vec<u32>)>,
}

impl Topology {
    /// Of this machine.
    pub fn here() -> io::Result<Self> {
        Self::read(Path::new("/sys/devices/system/cpu"))
    }

    /// Of what a folder like /sys/devices/system/cpu says.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let online = parse_cpu_list(&fs::read_to_string(folder.join("online"))?);
        let present = fs::read_to_string(folder.join("present"))
            .map_or_else(|_| online.clone(), |text| parse_cpu_list(&text));
        let siblings = online
            .iter()
            .map(|cpu| {
                let path = format!("cpu{cpu}/topology/thread_siblings_list");
                let text = fs::read_to_string(folder.join(path)).unwrap_or_default();
                let mut threads = parse_cpu_list(&text);
                if !threads.contains(cpu) {
                    threads.push(*cpu);
                }
                (*cpu, threads)
            })
            .collect();
        Ok(Self {
            online,
            present,
            siblings,
        })
    }

    /// Whether both are hardware threads of one core.
    #[must_use]
    pub fn share_core(&self, one: u32, other: u32) -> bool {
        self.siblings
            .iter()
            .any(|(cpu, threads)| *cpu == one && threads.contains(&other))
    }
}

/// The CPUs that the calling thread may run on.
pub fn allowed_here() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect())
}
