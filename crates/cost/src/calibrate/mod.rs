//! Timing one hit of each kind.
//!
//! Goal: ns a hit in ten seconds for all kinds, on a machine whose speed changes from second to
//! second. Rejected: one kind after another, as each would meet another machine; and two runs of one
//! length, as their difference has all of the drift. Chosen: rounds of some 0.1 s with a turn for
//! each kind, in random order. A turn is four phases of 0.3 to 2 ms, two with the hook and two
//! without, in the order ABBA or BAAB, so that what drifts evenly cancels. A kind's cost is the trimmed
//! mean over the turns, and the interval comes from blocks of neighbouring turns.
//!
//! Attaching to a tracepoint, or detaching from it, takes 5 to 50 ms. Such a kind has a turn in every
//! tenth round or so, with long phases, the two with the hook one after the other.

pub(crate) mod recorders;
pub(crate) mod strace;
mod subject;
mod subjects;
mod work;

use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tailscope_counters::Drained;
use tailscope_kernel::LoadError;
use tailscope_kernel::cost::Hooks;

use crate::calibration::{Calibration, KindCost};
use crate::identity::{Identity, settings};
use crate::observers;
use crate::statistics::{Estimate, blocked, trimmed_mean};
use subject::Subject;
use subjects::Subjects;
use work::{spin, stay_on};

/// ns with the hits that were timed, or why there are none.
type Found = Result<(Estimate, u64), String>;

/// How to calibrate.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long the rounds take together.
    pub duration: Duration,
    /// The CPU [the idlest one].
    pub cpu: Option<usize>,
    /// Seed of the order.
    pub seed: u64,
    /// What starts a process that calls [`obey`](recorders::obey), to be recorded. Empty: what our own
    /// recorders cost is not measured.
    pub recorded: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: Duration::from_millis(4_000),
            cpu: None,
            seed: 1,
            recorded: Vec::new(),
        }
    }
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// The programs can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The CPU can't be had.
    #[error("can't stay on CPU {cpu}: {source}; choose another one with --cpu")]
    Cpu {
        /// The CPU.
        cpu: usize,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The run is void.
    #[error("the calibration is void, and nothing was written: {0}; run it again")]
    Void(String),
}

/// Iterations of the reference loop in a round.
const REFERENCE: u64 = 100_000;
/// Fewer turns have no interval.
const FEWEST: usize = 6;
/// A kind with a larger share of samples lost or throttled is void.
const MOST_LOST: f64 = 0.001;

/// One kind while it is timed.
struct Timed {
    subject: Subject,
    /// ns a hit, turn by turn.
    turns: Vec<f64>,
    /// The same of turns in which another thread had the CPU. They count only where there are too few
    /// others.
    disturbed: Vec<f64>,
    failed: Option<String>,
}

/// Times every kind of this machine. `progress`: called once a round with the share that is done.
///
/// # Errors
/// If programs can't be loaded, or a setting of the kernel changes meanwhile.
pub fn calibrate(options: &Options, mut progress: impl FnMut(f64)) -> Result<Calibration, Absent> {
    let begin = Instant::now();
    let before = settings();
    let cpu = options.cpu.unwrap_or_else(observers::idlest_cpu);
    let home = rustix::thread::sched_getaffinity(None).ok();
    stay_on(cpu).map_err(|source| Absent::Cpu { cpu, source })?;
    let mut hooks = vec![Hooks::load()?];
    let found = Subjects::find(&mut hooks);
    let at = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut result = Calibration::new(Identity::here(), at.map_or(0, |at| at.as_secs()));
    let absent = found.absent.into_iter();
    result.absent = absent.map(|(kind, why)| (kind.to_owned(), why)).collect();
    let timed = found.there.into_iter().map(|subject| Timed {
        subject,
        turns: Vec::new(),
        disturbed: Vec::new(),
        failed: None,
    });
    let mut timed: Vec<Timed> = timed.collect();
    let loops = rounds(&mut timed, &mut hooks, options, &mut progress);
    result.loop_ns = trimmed_mean(&loops).unwrap_or_default();
    result.rounds = loops.len();
    let skipped: u64 = hooks.iter().map(Hooks::skipped).sum();
    finish(&mut result, timed);
    drop(hooks);
    // On the same CPU, which the recorded processes inherit.
    take(&mut result, recorders::measure(&options.recorded));
    if let Some(home) = &home {
        // Where that fails, strace is timed on one CPU, and costs more.
        let _ = rustix::thread::sched_setaffinity(None, home);
    }
    // It and the program that it traces run beside each other.
    take(&mut result, strace::measure());
    result.notices.extend(notices(skipped));
    if let Some(home) = home {
        // The caller's CPUs, as they were; it is no worse off where that fails.
        let _ = rustix::thread::sched_setaffinity(None, &home);
    }
    if let Some(change) = changed(&before) {
        return Err(Absent::Void(change));
    }
    result.seconds = begin.elapsed().as_secs_f64();
    Ok(result)
}

/// Takes in kinds that are timed in ways of their own, and why others are not there.
fn take(result: &mut Calibration, kinds: Vec<(&'static str, Found)>) {
    for (kind, found) in kinds {
        match found {
            Ok((ns, hits)) => result.kinds.push(KindCost {
                kind: kind.into(),
                ns,
                loops: ns.value / result.loop_ns,
                hits,
                earlier: Vec::new(),
            }),
            Err(why) => result.absent.push((kind.into(), why)),
        }
    }
}

/// The setting that is no longer what it was.
pub(crate) fn changed(before: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let now = settings();
    let found = before
        .iter()
        .find(|(name, value)| now.get(*name) != Some(value))?;
    let value = now.get(found.0).map_or("nothing", String::as_str);
    Some(format!(
        "the setting {} changed from {} to {value} meanwhile",
        found.0, found.1
    ))
}

fn notices(skipped: u64) -> Vec<String> {
    let mut notices = Vec::new();
    if skipped > 0 {
        notices.push(format!(
            "the kernel skipped {skipped} runs of programs, because one ran on that CPU already: \
             costs are a little too low"
        ));
    }
    notices.extend(observers::others(&[]));
    notices
}

/// Rounds until the time is over; the reference loop's ns an iteration in each.
fn rounds(
    timed: &mut [Timed],
    hooks: &mut [Hooks],
    options: &Options,
    progress: &mut impl FnMut(f64),
) -> Vec<f64> {
    let mut random = Rng::with_seed(options.seed);
    let mut loops = Vec::new();
    let (mut slow, mut fast): (Vec<usize>, Vec<usize>) =
        (0..timed.len()).partition(|number| timed[*number].subject.is_slow());
    let mut waiting: Vec<usize> = Vec::new();
    let begin = Instant::now();
    let mut first = true;
    while begin.elapsed() < options.duration {
        random.shuffle(&mut fast);
        if waiting.is_empty() {
            random.shuffle(&mut slow);
            waiting.clone_from(&slow);
        }
        let reference = work::timed(|| spin(REFERENCE)) / REFERENCE as f64;
        for number in fast.iter().copied().chain(waiting.pop()) {
            let one = &mut timed[number];
            if one.failed.is_some() {
                continue;
            }
            let is_outer = !one.subject.is_slow() && random.bool();
            match turn(&mut one.subject, hooks, is_outer) {
                // The first round pays for what is built at first use.
                Ok(_) if first => {}
                Ok(Some((ns, false))) => one.turns.push(ns),
                Ok(Some((ns, true))) => one.disturbed.push(ns),
                Ok(None) => {}
                Err(why) => one.failed = Some(why),
            }
        }
        if !first {
            loops.push(reference);
        }
        first = false;
        progress(begin.elapsed().as_secs_f64() / options.duration.as_secs_f64());
    }
    loops
}

/// ns a hit from four phases, and whether another thread had the CPU meanwhile; `None` if nothing was
/// hit.
fn turn(
    subject: &mut Subject,
    hooks: &mut [Hooks],
    outer: bool,
) -> Result<Option<(f64, bool)>, String> {
    let (mut ns, mut hits) = (0.0, 0);
    let stints = subject.is_alone().then(work::stints).flatten();
    for on in [outer, !outer, !outer, outer] {
        let phase = subject.phase(on, hooks)?;
        if on {
            ns += phase.ns;
            hits += phase.hits;
        } else {
            ns -= phase.ns;
        }
    }
    let is_disturbed = stints.is_some() && stints != work::stints();
    Ok((hits > 0).then(|| (ns / hits as f64, is_disturbed)))
}

/// Why samples make a kind's turns void, if they do: what was lost or never taken cost nothing.
fn void(trouble: Drained, hits: u64) -> Option<String> {
    let lost = trouble.lost + trouble.throttled;
    (lost as f64 > MOST_LOST * hits as f64).then(|| {
        format!(
            "void: {} samples were lost, and the kernel throttled the event {} times",
            trouble.lost, trouble.throttled
        )
    })
}

/// What the turns come to.
fn finish(result: &mut Calibration, timed: Vec<Timed>) {
    let mut busy = Vec::new();
    for mut one in timed {
        let kind = one.subject.kind.to_owned();
        if let Some(why) = one.failed {
            result.absent.push((kind, why));
            continue;
        }
        if let Some(why) = void(one.subject.trouble, one.subject.hits) {
            result.absent.push((kind, why));
            continue;
        }
        if one.turns.len() < FEWEST && !one.disturbed.is_empty() {
            busy.push(kind.clone());
            one.turns.append(&mut one.disturbed);
        }
        let estimate = blocked(&one.turns).filter(|_| one.turns.len() >= FEWEST);
        let Some(ns) = estimate else {
            let why = format!("only {} turns fitted into the time", one.turns.len());
            result.absent.push((kind, why));
            continue;
        };
        result.kinds.push(KindCost {
            kind,
            ns,
            loops: ns.value / result.loop_ns,
            hits: one.subject.hits,
            earlier: Vec::new(),
        });
    }
    if !busy.is_empty() {
        result.notices.push(format!(
            "other work had this CPU in nearly all turns of {}: calibrate again on a quieter machine",
            busy.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_or_lost_samples_make_a_kind_void() {
        let trouble = |lost, throttled| Drained {
            samples: 1000,
            lost,
            throttled,
        };
        assert_eq!(void(trouble(0, 0), 1000), None);
        assert!(void(trouble(5, 0), 1000).is_some_and(|why| why.contains("5 samples")));
        assert!(void(trouble(0, 2), 1000).is_some_and(|why| why.contains("throttled")));
    }

    #[test]
    fn programs_that_were_skipped_by_recursion_are_a_notice() {
        assert!(
            notices(7)
                .iter()
                .any(|notice| notice.contains("skipped 7 runs"))
        );
        assert!(!notices(0).iter().any(|notice| notice.contains("skipped")));
    }

    #[test]
    fn a_setting_that_changes_meanwhile_is_named() {
        let mut before = settings();
        assert_eq!(changed(&before), None);
        before.insert("kernel/bpf_stats_enabled".into(), "7".into());
        let found = changed(&before).expect("it changed");
        assert!(
            found.contains("bpf_stats_enabled changed from 7"),
            "{found}"
        );
    }
}
