//! Replays demands, each in a process of its own.

use std::io::Write;
use std::process::{self, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tailscope_locality::chase::experiment::ExperimentError;
use tailscope_locality::chase::pair;
use tailscope_locality::chase::replay::Acted;

use crate::chase;
use crate::failure::Failure;
use crate::locality::args::Predict;

/// How often to look whether a process has ended: seldom, as it measures.
const LOOK: Duration = Duration::from_millis(50);
/// How long it tries in all while the CPUs are at another distance, and how long until the next try.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(300);
/// How often in all a part may fail that the next process may do.
const FAILURES: usize = 5;

/// What a process says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// What it measured.
    Acted(Box<Acted>),
    /// The CPUs are not as far apart as they should be, now.
    Elsewhere,
    /// It did not find what to measure, or was disturbed.
    Failed(String),
}

/// Has processes replay all parts of `report`, the bytes of the file that `args` names, where a cache
/// line takes about `line_ns` from one CPU to the other. Where that does not happen for long, it goes
/// on without. `say` gets the number of those that are done.
pub fn act_all(
    parts: usize,
    args: &Predict,
    cpus: &[u32],
    report: &[u8],
    line_ns: Option<f64>,
    stop: &AtomicBool,
    say: impl Fn(usize),
) -> Result<Vec<Acted>> {
    let (mut tried, mut failures) = (Duration::ZERO, FAILURES);
    let mut acted = Vec::new();
    while acted.len() < parts {
        say(acted.len());
        let start = Instant::now();
        let wanted = line_ns.filter(|_| tried < PATIENCE);
        let is_there = |one: &Acted| match (wanted, one.point.line_ns) {
            (Some(wanted), Some([median, ..])) => pair::is_as_far(median, wanted),
            _ => true,
        };
        match act(acted.len(), args, cpus, report, wanted, stop)? {
            Answer::Acted(one) if is_there(&one) => acted.push(*one),
            Answer::Failed(why) if failures == 0 => return Err(Failure::machine(why)),
            Answer::Failed(_) => failures -= 1,
            Answer::Acted(_) | Answer::Elsewhere => {
                sleep(AGAIN);
                tried += start.elapsed();
            }
        }
    }
    Ok(acted)
}

/// Has a process replay one part, where a line takes about `line_ns`.
fn act(
    number: usize,
    args: &Predict,
    cpus: &[u32],
    report: &[u8],
    line_ns: Option<f64>,
    stop: &AtomicBool,
) -> Result<Answer> {
    let [first, second] = cpus else {
        return Err(Failure::usage("a path has two CPUs"));
    };
    let mut child = Command::new("/proc/self/exe")
        .args(["locality", "predict", "/dev/stdin", "--quiet"])
        .args(["--part", &number.to_string()])
        .args(["--parent", &process::id().to_string()])
        .args(["--cpus", &format!("{first},{second}")])
        .args(["--sessions", &args.sessions.to_string()])
        .args(["--duration", &format!("{}s", args.duration.as_secs_f64())])
        .args(["--tolerance", &args.tolerance.to_string()])
        // Each has other places for its lines, as programs have.
        .args(["--seed", &args.seed.wrapping_add(number as u64).to_string()])
        .args(
            line_ns
                .into_iter()
                .flat_map(|ns| ["--line".to_owned(), ns.to_string()]),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::machine(format!("can't start this program once more: {e}")))?;
    if let Some(mut to) = child.stdin.take() {
        // One that ends before it has read all of it says why.
        let _ = to.write_all(report);
    }
    while child.try_wait()?.is_none() {
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            return Err(chase::failed(ExperimentError::Interrupted));
        }
        sleep(LOOK);
    }
    let output = child.wait_with_output()?;
    // The same signal may have ended the process.
    match stop.load(Ordering::Relaxed) {
        true => Err(chase::failed(ExperimentError::Interrupted)),
        false => answered(&output),
    }
}

/// What the process printed, or why it has failed.
fn answered(output: &Output) -> Result<Answer> {
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("tailscope: ");
    Err(match (output.status.code(), said) {
        (_, "") => Failure::machine(format!("a process that measures: {}", output.status)),
        (Some(2), said) => Failure::usage(said),
        (_, said) => Failure::machine(said),
    })
}

/// Ends this process with its parent, which has this number.
pub fn end_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::machine)?;
    match getppid().map(|pid| pid.as_raw_nonzero().get() as u32) == Some(parent) {
        true => Ok(()),
        false => Err(Failure::machine("the process that wants this has ended")),
    }
}
