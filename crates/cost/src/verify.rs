//! A prediction held against the program itself: the command runs in random phases, and the program's
//! own progress in them is compared with its progress without.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;

use crate::calibrate::strace::{Ended, interrupt, tracer};
use crate::identity::settings;
use crate::observers::observes;
use crate::statistics::{Estimate, mean};
use crate::target::Target;

/// How long the command may take to attach, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// What it may still do after it has attached, before a phase counts.
const SETTLED: Duration = Duration::from_millis(150);
/// A program that used less of the time than this is paced by others: its speed says nothing, and its
/// CPU time for the same work does.
const SATURATED: f64 = 0.9;
/// The program's own speed may vary by this share between phases before it is worth a word.
const STEADY: f64 = 0.2;
/// Fewer pairs have no interval that is worth anything.
const FEWEST: usize = 3;

/// How to verify.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Pairs of phases, one with and one without.
    pub pairs: usize,
    /// How long a phase is.
    pub phase: Duration,
    /// Seed of the order.
    pub seed: u64,
    /// Whether time that passes counts even where the program waits: a tracer stops it.
    pub by_elapsed: bool,
    /// What the command says on stderr once it has attached; `None`: it is seen that it has.
    pub begun: Option<&'static str>,
}

/// What the program's progress says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// How much more time the same work took with the command: 0.01 is 1 %.
    pub slowdown: Option<Estimate>,
    /// `elapsed` time, or `cpu` time where others pace the program.
    pub by: &'static str,
    /// Pairs of phases.
    pub pairs: usize,
    /// What makes it doubtful, or why there is no figure.
    pub notices: Vec<String>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The command does not run.
    #[error("can't run '{command}': {why}")]
    Command {
        /// The command.
        command: String,
        /// What is wrong.
        why: String,
    },
    /// The progress can't be read.
    #[error("can't read the progress: {0}")]
    Progress(String),
    /// The program is gone.
    #[error("the program ended while it was measured; what was measured is not enough")]
    Ended,
    /// A setting changed.
    #[error("the measurement is void: {0}; run it again")]
    Void(String),
}

/// One phase: progress, time and CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    progress: f64,
    elapsed: f64,
    cpu: f64,
}

/// Runs the phases. `words`: the command, ready to run. `progress`: a number that grows with the
/// program's work.
///
/// # Errors
/// If the command or the progress fails, the program ends, or a setting changes meanwhile.
pub fn verify(
    target: &Target,
    words: &[String],
    progress: &mut dyn FnMut() -> Result<f64, String>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Measured, VerifyError> {
    let before = settings();
    let mut random = Rng::with_seed(options.seed);
    let mut pairs = Vec::new();
    while pairs.len() < options.pairs && !stop.load(Ordering::Relaxed) {
        let first = random.bool();
        let mut phases = [None, None];
        for on in [first, !first] {
            let running = on
                .then(|| start(words, target, options.begun))
                .transpose()?;
            let phase = phase(target, progress, options.phase)?;
            if let Some(running) = running {
                end(running, words, target)?;
            }
            phases[usize::from(on)] = Some(phase);
        }
        if let [Some(off), Some(on)] = phases {
            pairs.push((on, off));
        }
    }
    still_as(&before)?;
    Ok(compare(&pairs, options.by_elapsed))
}

fn still_as(before: &BTreeMap<String, String>) -> Result<(), VerifyError> {
    crate::calibrate::changed(before).map_or(Ok(()), |why| Err(VerifyError::Void(why)))
}

fn phase(
    target: &Target,
    progress: &mut dyn FnMut() -> Result<f64, String>,
    length: Duration,
) -> Result<Phase, VerifyError> {
    let (start, from, used) = (Instant::now(), progress(), target.read());
    let from = from.map_err(VerifyError::Progress)?;
    sleep(length);
    let to = progress().map_err(VerifyError::Progress)?;
    if !target.is_alive() {
        return Err(VerifyError::Ended);
    }
    Ok(Phase {
        progress: to - from,
        elapsed: start.elapsed().as_secs_f64(),
        cpu: target.read().since(&used).cpu_ns as f64 / 1e9,
    })
}

fn failed(words: &[String], why: impl Into<String>) -> VerifyError {
    VerifyError::Command {
        command: words.join(" "),
        why: why.into(),
    }
}

/// Starts the command, and waits until it has attached.
fn start(
    words: &[String],
    target: &Target,
    begun: Option<&'static str>,
) -> Result<Ended, VerifyError> {
    let (program, rest) = words
        .split_first()
        .ok_or_else(|| failed(words, "it is empty"))?;
    let child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(match begun {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .spawn()
        .map_err(|e| failed(words, e.to_string()))?;
    let mut child = Ended(child);
    let said = begun.and_then(|begun| Some(listen(child.0.stderr.take()?, begun)));
    let has_begun = |child: u32| match &said {
        Some(said) => said.load(Ordering::Relaxed),
        None => has_attached(child, target),
    };
    let begin = Instant::now();
    while !has_begun(child.0.id()) {
        if let Ok(Some(status)) = child.0.try_wait() {
            return Err(failed(
                words,
                format!("it ended at once ({status}); try it by itself"),
            ));
        }
        if begin.elapsed() > PATIENCE {
            return Err(failed(words, "it attached to nothing within 10 s"));
        }
        sleep(Duration::from_millis(2));
    }
    sleep(SETTLED);
    Ok(child)
}

/// Whether one of the lines has these words in it. They are read to the end, so that none has to wait.
fn listen(lines: ChildStderr, begun: &'static str) -> Arc<AtomicBool> {
    let heard = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&heard);
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            if line.contains(begun) {
                its.store(true, Ordering::Relaxed);
            }
        }
    });
    heard
}

fn has_attached(command: u32, target: &Target) -> bool {
    observes(command) || target.pids.iter().any(|pid| tracer(*pid) == command)
}

fn end(mut running: Ended, words: &[String], target: &Target) -> Result<(), VerifyError> {
    if let Ok(Some(status)) = running.0.try_wait() {
        return match target.is_alive() {
            true => Err(failed(words, format!("it ended within a phase ({status})"))),
            false => Err(VerifyError::Ended),
        };
    }
    interrupt(&mut running.0);
    let begin = Instant::now();
    while matches!(running.0.try_wait(), Ok(None)) {
        if begin.elapsed() > PATIENCE {
            break; // dropped, it is killed
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// What pairs of phases (with, without) come to.
fn compare(pairs: &[(Phase, Phase)], by_elapsed: bool) -> Measured {
    let mut notices = Vec::new();
    let offs: Vec<Phase> = pairs.iter().map(|(_, off)| *off).collect();
    let sum = |of: fn(&Phase) -> f64| offs.iter().map(of).sum::<f64>();
    let is_saturated = sum(|off| off.cpu) >= SATURATED * sum(|off| off.elapsed);
    let elapsed = by_elapsed || is_saturated;
    let cost = |phase: &Phase| if elapsed { phase.elapsed } else { phase.cpu } / phase.progress;
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(on, off)| on.progress > 0.0 && off.progress > 0.0)
        .map(|(on, off)| (cost(on) / cost(off)).ln())
        .filter(|ratio| ratio.is_finite())
        .collect();
    if sum(|off| off.progress) <= 0.0 {
        notices.push("the progress did not grow: predicted, not verified".into());
    } else if ratios.len() < FEWEST {
        notices.push(format!("{} pairs of phases are too few", ratios.len()));
    }
    if by_elapsed && !is_saturated {
        notices.push(
            "the program waits for others: a tracer can stop it unnoticed while it would wait"
                .into(),
        );
    }
    notices.extend(unsteady(&offs, cost));
    let found = mean(&ratios).filter(|_| ratios.len() >= FEWEST);
    Measured {
        slowdown: found.map(|log| Estimate {
            value: log.value.exp_m1(),
            low: log.low.exp_m1(),
            high: log.high.exp_m1(),
        }),
        by: if elapsed { "elapsed" } else { "cpu" },
        pairs: ratios.len(),
        notices,
    }
}

/// A word on a program whose own speed changes.
fn unsteady(offs: &[Phase], cost: impl Fn(&Phase) -> f64) -> Option<String> {
    let costs = offs.iter().filter(|off| off.progress > 0.0).map(cost);
    let (low, high) = costs.fold((f64::MAX, 0f64), |(low, high), x| (low.min(x), high.max(x)));
    let apart = high / low - 1.0;
    (high > 0.0 && apart > STEADY).then(|| {
        format!(
            "the program's own speed varied by {:.0} % between phases without the command: its work \
             changed, or others had the CPU",
            apart * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(slowdown: f64, cpu: f64) -> Vec<(Phase, Phase)> {
        (0..8)
            .map(|i| {
                let speed = 1000.0 + f64::from(i);
                let phase = |progress: f64, cpu: f64| Phase {
                    progress,
                    elapsed: 1.0,
                    cpu,
                };
                // Paced by others, it does the same work in more CPU time.
                let with = match cpu >= SATURATED {
                    true => phase(speed / (1.0 + slowdown), cpu),
                    false => phase(speed, cpu * (1.0 + slowdown)),
                };
                (with, phase(speed, cpu))
            })
            .collect()
    }

    #[test]
    fn a_planted_slowdown_is_found_by_the_time_that_counts() {
        for (cpu, by) in [(0.99, "elapsed"), (0.2, "cpu")] {
            let found = compare(&pairs(0.05, cpu), false);
            let slowdown = found.slowdown.expect("enough pairs");
            assert!((slowdown.value - 0.05).abs() < 1e-3, "{found:?}");
            assert_eq!(found.by, by);
        }
    }

    #[test]
    fn without_progress_nothing_is_verified() {
        let still = |phase: Phase| Phase {
            progress: 0.0,
            ..phase
        };
        let pairs: Vec<_> = pairs(0.05, 1.0)
            .into_iter()
            .map(|(a, b)| (still(a), still(b)))
            .collect();
        let found = compare(&pairs, false);
        assert_eq!(found.slowdown, None);
        assert!(
            found.notices[0].contains("predicted, not verified"),
            "{found:?}"
        );
    }

    #[test]
    fn a_program_that_changes_is_named() {
        let mut pairs = pairs(0.05, 1.0);
        pairs[3].1.progress /= 2.0;
        let found = compare(&pairs, false);
        assert!(
            found.notices.iter().any(|n| n.contains("own speed varied")),
            "{found:?}"
        );
    }

    #[test]
    fn a_command_that_does_not_run_is_an_error() {
        let own = Target {
            pids: vec![std::process::id()],
        };
        let error = start(&["/no/such/tool".into()], &own, None)
            .map(drop)
            .expect_err("no such tool");
        assert!(error.to_string().contains("/no/such/tool"), "{error}");
        let error = start(&["true".into()], &own, None)
            .map(drop)
            .expect_err("it ends");
        assert!(error.to_string().contains("ended at once"), "{error}");
    }
}
