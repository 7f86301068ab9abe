//! The CPUs that are lent, and how much of their time is idle.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that a server may run on, of those that run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lane {
    /// Their numbers, sorted.
    pub cpus: Vec<u32>,
}

impl Lane {
    /// The CPUs that any thread of these processes may run on. Empty: all of them have ended.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|pid| threads_of(*pid));
        let mut all = CpuSet::new();
        for tid in threads {
            if let Ok(set) = affinity_of(tid) {
                (0..CpuSet::MAX_CPU)
                    .filter(|cpu| set.is_set(*cpu))
                    .for_each(|cpu| all.set(cpu));
            }
        }
        Self::online(cpus_in(&all))
    }

    /// Those of these CPUs that run.
    #[must_use]
    pub fn online(cpus: Vec<u32>) -> Self {
        let online = idle_ticks();
        let cpus = cpus.into_iter().filter(|cpu| online.contains_key(cpu));
        Self {
            cpus: cpus.collect(),
        }
    }

    /// As `taskset` writes them: `0-3,8`.
    #[must_use]
    pub fn list(&self) -> String {
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for cpu in &self.cpus {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
                _ => parts.push((*cpu, *cpu)),
            }
        }
        let text = parts.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        text.collect::<Vec<_>>().join(",")
    }

    /// Keeps the calling thread, and those that it starts later, off these CPUs, if it may run on others.
    pub fn keep_off(&self) {
        let others = sched_getaffinity(None).map(|mut set| {
            self.cpus.iter().for_each(|cpu| set.unset(*cpu as usize));
            set
        });
        if let Ok(set) = others
            && set.count() > 0
        {
            // Where it is refused, it stays where it is.
            let _ = sched_setaffinity(None, &set);
        }
    }

    pub(crate) fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.cpus.iter().for_each(|cpu| set.set(*cpu as usize));
        set
    }

    /// Pins a thread to them; 0: the caller.
    pub(crate) fn pin(&self, tid: u32) -> rustix::io::Result<()> {
        sched_setaffinity(Pid::from_raw(tid as i32), &self.set())
    }
}

/// The CPUs that a thread may run on.
pub(crate) fn affinity_of(tid: u32) -> rustix::io::Result<CpuSet> {
    sched_getaffinity(Pid::from_raw(tid as i32))
}

pub(crate) fn cpus_in(set: &CpuSet) -> Vec<u32> {
    let all = 0..CpuSet::MAX_CPU as u32;
    all.filter(|cpu| set.is_set(*cpu as usize)).collect()
}

/// The threads of a process; none: it has ended.
pub(crate) fn threads_of(pid: u32) -> Vec<u32> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Ticks that each online CPU was idle, with or without I/O outstanding.
fn idle_ticks() -> BTreeMap<u32, u64> {
    idle_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn idle_in(stat: &str) -> BTreeMap<u32, u64> {
    let cpus = stat.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        Some((cpu, ticks.get(3)? + ticks.get(4)?))
    });
    cpus.collect()
}

/// Adds up the time that lent CPUs were idle, while that set changes.
#[derive(Debug, Default)]
pub(crate) struct IdleTime {
    last: BTreeMap<u32, u64>,
    /// ns since it began.
    pub total_ns: u64,
}

impl IdleTime {
    /// Adds what came since the last time.
    pub(crate) fn read(&mut self, lane: &Lane) {
        let now = idle_ticks();
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        for cpu in &lane.cpus {
            if let (Some(before), Some(now)) = (self.last.get(cpu), now.get(cpu)) {
                // The kernel's count of idle time can go back by a little.
                self.total_ns += now.saturating_sub(*before) * ns_per_tick;
            }
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short() {
        let list = |cpus: &[u32]| {
            Lane {
                cpus: cpus.to_vec(),
            }
            .list()
        };
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list(&[5]), "5");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn idle_time_is_read_of_each_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu7 1 2 3 50 6 0 0 0 0 0\nintr 5\n";
        let idle = idle_in(stat);
        assert_eq!(idle.into_iter().collect::<Vec<_>>(), [(0, 45), (7, 56)]);
        assert!(idle_in("cpu0 1\ncpux 1 2 3 4 5\n").is_empty());
    }

    #[test]
    fn our_own_cpus_are_a_lane() {
        let lane = Lane::of(&[std::process::id()]);
        assert!(!lane.cpus.is_empty());
        assert!(Lane::of(&[u32::MAX]).cpus.is_empty());
    }
}
