//! Time that the hypervisor took away, from `/proc/stat`: in steps of a clock tick, per CPU.
//!
//! The kernel keeps it more finely, in a structure that it does not show to programs
//! (`steal_time` of arch/x86/kernel/kvm.c is in no table of symbols). So what is known of a span
//! is only how much was stolen from its CPU in the interval in which it ended; it gets the share
//! that its own running time has in that interval.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Column of `cpuN` lines, after the name: user nice system idle iowait irq softirq steal.
const STEAL_COLUMN: usize = 7;
const FILE: &str = "/proc/stat";

/// An interval, and one while there is nothing to see.
const INTERVAL: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(500);

/// Reads stolen time, interval by interval.
#[derive(Debug)]
pub struct StealClock {
    tick_ns: u64,
    /// Kept open, and read by one call: ten times a second it shows.
    file: File,
    /// Room for the lines of twice as many CPUs, which come first.
    buffer: Vec<u8>,
    last: Vec<u64>,
    at: Instant,
    /// For each CPU: the part of the last interval that was stolen.
    share: Vec<f64>,
}

impl StealClock {
    /// Starts if this machine has ever been told of stolen time; `None` if not: then 0 would be
    /// a guess.
    #[must_use]
    pub fn start() -> Option<Self> {
        let text = fs::read_to_string(FILE).ok()?;
        let of_cpus = text.find("\nintr").unwrap_or(text.len());
        let last = read(&text);
        let ever = last.iter().any(|ticks| *ticks > 0);
        if !ever {
            return None;
        }
        Some(Self {
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            file: File::open(FILE).ok()?,
            buffer: vec![0; 2 * of_cpus + 256],
            share: vec![0.0; last.len()],
            last,
            at: Instant::now(),
        })
    }

    /// Ends an interval, if it was at least 100 ms long. `idle`: no spans have come for a while; then,
    /// and as long as nothing is stolen, intervals are longer, for the kernel counts all its interrupts
    /// anew for each reading.
    pub fn tick(&mut self, idle: bool) {
        let elapsed = self.at.elapsed();
        let nothing = self.share.iter().all(|share| *share == 0.0);
        if elapsed < if idle && nothing { IDLE } else { INTERVAL } {
            return;
        }
        let Ok(length) = self.file.read_at(&mut self.buffer, 0) else {
            return;
        };
        let text = String::from_utf8_lossy(&self.buffer[..length]);
        // The last line may be cut.
        let now = read(text.rsplit_once('\n').map_or("", |(whole, _)| whole));
        self.share = now
            .iter()
            .zip(self.last.iter().chain(std::iter::repeat(&0)))
            .map(|(now, last)| {
                let stolen = now.saturating_sub(*last) * self.tick_ns;
                (stolen as f64 / elapsed.as_nanos() as f64).min(1.0)
            })
            .collect();
        self.last = now;
        self.at = Instant::now();
    }

    /// The stolen part of `running_ns` on `cpu` in the last interval.
    #[must_use]
    pub fn of(&self, cpu: u16, running_ns: i64) -> i64 {
        let share = self.share.get(usize::from(cpu)).copied().unwrap_or(0.0);
        (running_ns.max(0) as f64 * share) as i64
    }
}

fn read(stat: &str) -> Vec<u64> {
    stat.lines()
        .filter(|line| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(|line| {
            line.split_whitespace()
                .nth(STEAL_COLUMN + 1)
                .and_then(|ticks| ticks.parse().ok())
                .unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_read_per_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 30 0 0\ncpu0 1 2 3 4 5 6 7 12 0 0\ncpu1 1 2 3 4 5 6 7 18 0\nintr 5\n";
        assert_eq!(read(stat), [12, 18]);
    }

    #[test]
    fn a_span_gets_the_share_of_its_running_time() {
        let steal = StealClock {
            tick_ns: 10_000_000,
            file: File::open(FILE).expect("Linux has it"),
            buffer: Vec::new(),
            last: vec![0, 0],
            at: Instant::now(),
            share: vec![0.25, 0.0],
        };
        assert_eq!(
            [steal.of(0, 1000), steal.of(1, 1000), steal.of(9, 1000)],
            [250, 0, 0]
        );
    }
}
