//! Work that accesses no memory, of a given length.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of a measurement: some milliseconds.
const STEPS: u64 = 1 << 20;
const ATTEMPTS: usize = 5;

/// Steps of work. Each needs the result of the one before, so they take equal times.
#[inline(never)]
pub fn work(steps: u64) {
    let mut number = black_box(steps);
    for _ in 0..steps {
        number = black_box(number).wrapping_mul(5).wrapping_add(1);
    }
    black_box(number);
}

/// The steps of these lengths; empty if all are empty.
pub fn steps(lengths_ns: &[f64]) -> Vec<u64> {
    if lengths_ns.iter().all(|ns| *ns <= 0.0) {
        return Vec::new();
    }
    let rate = steps_per_us() / 1e3;
    lengths_ns
        .iter()
        .map(|ns| (ns.max(0.0) * rate) as u64)
        .collect()
}

/// Steps of a microsecond: the fastest of some attempts, as others may have the CPU.
fn steps_per_us() -> f64 {
    let took = |_| {
        let start = Instant::now();
        work(STEPS);
        start.elapsed()
    };
    let best = (0..ATTEMPTS).map(took).min().unwrap_or(Duration::MAX);
    STEPS as f64 / (best.as_secs_f64() * 1e6)
}
