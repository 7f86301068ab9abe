//! Replays what a program demands of memory, in each mode: a prediction that is a measurement.
//!
//! Goal: what moving a phase to its data would gain, in per cent with an interval. Rejected: a model
//! of caches and coherence, which needs the latency of each case on each machine, and the sizes of
//! what is between them. Chosen: a path of [`super::path`] with the lines, accesses and writes that
//! samples of the program show. It takes as long in `sync` as the program does, because its number
//! of accesses is fitted to that. The other modes then show what they would gain on this machine.

mod layout;
mod spread;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tailscope_fibre::{Mode, Pages};
use thiserror::Error;

use crate::chase::experiment::{self, ExperimentError, Options, Point};
use crate::chase::interval::Interval;
use crate::chase::levels;
use crate::chase::plan::{self, Plan, SLOTS};
use crate::profile::demand::{Demand, Demands};
use layout::Layout;
use spread::Spread;

/// The first guess of an access's time, in ns.
const GUESS_NS: f64 = 4.0;
/// A working set that each L1 cache holds.
const AT_HAND: u64 = 4096;
/// How long a run takes that only shows how long visits are.
const PILOT: Duration = Duration::from_millis(300);
/// Runs of that kind, at most.
const PILOTS: usize = 6;
/// Visits are long enough if they are within this share.
const CLOSE: f64 = 0.03;
/// Visits that take longer than this many times the program's were not fitted.
const TOO_LONG: f64 = 1.3;
/// Processes that replay what was found.
const AS_FOUND: usize = 3;

/// How long a round of the program takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// CPU time between two visits of the phase, in ns.
    pub cpu_ns: f64,
    /// The share of it in the kernel, whose accesses are not known.
    pub in_kernel: f64,
}

impl Round {
    /// ns in user space, in the phase and outside.
    fn user_ns(&self, demand: &Demand) -> [f64; 2] {
        let user = self.cpu_ns * (1.0 - self.in_kernel);
        [user * demand.in_phase, user * (1.0 - demand.in_phase)]
    }
}

/// What a mode would gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// `yield` or `delegate`.
    pub mode: Cow<'static, str>,
    /// Speed over that of `sync`, with the interval of the samples, the processes and the measurement.
    pub ratio: Interval,
    /// If the interval has both signs: samples in all that would settle it, at about the same gain.
    pub wants: Option<u64>,
}

/// What was replayed.
#[derive(Debug, Clone, Serialize)]
pub struct Prediction {
    /// What the modes would gain.
    pub gains: Vec<Gain>,
    /// ns of a visit of the phase, and of the rest of a round.
    pub visit_ns: [f64; 2],
    /// Accesses of each, as replayed.
    pub accesses: [f64; 2],
    /// Bytes of the lines of all sessions.
    pub bytes: u64,
    /// Accesses that the samples have.
    pub known: u64,
    /// The first run with what the samples show.
    pub point: Point,
}

/// Why there is no prediction.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] ExperimentError),
    /// A run without figures.
    #[error(
        "other programs had the CPUs, or the caches did not fill within a second; stop other programs, or use other CPUs"
    )]
    Disturbed,
    /// No path has visits as long as the program's.
    #[error(
        "no path was found whose visits take as long as the program's: they are too short for its \
         lines, or other programs had the CPUs"
    )]
    Fit,
}

/// A demand as replayed by one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Acted {
    /// The modes' speeds.
    pub point: Point,
    /// Accesses of a visit of the phase, and of the rest of a round.
    pub accesses: [f64; 2],
    /// Bytes of the lines of all sessions.
    pub bytes: u64,
}

/// The demands to replay, each in a process of its own: one path differs by some points between
/// processes, however long each of them measures. First comes what was found, more than once, then
/// each variant.
pub fn parts(demands: &Demands) -> impl ExactSizeIterator<Item = &Demand> {
    let of = |number: usize| match number.checked_sub(AS_FOUND) {
        None => &demands.found,
        Some(variant) => &demands.variants[variant],
    };
    (0..AS_FOUND + demands.variants.len()).map(of)
}

/// Replays one of the [`parts`].
///
/// # Errors
/// See [`ReplayError`].
pub fn act(
    demand: &Demand,
    round: Round,
    options: &Options,
    stop: &Arc<AtomicBool>,
) -> Result<Acted, ReplayError> {
    let threads = threads(demand, options);
    let options = &Options {
        owners: Some(threads),
        ..options.clone()
    };
    let access = Access::measure(options, stop)?;
    let actor = Actor {
        round,
        layout: Layout {
            hit_ns: access.hit_ns,
            round_ns: round.cpu_ns,
        },
        work_ns: access.work_ns,
        options,
        stop,
    };
    let (point, plan, accesses) = actor.act(demand)?;
    Ok(Acted {
        point,
        accesses,
        bytes: plan.bytes(threads),
    })
}

/// What all of the [`parts`] together predict, in their order.
///
/// # Errors
/// [`ReplayError::Disturbed`] if a mode has no figure.
pub fn predict(
    demands: &Demands,
    round: Round,
    acted: &[Acted],
) -> Result<Prediction, ReplayError> {
    let (found, variants) = acted.split_at(AS_FOUND.min(acted.len()));
    let first = found.first().ok_or(ReplayError::Disturbed)?;
    let modes = 1..first.point.speeds.len();
    let gains = modes.map(|mode| gain(mode, found, variants, demands.accesses));
    Ok(Prediction {
        gains: gains.collect::<Option<_>>().ok_or(ReplayError::Disturbed)?,
        visit_ns: round.user_ns(&demands.found),
        accesses: first.accesses,
        bytes: first.bytes,
        known: demands.accesses,
        point: first.point.clone(),
    })
}

/// Of one mode. The variants differ from what was found as the samples may, as processes do and as
/// measurements do: the same is between the prediction and what comes true.
fn gain(mode: usize, found: &[Acted], variants: &[Acted], samples: u64) -> Option<Gain> {
    let logs = |acted: &[Acted]| -> Option<Vec<f64>> {
        let of = |one: &Acted| Some(one.point.speeds.get(mode)?.ratio?.value.ln());
        acted.iter().map(of).collect()
    };
    let spread = Spread::of(&logs(found)?, &logs(variants)?);
    let ratio = spread.interval();
    let is_open = !ratio.is_clear();
    let times = is_open.then(|| spread.samples_wanted()).flatten();
    Some(Gain {
        mode: found[0].point.speeds[mode].mode.clone(),
        ratio,
        wants: times.map(|times| (samples as f64 * times) as u64),
    })
}

/// How many threads are replayed: those of the program, as equally many on each CPU.
fn threads(demand: &Demand, options: &Options) -> usize {
    let on_each = (demand.threads / options.cpus.len() as f64)
        .round()
        .max(1.0) as usize;
    (on_each * options.cpus.len()).min(options.sessions.max(options.cpus.len()))
}

/// What does not change from variant to variant.
struct Actor<'a> {
    round: Round,
    layout: Layout,
    /// ns of an access that are other work than waiting for the line.
    work_ns: f64,
    options: &'a Options,
    stop: &'a Arc<AtomicBool>,
}

impl Actor<'_> {
    /// Accesses of a visit of each phase, before anything was measured.
    fn guess(&self, demand: &Demand) -> [f64; 2] {
        let wanted = self.round.user_ns(demand);
        wanted.map(|ns| (ns / GUESS_NS).max(1.0))
    }

    /// Fits the number of accesses, then measures all modes.
    fn act(&self, demand: &Demand) -> Result<(Point, Plan, [f64; 2]), ReplayError> {
        let mut accesses = self.guess(demand);
        let wanted = self.round.user_ns(demand);
        let pilot = Options {
            modes: vec![Mode::Synchronous],
            duration: PILOT,
            timed: true,
            ..self.options.clone()
        };
        let mut other = wanted;
        let mut too_long = true;
        for number in 1..=PILOTS {
            let plan = self.layout.plan(demand, accesses, [0.0; 2]);
            let took = experiment::run(&plan, &pilot, self.stop)?.visit_ns;
            let off = [0, 1].map(|place| {
                let waits = took[place] - accesses[place] * self.work_ns;
                wanted[place] * demand.waiting[place] / waits.max(1.0)
            });
            other = [0, 1].map(|place| (wanted[place] - took[place]).max(0.0));
            let fits = |place: usize| took[place] < TOO_LONG * wanted[place];
            too_long = !(fits(0) && fits(1));
            let is_close = off.iter().all(|off| (off - 1.0).abs() < CLOSE);
            if is_close || number == PILOTS {
                break;
            }
            let fitted = accesses.iter_mut().zip(off);
            let fitted = fitted.filter(|(_, off)| off.is_finite());
            fitted.for_each(|(accesses, off)| *accesses *= off.clamp(0.2, 5.0));
        }
        if too_long {
            return Err(ReplayError::Fit);
        }
        other[1] += self.round.cpu_ns * self.round.in_kernel;
        let plan = self.layout.plan(demand, accesses, other);
        let point = experiment::run(&plan, self.options, self.stop)?;
        let is_measured = point.speeds[1..].iter().all(|speed| speed.ratio.is_some());
        match point.rounds > 0 && is_measured {
            true => Ok((point, plan, accesses)),
            false => Err(ReplayError::Disturbed),
        }
    }
}

/// An access of a walk to a line that is at hand.
struct Access {
    /// How long it takes, in ns.
    hit_ns: f64,
    /// The part of it that is other work than waiting for the line.
    work_ns: f64,
}

impl Access {
    fn measure(options: &Options, stop: &Arc<AtomicBool>) -> Result<Self, ReplayError> {
        let options = Options {
            modes: vec![Mode::Synchronous],
            duration: PILOT,
            timed: true,
            ..options.clone()
        };
        let plan = Plan::even(2, AT_HAND, 0.0, plan::Spread::Even(SLOTS));
        let point = experiment::run(&plan, &options, stop)?;
        let latency = levels::curve(options.cpus[0], AT_HAND, AT_HAND, Pages::Small, stop)?;
        let accesses = point.accesses as f64 / 2.0;
        let hit_ns = (point.visit_ns[0] + point.visit_ns[1]) / 2.0 / accesses;
        match latency.first().filter(|_| hit_ns.is_finite()) {
            Some(waits) => Ok(Self {
                hit_ns,
                work_ns: (hit_ns - waits.ns).max(0.0),
            }),
            None => Err(ReplayError::Disturbed),
        }
    }
}
