//! Tracepoints that are counted at a time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tailscope_kernel::cost::Counts;

use super::{Effort, HookRate, WINDOWS, combined};
use crate::statistics::Estimate;

/// Hits of all tracepoints after which counting ends, of some 30 ns each.
const HITS: u64 = 30_000;
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// The windows of one tracepoint, (hits, seconds) each; or why there are none.
pub(super) type Found = Result<Vec<(u64, f64)>, String>;

/// Counts them for at most so long.
pub(super) fn count(
    counts: &mut Counts,
    names: &[String],
    most: Duration,
    effort: &mut Effort,
) -> Vec<Found> {
    if names.is_empty() {
        return Vec::new();
    }
    let at_first = counts.counted().ours;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let begin = Instant::now();
    let refused = counts.tracepoints(&names);
    let hits = |counts: &Counts| -> Vec<u64> {
        (0..names.len())
            .map(|place| counts.hits_of(place))
            .collect()
    };
    // Attaching took some of the time.
    let each = most.saturating_sub(begin.elapsed()) / WINDOWS;
    let attached = counts.counted().ours;
    let mut found: Vec<Found> = refused
        .into_iter()
        .map(|why| why.map_or(Ok(Vec::new()), Err))
        .collect();
    for number in 1..=u64::from(WINDOWS) {
        let (start, from) = (Instant::now(), hits(counts));
        while start.elapsed() < each
            && counts.counted().ours - attached < HITS * number / u64::from(WINDOWS)
        {
            sleep(LOOK);
        }
        let (seconds, to) = (start.elapsed().as_secs_f64(), hits(counts));
        for (one, (to, from)) in found.iter_mut().zip(to.iter().zip(&from)) {
            if let Ok(windows) = one {
                windows.push((to - from, seconds));
            }
        }
    }
    counts.stop();
    effort.tracepoint_hits += counts.counted().ours - at_first;
    found
}

/// The rate of one; `None`: there were too many to be counted together.
pub(super) fn rate(of: Option<&Found>) -> HookRate {
    let known = match of {
        Some(Ok(windows)) => Ok(combined(windows)),
        Some(Err(why)) => Err(why.clone()),
        None => Err("there are too many tracepoints to be counted together".to_owned()),
    };
    HookRate {
        rate: known.clone().unwrap_or(Estimate::exact(0.0)),
        stepped: false,
        unknown: known.err(),
    }
}
