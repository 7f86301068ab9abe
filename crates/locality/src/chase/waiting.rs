//! How long this process's threads waited for a CPU that other programs had.
//!
//! A delegated session needs both CPUs at the same time. So another program slows `delegate` down
//! more than `sync`, and a ratio from such a time is wrong. The kernel counts these waits.

use std::fs;
use std::time::{Duration, Instant};

/// A larger share makes figures doubtful.
pub const MOST: f64 = 0.05;

/// A measurement of the waits of all threads of this process.
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
        // A thread that has ended takes its waits along.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn threads_that_share_a_cpu_wait_for_it() {
        let mut cpu = CpuSet::new();
        let allowed = sched_getaffinity(None).expect("own affinity");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        cpu.set(first.expect("a CPU"));
        let ended = AtomicBool::new(false);
        let share = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    sched_setaffinity(None, &cpu).expect("an allowed CPU");
                    while !ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let waiting = Waiting::start(1);
            thread::sleep(Duration::from_millis(300));
            let share = waiting.share();
            ended.store(true, Ordering::Relaxed);
            share
        });
        match share {
            // Two threads want the CPU all the time, and one of them has it at most.
            Some(share) => assert!(share > 0.5, "{share}"),
            None => println!("skipped: this kernel does not count waits (schedstat)"),
        }
    }
}
