//! `tailscope record --overhead`: attached for that part of the time that the budget allows.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use tailscope_cost::duty_cycle::{DutyCycle, Spent};
use tailscope_cost::phases::Moment;
use tailscope_cost::target::Target;
use tailscope_cost::{Estimate, predict::Prediction};
use tailscope_record::{End, Listener, Live, Prints, Process, Progress, RecordError, SpanSource};
use tailscope_trace::Overhead;

use super::{begin, end, kept, summary};
use crate::args::Record;
use crate::cost::{self, percent, with_interval};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::subject::{self, Resting, Session, Subject, sources, targets};
use crate::units::time;

/// A shorter phase has hardly a request from begin to end.
const SHORTEST: Duration = Duration::from_millis(300);
/// How often a rest is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Records, and says how it went and what it cost.
pub fn run(args: &Record, budget: f64, stop: &AtomicBool) -> Result<ExitCode> {
    let screen = Screen::new(args.quiet);
    let subject = &args.subject;
    let processes = targets(&subject.pids, &[], subject.no_children, "record")?;
    if sources(subject, &processes, None)?.contains(&SpanSource::Sdk) {
        return Err(Failure::usage(
            "--overhead is not for SDK spans: use --sample, or name other spans (--span request)",
        ));
    }
    let costs = cost::known_or_calibrated(&screen)?;
    let prediction = cost::of_recording(args, &processes, &costs)?;
    let cycle = DutyCycle::new(budget, prediction.slowdown);
    check(args, budget, &cycle)?;
    screen.say(&expected(&prediction, &cycle));
    let began = Instant::now();
    let mut before = Moment::read(&target(subject), work(subject));
    let mut session = Session::begin(subject, kept(args), Prints::Through)?;
    begin(&screen, session.spans());
    let mut phases = Phases {
        args,
        stop,
        cycle,
        screen,
        began,
        attached: Duration::ZERO,
        count: 0,
    };
    let (ended, mut resting, failed) = loop {
        let (mut resting, ended) = phases.record(session);
        let middle = Moment::read(&target(subject), work(subject));
        let with = middle.since(&before);
        phases.attached += with.length();
        let ended = match ended {
            Ok(End::Duration) => phases.rest(with.length()),
            ended => ended.map(Some),
        };
        let after = Moment::read(&target(subject), work(subject));
        match ended {
            Ok(None) => phases
                .cycle
                .add(middle.since(&before), after.since(&middle)),
            Ok(Some(End::Duration)) => {
                phases
                    .cycle
                    .add(middle.since(&before), after.since(&middle));
                break (Ok(End::Duration), resting, None);
            }
            Ok(Some(ended)) => break (Ok(ended), resting, None),
            Err(why) => break (Err(why), resting, None),
        }
        before = after;
        session = match resting.resume(subject) {
            Ok(session) => session,
            Err((paused, why)) => {
                resting = *paused;
                break (Ok(End::Stopped), resting, Some(why));
            }
        };
    };
    let whole = phases.began.elapsed().max(phases.attached);
    let spent = phases.cycle.spent(phases.attached.div_duration_f64(whole));
    resting.note_overhead(phases.overhead(budget, &spent));
    let progress = resting.finish().map(|progress| Progress {
        elapsed: phases.began.elapsed(),
        ..progress
    });
    end(&phases.screen, &ended, progress.as_ref().ok(), args);
    phases.screen.say(&said(&spent, budget));
    if let Some(why) = failed {
        return Err(why);
    }
    ended.map_err(subject::failure)?;
    progress.map_err(subject::failure)?;
    Ok(ExitCode::SUCCESS)
}

/// The phases of a recording.
struct Phases<'a> {
    args: &'a Record,
    stop: &'a AtomicBool,
    cycle: DutyCycle,
    screen: Screen,
    began: Instant,
    attached: Duration,
    count: u64,
}

impl Phases<'_> {
    fn left(&self) -> Option<Duration> {
        let duration = self.args.duration?;
        Some(duration.saturating_sub(self.began.elapsed()))
    }

    /// One phase with the recorder.
    fn record(&mut self, mut session: Session) -> (Resting, Result<End, RecordError>) {
        let length = self.cycle.with(self.left());
        let mut listener = Whole {
            screen: &mut self.screen,
            began: self.began,
        };
        let ended = session.recorder.run(Some(length), self.stop, &mut listener);
        let (resting, taken) = session.pause();
        self.count += 1;
        (resting, ended.and_then(|ended| taken.map(|()| ended)))
    }

    /// The phase without it, after one with it of this length, to attach and to detach included. `None`:
    /// the next one comes.
    fn rest(&mut self, with: Duration) -> Result<Option<End>, RecordError> {
        let begin = Instant::now();
        let length = self.cycle.without(with);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Some(End::Stopped));
            }
            let mut roots = self.args.subject.pids.iter();
            if !roots.any(|pid| (Process { pid: *pid }).lives()) {
                return Ok(Some(End::Exited));
            }
            let is_over = begin.elapsed() >= length;
            match self.left() {
                Some(Duration::ZERO) => return Ok(Some(End::Duration)),
                // What is left may be too short for another phase.
                Some(left) if is_over && self.cycle.with(Some(left)) < SHORTEST => {}
                _ if is_over => return Ok(None),
                _ => {}
            }
            sleep(LOOK);
        }
    }

    fn overhead(&self, budget: f64, spent: &Spent) -> Overhead {
        let three = |of: Estimate| [of.value, of.low, of.high];
        Overhead {
            budget,
            attached_ns: self.attached.as_nanos() as u64,
            phases: self.count,
            predicted: spent.predicted.map(three),
            measured: spent.overall.map(three),
        }
    }
}

/// Shows the progress of all phases together.
struct Whole<'a> {
    screen: &'a mut Screen,
    began: Instant,
}

impl Listener for Whole<'_> {
    fn show(&mut self, live: &Live) {
        self.screen.show(live);
    }

    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        let elapsed = self.began.elapsed();
        notices.iter().for_each(|notice| self.screen.notice(notice));
        let whole = Progress {
            elapsed,
            ..progress.clone()
        };
        self.screen.progress(elapsed, &summary(&whole));
    }
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
            let needed = SHORTEST.div_f64(cycle.share());
            Err(Failure::usage(format!(
                "of {}, an overhead of {budget} leaves less than {} to record: record for {} at least, or allow \
                 more",
                time(duration.as_nanos() as u64),
                time(SHORTEST.as_nanos() as u64),
                time(needed.as_nanos() as u64)
            )))
        }
        _ => Ok(()),
    }
}

/// The processes that are recorded, as they are now.
fn target(subject: &Subject) -> Target {
    let mut pids = subject.pids.clone();
    if !subject.no_children {
        let descendants = |pid: &u32| Process { pid: *pid }.descendants();
        let made = subject.pids.iter().flat_map(descendants);
        pids.extend(made.map(|process| process.pid));
    }
    Target { pids }
}

/// What shows how much the program works: its read and write calls.
fn work(subject: &Subject) -> f64 {
    target(subject).io().map_or(0.0, |(calls, _)| calls as f64)
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
            let why = prediction
                .parts
                .iter()
                .find_map(|part| part.unknown.clone());
            let notice = prediction.notices.last().cloned();
            format!(
                "the overhead is not predicted ({}); it begins with {share} of the time",
                why.or(notice).unwrap_or_default()
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
