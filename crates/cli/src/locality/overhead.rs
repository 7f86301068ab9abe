//! `tailscope locality --overhead`: samples in phases.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use tailscope_cost::budget::Budget;
use tailscope_process::owner::start_of;
use tailscope_record::Process;

use super::{Run, Sampling};
use crate::cost;
use crate::overhead::{Asked, Rested, rest};
use crate::screen::Screen;

/// Predicts what it costs, before a thread is sampled.
pub fn begin(args: &Sampling, budget: f64, screen: &Screen) -> Result<Budget> {
    let processes: Vec<Process> = args.pid.iter().map(|pid| Process { pid: *pid }).collect();
    let asked = Asked {
        budget,
        duration: Some(args.duration),
        processes: &processes,
        children: false,
        verb: "sample",
        cheaper: "a lower --rate, or --no-watch",
    };
    asked.begin(screen, &cost::plan_of_locality(args))
}

/// Goes from phase to phase, until the time is over, the process has ended, or a signal comes.
///
/// # Errors
/// The kernel does not let it sample again.
pub fn sample(
    run: &mut Run,
    budget: &mut Budget,
    pid: u32,
    screen: &Screen,
    stop: &Arc<AtomicBool>,
) -> io::Result<()> {
    let began = start_of(pid);
    loop {
        let goes_on = run.sample(budget.attached_for(), screen, stop);
        run.sampler.rest();
        budget.detached(&[pid]);
        let mut ended = || {
            run.show(screen);
            start_of(pid) != began
        };
        if !goes_on || rest(budget, stop, &mut ended) != Rested::Attach {
            return Ok(());
        }
        match run.sampler.resume() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            resumed => resumed?,
        }
    }
}
