//! Whether other programs had the CPUs.
//!
//! A delegated session needs both CPUs at the same time. So another program slows `delegate` down
//! more than `sync`, and a ratio from such a time is wrong. The kernel counts these waits.

use std::fs;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// A larger share makes figures doubtful.
pub const MOST: f64 = 0.05;

/// The waits of all threads of this process, which must live until the end: for a segment.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    start: Instant,
    before: Option<Duration>,
    cpus: usize,
}

impl Waiting {
    /// Starts; the process keeps this number of CPUs busy.
    #[must_use]
    pub fn start(cpus: usize) -> Self {
        Self {
            before: waited(),
            start: Instant::now(),
            cpus,
        }
    }

    /// The share of the CPUs' time since the start that the threads waited; `None` if the kernel
    /// does not count it.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let took = self.start.elapsed().as_secs_f64() * self.cpus as f64;
        let waited = waited()?.saturating_sub(self.before?);
        Some(waited.as_secs_f64() / took)
    }
}

/// The sum over the threads of the second field of schedstat: ns on a run queue.
fn waited() -> Option<Duration> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else {
            continue;
        };
        let waited = text.split_whitespace().nth(1)?;
        sum += waited.parse::<u64>().ok()?;
    }
    (sum > 0).then(|| Duration::from_nanos(sum))
}

/// What others than this process used of some CPUs: for a second or more, as the kernel counts in
/// steps of 10 ms.
#[derive(Debug)]
pub struct Others {
    cpus: Vec<u32>,
    start: Instant,
    before: Option<f64>,
}

impl Others {
    /// Starts.
    #[must_use]
    pub fn start(cpus: &[u32]) -> Self {
        Self {
            before: used_by_others(cpus),
            cpus: cpus.to_vec(),
            start: Instant::now(),
        }
    }

    /// The share of these CPUs' time since the start that other programs, interrupts or the
    /// hypervisor had; `None` if the kernel does not say. This process must run nowhere else.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let took = self.start.elapsed().as_secs_f64() * self.cpus.len() as f64;
        Some(((used_by_others(&self.cpus)? - self.before?) / took).max(0.0))
    }
}

/// Seconds that the CPUs were busy, less the CPU time of this process with its ended threads.
fn used_by_others(cpus: &[u32]) -> Option<f64> {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = own.tv_sec as f64 + own.tv_nsec as f64 / 1e9;
    let text = fs::read_to_string("/proc/stat").ok()?;
    let busy: Option<u64> = cpus.iter().map(|cpu| busy_ticks(&text, *cpu)).sum();
    Some(busy? as f64 / clock_ticks_per_second() as f64 - own)
}

/// All fields of a CPU's line but idle and iowait, up to steal. The later ones are parts of others.
fn busy_ticks(stat: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let fields = line.split_whitespace().take(8).enumerate();
    let busy = fields.filter(|(i, _)| !matches!(i, 3 | 4));
    busy.map(|(_, ticks)| ticks.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_with_everything_but_idle_and_iowait() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 4 100 200 8 16 32 5 7\ncpu10 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat, 1), Some(63));
        assert_eq!(busy_ticks(stat, 10), Some(6));
        assert_eq!(busy_ticks(stat, 2), None);
        assert_eq!(busy_ticks("cpu1 1 x 3\n", 1), None);
    }
}
