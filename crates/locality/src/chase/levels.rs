//! The latency of dependent loads by working-set size, and the sizes at which it rises.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;
use tailscope_fibre::{Cluster, Memory, Pages, Runtime};

use crate::chase::experiment::{ExperimentError, check_memory};
use crate::chase::plan::SLOTS;

/// The latency at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Bytes of the working set.
    pub bytes: u64,
    /// ns of one dependent load, at random lines: the lower quartile of the sweeps, as whatever
    /// disturbs a sweep makes it longer.
    pub ns: f64,
}

/// Sizes of one octave.
const STEPS: u32 = 8;
const SWEEPS: usize = 7;
/// How long one measurement takes at least.
const LEAST: Duration = Duration::from_micros(500);
/// Loads between two readings of the clock: a reading takes as long as dozens of them.
const BETWEEN_CLOCKS: usize = 4096;

/// Measures sizes from `from` to `to` bytes on one CPU, each line once per loop, without writes.
///
/// # Errors
///
/// If the thread can't be pinned, memory is missing, or `stop` became true.
pub fn curve(
    cpu: u32,
    from: u64,
    to: u64,
    pages: Pages,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Latency>, ExperimentError> {
    let mut sizes = Vec::new();
    for step in 0.. {
        let bytes = (from as f64 * f64::from(step).exp2().powf(1.0 / f64::from(STEPS))) as u64;
        if bytes > to {
            break;
        }
        sizes.push(bytes / 64 * 64);
    }
    // All circles stay in memory, so that sweeps go over all sizes. A region has whole huge pages.
    check_memory(
        sizes
            .iter()
            .map(|bytes| bytes.next_multiple_of(2 << 20))
            .sum(),
    )?;
    let runtime = Runtime::start(&[Cluster { cpus: vec![cpu] }])?;
    let mut circles = Vec::new();
    for bytes in &sizes {
        circles.push(Circle::new(*bytes, pages, &mut Rng::with_seed(*bytes))?);
    }
    let stop = Arc::clone(stop);
    let swept = runtime.spawn(0, move |_| {
        let mut found = vec![Vec::new(); circles.len()];
        for _ in 0..SWEEPS {
            for (circle, found) in circles.iter().zip(&mut found) {
                if stop.load(Ordering::Relaxed) {
                    return None;
                }
                found.push(circle.latency());
            }
        }
        Some(found)
    })?;
    let swept = swept.join().map_err(|_| ExperimentError::Session)?;
    let swept = swept.ok_or(ExperimentError::Interrupted)?;
    let latencies = sizes.iter().zip(swept);
    let latencies = latencies.map(|(bytes, found)| Latency {
        bytes: *bytes,
        ns: lower_quartile(found),
    });
    Ok(latencies.collect())
}

fn lower_quartile(mut found: Vec<f64>) -> f64 {
    found.sort_unstable_by(f64::total_cmp);
    found[found.len() / 4]
}

/// One word of each line, linked into a circle in random order. A word is the index of the next one.
///
/// A step is a load and nothing else. The path of an experiment says more in each word, and what
/// takes a word apart would hide part of the rise from one cache to the next.
struct Circle {
    memory: Memory,
    lines: usize,
    start: u32,
}

impl Circle {
    fn new(bytes: u64, pages: Pages, rng: &mut Rng) -> io::Result<Self> {
        let lines = (bytes / 64).max(1) as usize;
        let memory = Memory::new(lines * SLOTS, pages)?;
        let mut order: Vec<usize> = (0..lines).collect();
        rng.shuffle(&mut order);
        let order: Vec<usize> = order
            .iter()
            .map(|l| l * SLOTS + rng.usize(..SLOTS))
            .collect();
        for (word, next) in order.iter().zip(order.iter().cycle().skip(1)) {
            memory.words()[*word].store(*next as u32, Ordering::Relaxed);
        }
        let start = order[0] as u32;
        Ok(Self {
            memory,
            lines,
            start,
        })
    }

    /// Goes on from there, and returns where it is then.
    fn walk(&self, mut place: u32, steps: usize) -> u32 {
        let words = self.memory.words();
        for _ in 0..steps {
            place = words[place as usize].load(Ordering::Relaxed);
        }
        black_box(place)
    }

    /// ns of one load, after two loops that fill the caches.
    fn latency(&self) -> f64 {
        let mut place = self.walk(self.start, 2 * self.lines);
        let steps = self.lines.max(BETWEEN_CLOCKS);
        let start = Instant::now();
        let mut done = 0;
        while start.elapsed() < LEAST {
            place = self.walk(place, steps);
            done += steps;
        }
        start.elapsed().as_nanos() as f64 / done as f64
    }
}

/// Half an octave: the window in which a rise is looked for.
const WINDOW: usize = STEPS as usize / 2;
/// The latency rises where it grows by more than this factor within a window. Where the address
/// translation (TLB) reaches a limit, it grows by less.
const STEEP: f64 = 1.2;
/// A rise from one level of the caches to the next has at least this factor in all.
const LEVEL: f64 = 1.6;

/// The sizes at which the latency rises from one level of the caches to the next, in bytes.
///
/// The fit is a curve that never falls. A knee is where it is halfway up a rise, on logarithmic
/// scales. The start of a rise says less: where a cache's sets fill unevenly, it lies lower.
#[must_use]
pub fn knees(curve: &[Latency]) -> Vec<u64> {
    let fit = never_falling(curve);
    let is_steep = |i: &usize| fit[i + WINDOW] - fit[*i] > STEEP.ln();
    let mut knees = Vec::new();
    let mut next = 0;
    while let Some(start) = (next..fit.len().saturating_sub(WINDOW)).find(is_steep) {
        let windows = (start..fit.len() - WINDOW).take_while(is_steep);
        let end = windows.last().unwrap_or(start) + WINDOW;
        if fit[end] - fit[start] >= LEVEL.ln() {
            knees.push(crossing(curve, &fit, start, (fit[start] + fit[end]) / 2.0));
        }
        next = end;
    }
    knees
}

/// The logarithms of the latencies, by isotonic regression: neighbours that fall are averaged.
fn never_falling(curve: &[Latency]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for latency in curve {
        let mut pool = (latency.ns.ln(), 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean > pool.0) {
            let all = (count + pool.1) as f64;
            pool = (
                (mean * count as f64 + pool.0 * pool.1 as f64) / all,
                count + pool.1,
            );
        }
        pools.push(pool);
    }
    let values = pools.into_iter();
    values
        .flat_map(|(mean, count)| std::iter::repeat_n(mean, count))
        .collect()
}

/// Where the fit reaches a height after `start`, which lies below it.
fn crossing(curve: &[Latency], fit: &[f64], start: usize, height: f64) -> u64 {
    let above = (start..fit.len()).find(|i| fit[*i] >= height);
    let above = above.unwrap_or(fit.len() - 1).max(1);
    let below = above - 1;
    let share = (height - fit[below]) / (fit[above] - fit[below]).max(f64::MIN_POSITIVE);
    let (from, to) = (curve[below].bytes as f64, curve[above].bytes as f64);
    (from * (to / from).powf(share.clamp(0.0, 1.0))) as u64
}

/// The knee that belongs to a cache: the nearest one within a factor of two.
#[must_use]
pub fn knee_of(cache: u64, knees: &[u64]) -> Option<u64> {
    let distance = |knee: &u64| (*knee as f64 / cache as f64).ln().abs();
    let near = knees
        .iter()
        .copied()
        .filter(|knee| distance(knee) <= 2f64.ln());
    near.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of random lines under caches that keep lines at random, with noise of 3 %.
    fn modelled(l1: f64, l2: f64, seed: u64) -> Vec<Latency> {
        let mut rng = Rng::with_seed(seed);
        let at = |step: u32| {
            let bytes = 8192.0 * f64::from(step).exp2().powf(1.0 / f64::from(STEPS));
            let hits = |cache: f64| (cache / bytes).min(1.0);
            let miss1 = 1.0 - hits(l1).powi(3);
            let miss2 = 1.0 - hits(l2).powi(3);
            let ns = 1.5 + miss1 * (4.0 + miss2 * 30.0);
            Latency {
                bytes: bytes as u64,
                ns: ns * (0.97 + 0.06 * rng.f64()),
            }
        };
        (0..80).map(at).collect()
    }

    #[test]
    fn planted_knees_are_found_within_a_quarter() {
        for (l1, l2) in [(32e3, 256e3), (48e3, 2e6), (64e3, 1e6), (32e3, 1.25e6)] {
            for seed in 0..50 {
                let found = knees(&modelled(l1, l2, seed));
                for (found, planted) in found.iter().zip([l1, l2]) {
                    let ratio = *found as f64 / planted;
                    assert!(
                        (0.75..1.25).contains(&ratio),
                        "{ratio} of {planted}, seed {seed}"
                    );
                }
                assert_eq!(found.len(), 2, "{l1} {l2}, seed {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn a_circle_has_each_line_once() {
        let mut rng = Rng::with_seed(3);
        for lines in [1, 2, 7, 300] {
            let circle = Circle::new(lines * 64, Pages::Small, &mut rng).expect("memory");
            let mut place = circle.start;
            let mut seen: Vec<usize> = Vec::new();
            for _ in 0..lines {
                seen.push(place as usize / SLOTS);
                place = circle.memory.words()[place as usize].load(Ordering::Relaxed);
            }
            assert_eq!(place, circle.start);
            seen.sort_unstable();
            assert_eq!(seen, (0..lines as usize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_flat_or_short_curve_has_no_knee() {
        let flat: Vec<_> = (1..40)
            .map(|i| Latency {
                bytes: i << 12,
                ns: 2.0,
            })
            .collect();
        assert!(knees(&flat).is_empty());
        assert!(knees(&flat[..2]).is_empty());
        assert!(knees(&[]).is_empty());
    }
}
