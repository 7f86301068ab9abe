//! `tailscope record --overhead`: records in phases.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Error, Result};
use tailscope_cost::Estimate;
use tailscope_cost::budget::Budget;
use tailscope_cost::duty_cycle::Spent;
use tailscope_record::{End, Listener, Live, Prints, Progress, RecordError, SpanSource};
use tailscope_trace::Overhead;

use super::{Record, begin, end, kept, summary};
use crate::cost;
use crate::failure::Failure;
use crate::overhead::{Asked, Rested, rest, said};
use crate::screen::Screen;
use crate::subject::{self, Resting, Session, resolve_probes, sources, targets};

/// How many looks at a rest are from one look at the processes to the next.
const LOOKS: u32 = 20;

/// Records, and says how it went and what it cost.
pub fn run(args: &Record, budget: f64, stop: &AtomicBool) -> Result<ExitCode> {
    let mut screen = Screen::new(args.quiet);
    let subject = &args.subject;
    let processes = targets(&subject.pids, &[], subject.no_children, "record")?;
    let spans = sources(subject, &processes, None)?;
    if spans.contains(&SpanSource::Sdk) {
        return Err(Failure::usage(
            "--overhead is not for SDK spans: use --sample, or name other spans (--span request)",
        ));
    }
    // Calibrating takes ten seconds: what can be refused is refused before.
    subject::check(subject, &kept(args), &spans)?;
    resolve_probes(&spans, &processes, None)?;
    let asked = Asked {
        budget,
        duration: args.duration,
        processes: &processes,
        children: !subject.no_children,
        verb: "record",
        cheaper: "spans that cost less (--span syscall:ready..send)",
    };
    let mut held = asked.begin(&screen, &cost::plan_of_record(args, &processes)?)?;
    let session = Session::begin(subject, kept(args), Prints::Through)?;
    begin(&screen, session.spans());
    let Outcome {
        mut resting,
        ended,
        refused,
    } = phases(session, args, &mut held, stop, &mut screen);
    let spent = held.spent();
    resting.note_overhead(overhead(&held, budget, &spent));
    let progress = resting.finish().map(|progress| Progress {
        elapsed: held.elapsed(),
        ..progress
    });
    end(&screen, &ended, progress.as_ref().ok(), args);
    screen.say(&said(&spent, budget));
    refused.map_or(Ok(()), Err)?;
    ended.map_err(subject::failure)?;
    progress.map_err(subject::failure)?;
    Ok(ExitCode::SUCCESS)
}

/// How the phases ended.
struct Outcome {
    /// The recording.
    resting: Resting,
    /// Why there are no more.
    ended: Result<End, RecordError>,
    /// Why it could not attach again, if that is why.
    refused: Option<Error>,
}

/// Goes from phase to phase, until the time is over, the processes have ended, or a signal comes.
fn phases(
    mut session: Session,
    args: &Record,
    budget: &mut Budget,
    stop: &AtomicBool,
    screen: &mut Screen,
) -> Outcome {
    loop {
        let length = budget.attached_for();
        let mut listener = Whole { screen, budget };
        let ended = session.recorder.run(Some(length), stop, &mut listener);
        let (resting, taken) = session.pause();
        let ended = ended.and_then(|ended| taken.map(|()| ended));
        let pids: Vec<u32> = resting.processes().iter().map(|one| one.pid).collect();
        budget.detached(&pids);
        let mut looks = 0;
        let none_is_left = || {
            looks += 1;
            looks % LOOKS == 0 && resting.processes().is_empty()
        };
        let ended = match ended {
            Ok(End::Duration) => match rest(budget, stop, none_is_left) {
                Rested::Attach => None,
                Rested::Over => Some(Ok(End::Duration)),
                Rested::Ended => Some(Ok(End::Exited)),
                Rested::Stopped => Some(Ok(End::Stopped)),
            },
            ended => Some(ended),
        };
        if let Some(ended) = ended {
            return Outcome {
                resting,
                ended,
                refused: None,
            };
        }
        session = match resting.resume(&args.subject) {
            Ok(session) => session,
            Err((resting, why)) => {
                return Outcome {
                    resting: *resting,
                    ended: Ok(End::Stopped),
                    refused: Some(why),
                };
            }
        };
    }
}

/// How the budget was held, for the ledger.
fn overhead(held: &Budget, budget: f64, spent: &Spent) -> Overhead {
    let three = |of: Estimate| [of.value, of.low, of.high];
    let (attached, phases) = held.attached();
    Overhead {
        budget,
        whole_ns: held.elapsed().as_nanos() as u64,
        attached_ns: attached.as_nanos() as u64,
        phases,
        predicted: spent.predicted.map(three),
        measured: spent.overall.map(three),
    }
}

/// Shows the progress of all phases together.
struct Whole<'a> {
    screen: &'a mut Screen,
    budget: &'a Budget,
}

impl Listener for Whole<'_> {
    fn show(&mut self, live: &Live) {
        self.screen.show(live);
    }

    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        let elapsed: Duration = self.budget.elapsed();
        notices.iter().for_each(|notice| self.screen.notice(notice));
        let whole = Progress {
            elapsed,
            ..progress.clone()
        };
        self.screen.progress(elapsed, &summary(&whole));
    }
}
