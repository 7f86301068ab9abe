//! How long a cache line takes from one CPU to the other, measured between segments.
//!
//! Hosts of virtual machines move their CPUs within seconds, and the line's time then changes by a
//! factor. So each round of an experiment has its own figure.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tailscope_fibre::Here;

use crate::chase::alone::Alone;

/// Round trips of one measurement: 0.1 ms where a line takes 100 ns.
const TRIPS: u64 = 500;
/// A side gives up when the other does not answer for this time, because it does not run.
const PATIENCE: Duration = Duration::from_millis(30);
/// The high bits of the line number the measurements, the low ones the transfers.
const NUMBER: u32 = 32;

/// A line that two fibres send to and fro.
#[derive(Debug, Default)]
pub struct Probe {
    line: Alone<AtomicU64>,
    /// The number of the measurement that is wanted.
    wanted: Alone<AtomicU64>,
    /// The number of the measurement that is finished, and the picoseconds of a transfer: 0 if it
    /// failed.
    result: Alone<[AtomicU64; 2]>,
    stopped: AtomicBool,
}

impl Probe {
    /// Asks both sides for a measurement, and waits for it: ns from one CPU to the other.
    pub fn measure(&self) -> Option<f64> {
        let number = self.wanted.0.load(Ordering::Relaxed) + 1;
        self.line.0.store(number << NUMBER, Ordering::Relaxed);
        self.wanted.0.store(number, Ordering::Release);
        let start = Instant::now();
        let [finished, picos] = &self.result.0;
        while finished.load(Ordering::Acquire) != number {
            if start.elapsed() > 10 * PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let picos = picos.load(Ordering::Relaxed);
        (picos > 0).then_some(picos as f64 / 1e3)
    }

    /// Ends both sides.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// The body of the fibre at one end: side 0 keeps the time.
    pub fn serve(&self, here: &Here<'_>, side: u64) {
        let mut answered = 0;
        while !self.stopped.load(Ordering::Acquire) {
            let wanted = self.wanted.0.load(Ordering::Acquire);
            if wanted != answered {
                answered = wanted;
                let took = self.send(wanted << NUMBER, side);
                if side == 0 {
                    let [finished, picos] = &self.result.0;
                    picos.store(took.map_or(0, |ns| (ns * 1e3) as u64), Ordering::Relaxed);
                    finished.store(wanted, Ordering::Release);
                }
            }
            here.yield_now();
        }
    }

    /// One end's part: waits for its turn, and adds one. The first trip waits for the other side.
    fn send(&self, base: u64, side: u64) -> Option<f64> {
        let mut start = Instant::now();
        for trip in 0..TRIPS {
            let turn = base + 2 * trip + side;
            let mut polls = 0u32;
            while self.line.0.load(Ordering::Acquire) != turn {
                spin_loop();
                polls += 1;
                if polls.is_multiple_of(1 << 12) && start.elapsed() > PATIENCE {
                    return None;
                }
            }
            if trip == 1 {
                start = Instant::now();
            }
            self.line.0.store(turn + 1, Ordering::Release);
        }
        // Side 0 starts and ends with its own turn: two transfers for each trip between them.
        Some(start.elapsed().as_nanos() as f64 / (2 * (TRIPS - 2)) as f64)
    }
}
