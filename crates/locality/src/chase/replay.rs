//! Acts out what a program demands of memory, in each mode: a prediction that is a measurement.
//!
//! Goal: what moving a phase to its data would gain, in per cent with an interval. Rejected: a model
//! of caches and coherence, which needs the latency of each case on each machine, and the sizes of
//! what is between them. Chosen: a path of [`super::path`] with the lines, accesses and writes that
//! samples of the program show. It takes as long in `sync` as the program does, because its number
//! of accesses is fitted to that. The other modes then show what they would gain on this machine.

mod layout;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tailscope_fibre::{Mode, Pages};
use thiserror::Error;

use crate::chase::experiment::{self, ExperimentError, Options, Point, Speed};
use crate::chase::interval::Interval;
use crate::chase::levels;
use crate::chase::plan::{Plan, SLOTS, Spread};
use crate::profile::demand::{Demand, Demands};
use layout::Layout;

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
/// Standard deviations on each side of a 95 % interval from eight variants (Student's t).
const DEVIATIONS: f64 = 2.365;
/// Without a clear sign, more samples are worth it up to this number of times.
const MOST_TIMES: f64 = 100.0;

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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// `yield` or `delegate`.
    pub mode: &'static str,
    /// Speed over that of `sync`, with the interval of the samples and of the measurement.
    pub ratio: Interval,
    /// If the interval has both signs: samples in all that would settle it, at about the same gain.
    pub wants: Option<u64>,
}

/// What was acted out.
#[derive(Debug, Clone, Serialize)]
pub struct Prediction {
    /// What the modes would gain.
    pub gains: Vec<Gain>,
    /// ns of a visit of the phase, and of the rest of a round.
    pub visit_ns: [f64; 2],
    /// Accesses of each, as acted out.
    pub accesses: [f64; 2],
    /// Bytes of the lines of all sessions.
    pub bytes: u64,
    /// Accesses that the samples have.
    pub known: u64,
    /// The run with what the samples show; further runs had variants of it.
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

/// Acts out the demands. `say` hears of each step.
///
/// # Errors
/// See [`ReplayError`].
pub fn predict(
    demands: &Demands,
    round: Round,
    options: &Options,
    stop: &Arc<AtomicBool>,
    mut say: impl FnMut(usize, usize),
) -> Result<Prediction, ReplayError> {
    let threads = threads(&demands.found, options);
    let options = &Options {
        owners: Some(threads),
        ..options.clone()
    };
    let access = Access::measure(options, stop)?;
    let steps = 1 + demands.variants.len();
    say(0, steps);
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
    let (found, plan, accesses) = actor.act(&demands.found, actor.guess(&demands.found))?;
    let mut others = Vec::new();
    for (number, variant) in demands.variants.iter().enumerate() {
        say(number + 1, steps);
        others.push(actor.act(variant, accesses)?.0);
    }
    let gains = found.speeds.iter().enumerate().skip(1);
    let gains = gains.map(|(mode, speed)| gain(mode, speed, &others, demands.accesses));
    Ok(Prediction {
        gains: gains.collect::<Option<_>>().ok_or(ReplayError::Disturbed)?,
        visit_ns: round.user_ns(&demands.found),
        accesses,
        bytes: plan.bytes(threads),
        known: demands.accesses,
        point: found,
    })
}

/// From the speed of a mode, and those of the variants.
fn gain(mode: usize, speed: &Speed, others: &[Point], samples: u64) -> Option<Gain> {
    let found = speed.ratio?;
    let logs = others
        .iter()
        .map(|point| Some(point.speeds[mode].ratio?.value.ln()));
    let logs: Vec<f64> = logs.collect::<Option<_>>()?;
    let centre = found.value.ln();
    let squares: f64 = logs.iter().map(|log| (log - centre).powi(2)).sum();
    let deviation = (squares / logs.len().max(1) as f64).sqrt();
    let own = (found.high / found.low).ln() / 2.0;
    let half = (DEVIATIONS * deviation).hypot(own);
    let ratio = Interval {
        value: found.value,
        low: (centre - half).exp(),
        high: (centre + half).exp(),
    };
    let times = (half / centre).powi(2);
    let is_open = !ratio.is_clear() && times <= MOST_TIMES;
    Some(Gain {
        mode: speed.mode,
        ratio,
        wants: is_open.then_some((samples as f64 * times) as u64),
    })
}

/// How many threads are acted out: those of the program, as equally many on each CPU.
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

    /// Fits the number of accesses from a guess, then measures all modes.
    fn act(
        &self,
        demand: &Demand,
        mut accesses: [f64; 2],
    ) -> Result<(Point, Plan, [f64; 2]), ReplayError> {
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
        match point.rounds {
            0 => Err(ReplayError::Disturbed),
            _ => Ok((point, plan, accesses)),
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
        let plan = Plan::even(2, AT_HAND, 0.0, Spread::Even(SLOTS));
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
