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

use crate::calibrate::strace::{Ended, interrupt, tracer};
use crate::identity::settings;
use crate::observers::observes;
use crate::phases::{By, Measured, Moment, Phase, Work, compare};
use crate::target::Target;

/// How long the command may take to attach, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// What it may still do after it has attached, before a phase counts.
const SETTLED: Duration = Duration::from_millis(150);

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
    Ok(compare(
        &pairs,
        if options.by_elapsed {
            By::Elapsed
        } else {
            By::Pace
        },
    ))
}

fn still_as(before: &BTreeMap<String, String>) -> Result<(), VerifyError> {
    crate::calibrate::changed(before).map_or(Ok(()), |why| Err(VerifyError::Void(why)))
}

fn phase(
    target: &Target,
    progress: &mut dyn FnMut() -> Result<f64, String>,
    length: Duration,
) -> Result<Phase, VerifyError> {
    let mut now = || {
        let progress = progress().map_err(VerifyError::Progress)?;
        Ok(Moment::read(target, Work::Number(progress)))
    };
    let from = now()?;
    sleep(length);
    let to = now()?;
    if !target.is_alive() {
        return Err(VerifyError::Ended);
    }
    Ok(to.since(&from))
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

#[cfg(test)]
mod tests {
    use super::*;

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
