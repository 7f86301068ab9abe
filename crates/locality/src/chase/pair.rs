//! Are two CPUs two cores? The topology says so, and a measurement checks it.
//!
//! A host may run two virtual CPUs on the hardware threads of one core, and show two cores. So one
//! CPU runs a loop of arithmetic that fills a core, in turns with and without the same loop on the
//! other CPU. Two threads of one core then slow each other down; two cores hardly do.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tailscope_fibre::{Cluster, Here, Runtime, StartError};

use crate::chase::interval::{Interval, MANY, geometric_mean, spread};
use crate::chase::probe::Probe;

/// What the measurement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They hardly slow each other down.
    TwoCores,
    /// They slow each other down as threads of one core do.
    OneCore,
    /// Neither is certain.
    Unknown,
}

/// What was found about two CPUs.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// Arithmetic per CPU time of the first CPU with the second one busy, over that with it idle.
    pub beside: Option<Interval>,
    /// Whether they behave as two cores.
    pub verdict: Verdict,
    /// ns of a cache line from one to the other: median, 5th and 95th percentile.
    pub line_ns: Option<[f64; 3]>,
}

/// Threads of one core that fill it get 50 to 65 % each. Two cores lose at most some clock rate.
const ONE: f64 = 0.75;
const TWO: f64 = 0.9;
const TURNS: usize = 100;
const TURN: Duration = Duration::from_millis(2);
const LINES: usize = 100;
const FEW_LINES: usize = 5;
/// Times of a line differ by less where the CPUs are as far apart.
const AS_FAR: f64 = 1.5;

/// Measures two CPUs: half a second.
///
/// # Errors
///
/// If no thread can be pinned there, or started.
pub fn measure(cpus: [u32; 2]) -> Result<Pair, StartError> {
    let runtime = Runtime::start(&cpus.map(|cpu| Cluster { cpus: vec![cpu] }))?;
    let beside = slowdown(&runtime)?;
    let verdict = match &beside {
        Some(ratio) if ratio.low >= TWO => Verdict::TwoCores,
        Some(ratio) if ratio.high <= ONE => Verdict::OneCore,
        _ => Verdict::Unknown,
    };
    Ok(Pair {
        beside,
        verdict,
        line_ns: spread(&line(&runtime, LINES)?),
    })
}

/// ns of a cache line from the first CPU to the second one, now: it takes some milliseconds of both.
/// The least of a few figures, as others may have had a CPU in between. `None`: they had them all along.
///
/// # Errors
///
/// As for [`measure`].
pub fn line_ns(cpus: [u32; 2]) -> Result<Option<f64>, StartError> {
    let runtime = Runtime::start(&cpus.map(|cpu| Cluster { cpus: vec![cpu] }))?;
    let found = line(&runtime, FEW_LINES)?;
    Ok(found.into_iter().reduce(f64::min))
}

/// Whether two such times are of CPUs that are as far apart. Hosts of virtual machines move their
/// CPUs within seconds, by a factor of two and more.
#[must_use]
pub fn is_as_far(line_ns: f64, other: f64) -> bool {
    (line_ns / other).ln().abs() < AS_FAR.ln()
}

/// What the first CPU tells the second one, and the rounds that the second one did.
#[derive(Debug, Default)]
struct Other {
    is_busy: AtomicBool,
    has_ended: AtomicBool,
    rounds: AtomicU64,
}

impl Other {
    fn work(&self) {
        while !self.has_ended.load(Ordering::Relaxed) {
            if self.is_busy.load(Ordering::Relaxed) {
                arithmetic();
                self.rounds.fetch_add(1, Ordering::Relaxed);
            } else {
                thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// The first CPU's speed over its own with the second one idle; `None` if another program kept
    /// the second CPU from working at the same time.
    fn ratio(&self) -> Option<f64> {
        let turn = |is_busy: bool| {
            self.is_busy.store(is_busy, Ordering::Relaxed);
            // The other CPU looks up at least as often.
            let _ = speed(TURN / 4);
            let before = self.rounds.load(Ordering::Relaxed);
            let (speed, rounds) = speed(TURN);
            let beside = self.rounds.load(Ordering::Relaxed) - before;
            (!is_busy || 2 * beside > rounds).then_some(speed)
        };
        Some(turn(true)? / turn(false)?)
    }
}

/// The ratios of neighbouring turns, with the other CPU busy and idle.
fn slowdown(runtime: &Runtime) -> io::Result<Option<Interval>> {
    let other = Arc::new(Other::default());
    let shared = Arc::clone(&other);
    let beside = runtime.spawn(1, move |_| shared.work())?;
    let first = runtime.spawn(0, move |_| {
        let ratios: Vec<f64> = (0..TURNS).filter_map(|_| other.ratio()).collect();
        other.has_ended.store(true, Ordering::Relaxed);
        ratios
    })?;
    let ratios = first.join().unwrap_or_default();
    let _ = beside.join();
    Ok(geometric_mean(&ratios, MANY, 1))
}

/// Rounds of arithmetic per CPU time of this thread, so that a preemption does not count, and their
/// number.
fn speed(turn: Duration) -> (f64, u64) {
    let cpu_time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (start, before) = (Instant::now(), cpu_time());
    let mut rounds = 0;
    while start.elapsed() < turn {
        arithmetic();
        rounds += 1;
    }
    (rounds as f64 / (cpu_time() - before).max(1e-9), rounds)
}

/// Some microseconds of independent additions and multiplications, which fill a core's units.
fn arithmetic() {
    let mut lanes = black_box([1u64, 2, 3, 4, 5, 6, 7, 8]);
    for i in 0..2_000u64 {
        for lane in &mut lanes {
            *lane = (*lane ^ i).wrapping_mul(3).wrapping_add(*lane >> 7);
        }
    }
    black_box(lanes);
}

fn line(runtime: &Runtime, number: usize) -> io::Result<Vec<f64>> {
    let probe = Arc::new(Probe::default());
    let serve = |side: u64| {
        let probe = Arc::clone(&probe);
        runtime.spawn(side as usize, move |here: &Here<'_>| {
            probe.serve(here, side)
        })
    };
    let ends = [serve(0)?, serve(1)?];
    // Where one fails, another program keeps a CPU: the next ones would take as long.
    let found: Vec<f64> = (0..number).map_while(|_| probe.measure()).collect();
    probe.stop();
    for end in ends {
        // A side that panicked has no result, and `found` is empty then.
        let _ = end.join();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_measured_and_a_missing_cpu_is_refused() {
        let set = rustix::thread::sched_getaffinity(None).expect("own affinity");
        if !(set.is_set(0) && set.is_set(1)) {
            println!("skipped: needs CPUs 0 and 1");
            return;
        }
        let pair = measure([0, 1]).expect("a pair");
        match pair.beside {
            Some(beside) => assert!(beside.low <= beside.value && beside.value <= beside.high),
            // Other programs had one of the CPUs all the time.
            None => assert_eq!(pair.verdict, Verdict::Unknown),
        }
        if let Some([median, least, most]) = pair.line_ns {
            assert!(0.0 < least && least <= median && median <= most);
        }
        assert!(measure([0, 1023]).is_err());
    }
}
