//! `tailscope timeline --overhead`: keeps events in phases.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Result;
use tailscope_cost::budget::Budget;
use tailscope_record::{Process, SpanSource};
use tailscope_timeline::Flight;

use super::{failure, follow as follow_until, look, watch};
use crate::cost;
use crate::failure::Failure;
use crate::overhead::{Asked, Rested, rest};
use crate::screen::Screen;
use crate::subject::watch_all;
use crate::timeline::Timeline;

/// Predicts what it costs, before the flight recorder begins.
pub fn begin(args: &Timeline, budget: f64, processes: &[Process]) -> Result<Budget> {
    if args.spans.contains(&SpanSource::Sdk) {
        return Err(Failure::usage(
            "--overhead is not for SDK spans: name other spans (--span syscall:ready..send)",
        ));
    }
    let asked = Asked {
        budget,
        duration: args.duration,
        processes,
        children: !args.no_children,
        verb: "watch",
        cheaper: "record with fewer hooks (tailscope record --span syscall:ready..send)",
    };
    let screen = Screen::new(args.quiet);
    asked.begin(&screen, &cost::plan_of_timeline(args, processes)?)
}

/// Goes from phase to phase, until the time is over, the processes have ended, or a signal comes.
pub fn follow(
    flight: &mut Flight,
    args: &Timeline,
    budget: &mut Budget,
    stop: &AtomicBool,
    asked: &AtomicBool,
) -> Result<()> {
    loop {
        let until = Instant::now() + budget.attached_for();
        let goes_on = follow_until(flight, None, args, stop, asked, Some(until))?;
        let watched = flight.watched();
        flight.rest();
        budget.detached(&watched);
        if !goes_on || rest(budget, stop, || !look(flight, args, asked)) != Rested::Attach {
            return Ok(());
        }
        flight.resume().map_err(failure)?;
        let left = flight.watched();
        let processes: Vec<Process> = left.iter().map(|pid| Process { pid: *pid }).collect();
        watch_all(&processes, &left, args.no_children, |process| {
            watch(flight, process)
        })?;
    }
}
