//! One run that alternates the modes in short segments.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tailscope_fibre::{Cluster, Here, Mode, Pages, Runtime, StartError};
use thiserror::Error;

use crate::chase::alone::Alone;
use crate::chase::compute;
use crate::chase::interval::{FEW, FEWEST, Interval, geometric_mean, median, spread};
use crate::chase::path::{Path, PathError};
use crate::chase::plan::Plan;
use crate::chase::probe::Probe;
use crate::chase::session::{self, Arena, Command};
use crate::chase::waiting::Waiting;

/// How to run a plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPU of each cluster.
    pub cpus: Vec<u32>,
    /// The number of sessions.
    pub sessions: usize,
    /// How many sets of own lines there are: sessions share them if there are fewer. To share them
    /// within a cluster, this is a multiple of the number of clusters. `None`: one for each session.
    pub owners: Option<usize>,
    /// The phase in which all sessions start; `None` spreads them.
    pub start: Option<usize>,
    /// The modes, the first of which the others are compared with.
    pub modes: Vec<Mode>,
    /// How long all segments of this plan take together.
    pub duration: Duration,
    /// How long a measured segment is.
    pub segment: Duration,
    /// Segments with a larger share of [`Waiting`] are dropped; from 1, none is.
    pub tolerance: f64,
    /// Pages of the lines.
    pub pages: Pages,
    /// Seed of the path and of the order of segments.
    pub seed: u64,
    /// Whether to time each visit of a phase, which takes some 50 ns.
    pub timed: bool,
}

/// What a run of one plan found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Bytes that one session accesses in a loop.
    pub working_set: u64,
    /// The share of accesses that are writes.
    pub updates: f64,
    /// Accesses of one loop.
    pub accesses: u64,
    /// Rounds: in each, every mode had one segment.
    pub rounds: usize,
    /// Segments of all modes.
    pub segments: usize,
    /// Those that were dropped: the caches did not fill within a second, or this process waited for
    /// CPUs that other programs had.
    pub dropped: usize,
    /// By mode, as in the options.
    pub speeds: Vec<Speed>,
    /// ns of a cache line from the first CPU to the second: median, 5th and 95th percentile of the rounds.
    pub line_ns: Option<[f64; 3]>,
    /// By phase: ns of a visit, on average over all modes. Empty if visits were not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visit_ns: Vec<f64>,
}

/// The speed of one mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Speed {
    /// `sync`, `yield` or `delegate`.
    pub mode: Cow<'static, str>,
    /// Accesses a second of all sessions together: the median of the segments.
    pub per_second: f64,
    /// This mode's speed over that of the first mode, from the segments of the same round.
    pub ratio: Option<Interval>,
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// No runtime.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No memory for a stack or a session's lines.
    #[error("can't map memory for the sessions: {0}; use fewer sessions or lines")]
    Memory(#[from] io::Error),
    /// More lines than the machine can hold without harm to others.
    #[error(
        "the lines take {wanted} bytes, and half of the available memory is {limit}; use fewer"
    )]
    TooLarge {
        /// Bytes of all lines.
        wanted: u64,
        /// The most that an experiment may use.
        limit: u64,
    },
    /// A session panicked.
    #[error("a session ended early, which is a defect of this program")]
    Session,
    /// A signal.
    #[error("interrupted before it was finished")]
    Interrupted,
}

/// The name of a mode.
#[must_use]
pub fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Synchronous => "sync",
        Mode::Yield => "yield",
        Mode::Delegate => "delegate",
    }
}

/// The longest time for the caches to fill after a change of modes.
const SETTLE: Duration = Duration::from_secs(1);
/// How much longer a run may take until it has rounds enough for an interval.
const GRACE: Duration = Duration::from_secs(10);
/// Attempts at a segment while other programs have the CPUs.
const ATTEMPTS: usize = 4;
/// A stack holds a walk and what the runtime puts below it.
const STACK: usize = 32 * 1024;

/// Runs a plan. `stop` ends it early with an error.
///
/// # Errors
///
/// See [`ExperimentError`].
pub fn run(plan: &Plan, options: &Options, stop: &AtomicBool) -> Result<Point, ExperimentError> {
    check_memory(plan.bytes(options.owners.unwrap_or(options.sessions)))?;
    let mut rng = Rng::with_seed(options.seed);
    let path = Path::new(plan, options.pages, &mut rng)?;
    let sessions = 0..options.sessions;
    // A few own lines are not worth a huge page for each session.
    let owners = 0..options.owners.unwrap_or(options.sessions);
    let own: io::Result<Vec<_>> = owners.map(|_| path.own_lines(Pages::Small)).collect();
    let arena = Arc::new(Arena {
        own: own?,
        done: sessions.clone().map(|_| Alone::default()).collect(),
        clusters: options.cpus.len(),
        command: Alone(AtomicU8::new(0)),
        probe: Probe::default(),
        compute: compute::steps(&plan.compute_ns),
        clocks: match options.timed {
            true => (0..plan.phases).map(|_| Alone::default()).collect(),
            false => Vec::new(),
        },
        path,
    });
    let clusters = options.cpus.iter().map(|cpu| Cluster { cpus: vec![*cpu] });
    let clusters: Vec<Cluster> = clusters.collect();
    let runtime = Runtime::start_with(&clusters, Runtime::PATIENCE, STACK)?;
    // Whatever happens, the sessions end, and then the runtime.
    let stopper = Stopper(&arena);
    let mut fibres = Vec::new();
    for session in sessions {
        let (home, phases) = (session % clusters.len(), plan.phases);
        let start = options.start.unwrap_or(session / clusters.len() % phases);
        let arena = Arc::clone(&arena);
        let body = move |here: &Here<'_>| session::run(here, &arena, session, start);
        fibres.push(runtime.spawn(home, body)?);
    }
    let ends = [0, 1].map(|side| (side as u64, side % clusters.len()));
    for (side, cluster) in ends.into_iter().filter(|_| clusters.len() > 1) {
        let arena = Arc::clone(&arena);
        fibres.push(runtime.spawn(cluster, move |here| arena.probe.serve(here, side))?);
    }
    let rounds = measure(&arena, options, &mut rng, stop);
    drop(stopper);
    for fibre in fibres {
        fibre.join().map_err(|_| ExperimentError::Session)?;
    }
    Ok(rounds?.point(plan, &arena, options))
}

/// Refuses what could harm other programs.
///
/// # Errors
///
/// If these bytes are more than half of the available memory.
pub fn check_memory(wanted: u64) -> Result<(), ExperimentError> {
    let limit = available() / 2;
    match wanted <= limit {
        true => Ok(()),
        false => Err(ExperimentError::TooLarge { wanted, limit }),
    }
}

/// Bytes that the kernel could give without reclaiming what others use.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

struct Stopper<'a>(&'a Arena);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.probe.stop();
        self.0.set(Command::Stop);
    }
}

/// What all rounds found.
#[derive(Default)]
struct Rounds {
    /// Accesses a second, by round and mode.
    speeds: Vec<Vec<f64>>,
    line_ns: Vec<f64>,
    segments: usize,
    dropped: usize,
}

fn measure(
    arena: &Arena,
    options: &Options,
    rng: &mut Rng,
    stop: &AtomicBool,
) -> Result<Rounds, ExperimentError> {
    let mut rounds = Rounds::default();
    let mut start = Instant::now();
    let mut order: Vec<usize> = (0..options.modes.len()).collect();
    // The first round warms everything up: it has to be long enough for that, and does not count.
    let mut is_first = true;
    loop {
        let wanted = if options.modes.len() > 1 { FEWEST } else { 1 };
        let enough = match rounds.speeds.len() < wanted {
            false => options.duration,
            true => options.duration + GRACE,
        };
        if !is_first && start.elapsed() >= enough {
            return Ok(rounds);
        }
        rng.shuffle(&mut order);
        let mut speeds = vec![f64::NAN; order.len()];
        for mode in &order {
            arena.set(Command::Walk(options.modes[*mode]));
            // The others of this round have to be near in time, so there are few attempts.
            for _ in 0..ATTEMPTS {
                if stop.load(Ordering::Relaxed) {
                    return Err(ExperimentError::Interrupted);
                }
                let speed = settles(arena, stop).then(|| speed(arena, options));
                rounds.segments += usize::from(!is_first);
                if let Some(speed) = speed.flatten() {
                    speeds[*mode] = speed;
                    break;
                }
                rounds.dropped += usize::from(!is_first);
            }
        }
        if arena.clusters > 1 {
            arena.set(Command::Pause);
            rounds.line_ns.extend(arena.probe.measure());
        }
        if !is_first && speeds.iter().all(|speed| speed.is_finite()) {
            rounds.speeds.push(speeds);
        }
        if is_first {
            (is_first, start) = (false, Instant::now());
        }
    }
}

/// Waits until each cluster has walked two loops, on average.
fn settles(arena: &Arena, stop: &AtomicBool) -> bool {
    let (start, before) = (Instant::now(), arena.total());
    let wanted = 2 * arena.path.elements() * arena.clusters as u64;
    loop {
        sleep(Duration::from_millis(1));
        if arena.total() - before >= wanted {
            return true;
        }
        if start.elapsed() > SETTLE || stop.load(Ordering::Relaxed) {
            return false;
        }
    }
}

/// Accesses a second during one segment; `None` if other programs had the CPUs.
fn speed(arena: &Arena, options: &Options) -> Option<f64> {
    let waiting = Waiting::start(arena.clusters);
    let (start, before) = (Instant::now(), arena.total());
    sleep(options.segment);
    let (took, after) = (start.elapsed(), arena.total());
    let share = waiting.share().filter(|_| options.tolerance < 1.0);
    let is_alone = share.is_none_or(|share| share <= options.tolerance);
    (is_alone && after > before).then(|| (after - before) as f64 / took.as_secs_f64())
}

impl Rounds {
    fn point(&self, plan: &Plan, arena: &Arena, options: &Options) -> Point {
        let of_mode = |(i, mode): (usize, &Mode)| {
            let own: Vec<f64> = self.speeds.iter().map(|round| round[i]).collect();
            let ratios: Vec<f64> = self
                .speeds
                .iter()
                .map(|round| round[i] / round[0])
                .collect();
            Speed {
                mode: name(*mode).into(),
                per_second: median(&own),
                ratio: (i > 0)
                    .then(|| geometric_mean(&ratios, FEW, options.seed))
                    .flatten(),
            }
        };
        Point {
            working_set: plan.working_set(),
            updates: arena.path.writes() as f64 / arena.path.elements() as f64,
            accesses: arena.path.elements(),
            rounds: self.speeds.len(),
            segments: self.segments,
            dropped: self.dropped,
            speeds: options.modes.iter().enumerate().map(of_mode).collect(),
            line_ns: spread(&self.line_ns),
            visit_ns: arena.clocks.iter().map(|clock| clock.0.mean()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
