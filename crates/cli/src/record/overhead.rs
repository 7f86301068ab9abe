//! `tailscope record --overhead`: attached for that part of the time that the budget allows.

mod phases;
mod program;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use tailscope_cost::duty_cycle::{DutyCycle, Spent};
use tailscope_cost::predict::Prediction;
use tailscope_record::{Prints, Progress, SpanSource};

use super::{begin, end, kept};
use crate::args::Record;
use crate::cost::{self, percent, with_interval};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::subject::{self, Session, sources, targets};
use crate::units::time;
use phases::{Outcome, Phases, SHORTEST};
use program::Program;

/// Records, and says how it went and what it cost.
pub fn run(args: &Record, budget: f64, stop: &AtomicBool) -> Result<ExitCode> {
    let mut screen = Screen::new(args.quiet);
    let subject = &args.subject;
    let processes = targets(&subject.pids, &[], subject.no_children, "record")?;
    if sources(subject, &processes, None)?.contains(&SpanSource::Sdk) {
        return Err(Failure::usage(
            "--overhead is not for SDK spans: use --sample, or name other spans (--span request)",
        ));
    }
    let costs = cost::known_or_calibrated(&screen)?;
    let predict = || cost::of_recording(args, &processes, &costs);
    let (program, prediction) = Program::seen_during(&processes, !subject.no_children, predict)?;
    let cycle = DutyCycle::new(budget, prediction.slowdown);
    check(args, budget, &cycle)?;
    screen.say(&expected(&prediction, &cycle));
    let mut phases = Phases::begin(args, stop, program, cycle);
    let session = Session::begin(subject, kept(args), Prints::Through)?;
    begin(&screen, session.spans());
    let Outcome {
        mut resting,
        ended,
        refused,
    } = phases.run(session, &mut screen);
    let spent = phases.spent();
    resting.note_overhead(phases.overhead(budget, &spent));
    let progress = resting.finish().map(|progress| Progress {
        elapsed: phases.elapsed(),
        ..progress
    });
    end(&screen, &ended, progress.as_ref().ok(), args);
    screen.say(&said(&spent, budget));
    refused.map_or(Ok(()), Err)?;
    ended.map_err(subject::failure)?;
    progress.map_err(subject::failure)?;
    Ok(ExitCode::SUCCESS)
}

/// A budget that can't be held is an error before anything is attached.
fn check(args: &Record, budget: f64, cycle: &DutyCycle) -> Result<()> {
    let budget = percent(budget);
    if cycle.is_too_small() {
        return Err(Failure::usage(format!(
            "an overhead of {budget} leaves no time to record: choose a larger one, or spans that cost less \
             (--span syscall:ready..send)"
        )));
    }
    match args.duration {
        Some(duration) if cycle.with(Some(duration)) < SHORTEST => {
            let needed = SHORTEST.div_f64(cycle.share()) + Duration::from_secs(1);
            Err(Failure::usage(format!(
                "an overhead of {budget} leaves less than {} of {} to record: record for {} s at least, or \
                 allow more",
                time(SHORTEST.as_nanos() as u64),
                time(duration.as_nanos() as u64),
                needed.as_secs()
            )))
        }
        _ => Ok(()),
    }
}

fn expected(prediction: &Prediction, cycle: &DutyCycle) -> String {
    let share = percent(cycle.share());
    match prediction.slowdown {
        Some(slowdown) => format!(
            "predicted: attached all of the time, the recorder would slow the program down by {}; so it \
             records {share} of the time",
            with_interval(slowdown)
        ),
        None => {
            let mut parts = prediction.parts.iter();
            let why = parts.find_map(|part| part.unknown.clone());
            format!(
                "the overhead is not predicted ({}); it begins with {share} of the time",
                why.unwrap_or_else(|| "the program hardly ran while it was counted".to_owned())
            )
        }
    }
}

/// What it came to.
fn said(spent: &Spent, budget: f64) -> String {
    let of = format!(
        "of {} that were allowed; {} of the time was recorded",
        percent(budget),
        percent(spent.share)
    );
    match (spent.overall, spent.predicted) {
        (Some(measured), _) => format!(
            "overhead: {} measured in {} pairs of phases, {of}",
            with_interval(measured),
            spent.while_attached.pairs
        ),
        (None, Some(predicted)) => format!(
            "overhead: {} predicted and not measured ({}), {of}",
            with_interval(predicted),
            spent.while_attached.notices.join("; ")
        ),
        (None, None) => format!("overhead: not known, {of}"),
    }
}
