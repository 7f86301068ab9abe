//! `tailscope cost`.

mod args;
mod calibrate;
mod own;
mod predict;
mod progress;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use tailscope_cost::Estimate;
use tailscope_cost::advise::{Advice, advise, own_cache};
use tailscope_cost::command::{self, Rate, runnable};
use tailscope_cost::count::count;
use tailscope_cost::phases::Measured;
use tailscope_cost::predict::Prediction;
use tailscope_cost::verify::{self, VerifyError};

use crate::failure::Failure;
use crate::streams::{print_json, print_laid_out};
use crate::subject::{load_failure, stop_on_signals};
pub use args::Cost;
use args::What;
use calibrate::{calibrate_here, calibration, file, known};
pub use calibrate::{known_here, known_or_calibrated};
use own::Ready;
pub use own::{plan_of_locality, plan_of_record, plan_of_recording, plan_of_timeline};
use predict::{Asked, predict_with, predicted, target};
pub use predict::{check_namespace, while_attached};
pub use progress::Progress;
pub use text::{percent, with_interval};

/// Does what was asked.
pub fn run(args: Cost) -> Result<ExitCode> {
    match args.what {
        What::Calibrate(args) => calibrate_here(&args)?,
        What::Show(args) => {
            let known = known(args.file.as_deref())?;
            publish(args.json, &calibration(&known), || {
                text::calibration(&known)
            })?;
        }
        What::Predict(args) => predict_with(&args)?,
        What::Verify(args) => verify_with(&args)?,
        What::Advise(args) => advise_within(&args)?,
        What::Recorded => tailscope_cost::obey()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn publish(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    if json {
        print_json(value)
    } else {
        print_laid_out(&text())
    }
}

/// Runs the command in phases.
fn measured(args: &args::Verify, asked: &Asked, progress: &Progress) -> Result<Measured> {
    let pid = args.whose.pid;
    let (target, _) = target(pid)?;
    let tool = asked.words.first();
    let options = verify::Options {
        pairs: args.pairs.into(),
        phase: args.phase,
        seed: args.seed,
        by_elapsed: tool.is_some_and(|tool| tool.rsplit('/').next() == Some("strace")),
        begun: asked.own.then_some(own::BEGUN),
    };
    let stop = stop_on_signals()?;
    let state = file(None)?;
    let own = match asked.own {
        true => Some(Ready::new(
            &asked.words,
            pid,
            state.parent().unwrap_or(&state),
        )?),
        false => None,
    };
    let ready = match &own {
        Some(own) => own.words.clone(),
        None => runnable(&asked.words, &target.pids),
    };
    let mut read = || progress.read(&target);
    let found = verify::verify(&target, &ready, &mut read, &options, &stop);
    found.map_err(|error| match error {
        VerifyError::Command { .. } | VerifyError::Progress(_) => Failure::usage(error),
        _ => Failure::machine(error),
    })
}

#[derive(Serialize)]
struct Verified<'a> {
    kind: &'static str,
    command: &'a str,
    pid: u32,
    prediction: Option<&'a Prediction>,
    measured: Option<&'a Measured>,
}

fn verify_with(args: &args::Verify) -> Result<()> {
    let pid = args.whose.pid;
    let asked = Asked::read(&args.with)?;
    let costs = known(args.whose.file.as_deref())?;
    // What can't be predicted of ours is measured all the same.
    let prediction = match predicted(pid, &asked, &costs) {
        Err(_) if asked.own && args.progress.is_some() => None,
        found => Some(found?),
    };
    let measured = match &args.progress {
        None => None,
        Some(progress) => Some(measured(args, &asked, progress)?),
    };
    let printed = Verified {
        kind: "cost-verify",
        command: &args.with,
        pid,
        prediction: prediction.as_ref(),
        measured: measured.as_ref(),
    };
    publish(args.whose.json, &printed, || {
        text::verdict(prediction.as_ref(), measured.as_ref())
    })
}

#[derive(Serialize)]
struct Advised<'a> {
    kind: &'static str,
    pid: u32,
    budget: f64,
    ways: &'a [Advice],
}

fn advise_within(args: &args::Advise) -> Result<()> {
    let pid = args.whose.pid;
    let costs = known(args.whose.file.as_deref())?;
    let (target, _) = target(pid)?;
    let switches = [command::Hook {
        name: "context switches".into(),
        rate: Rate::Switches,
        kinds: vec!["switch.sampled"],
        share: Estimate::exact(1.0),
    }];
    let none = |_: &str| Ok(Vec::new());
    let counted = count(&target, &switches, &none).map_err(load_failure)?;
    if counted.cpu < 0.002 {
        return Err(Failure::machine(
            "can't advise: the program hardly ran; ask again while it works",
        ));
    }
    let ways = advise(pid, args.budget, &counted, &costs, own_cache());
    let printed = Advised {
        kind: "cost-advise",
        pid,
        budget: args.budget,
        ways: &ways,
    };
    publish(args.whose.json, &printed, || {
        text::advice(&ways, args.budget)
    })
}
