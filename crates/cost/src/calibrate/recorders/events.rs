//! What an event of the timeline costs, with its hook.
//!
//! The timeline writes some events for all threads and others for watched ones only, and most hooks
//! do little else. So one figure is enough: what a request of a watched process takes longer, by the
//! number of events that it makes.

use std::ffi::OsString;
use std::time::Instant;

use tailscope_kernel::timeline::{Config, Events};

use super::super::Found;
use super::process::Process;
use super::tasks::Task;
use super::{BARE, FEWEST, FOR, between, negative};
use crate::statistics::{Estimate, blocked};

/// Bytes of the rings: nobody reads them.
const MEMORY: u64 = 16 << 20;

/// Times a request that comes by a loopback connection, with warm and with cold caches.
pub fn measure(command: &[OsString]) -> Found {
    let mut process = Process::start(command)?;
    let tasks = [Task::Requests, Task::ColdRequests];
    let mut bare = Vec::new();
    for task in tasks {
        process.each(task, task.times())?;
        let phases = (0..BARE).map(|_| process.each(task, task.times()));
        bare.push(phases.collect::<Result<Vec<f64>, String>>()?);
    }
    let config = Config {
        memory: MEMORY,
        follow_children: false,
        probes: false,
    };
    let events = Events::load(config).map_err(|e| e.to_string())?;
    let rings = events.rings().map_err(|e| e.to_string())?;
    if !events.watch(process.pid()) {
        return Err("the process can't be watched".to_owned());
    }
    // The process is on the CPU of this thread.
    let cpu = rustix::thread::sched_getcpu();
    let (mut with, mut written) = ([Vec::new(), Vec::new()], [0; 2]);
    let begin = Instant::now();
    while begin.elapsed() < FOR {
        for (place, task) in tasks.into_iter().enumerate() {
            let before = rings.head(cpu);
            with[place].push(process.each(task, task.times())?);
            written[place] += rings.head(cpu) - before;
        }
    }
    let mut found = Vec::new();
    for (place, task) in tasks.into_iter().enumerate() {
        let done = with[place].len() as u64 * Task::repeated(task.times());
        let each = written[place] as f64 / done.max(1) as f64;
        let more = estimate(&with[place])?.plus(negative(estimate(&bare[place])?));
        found.push(more.scaled(1.0 / each.max(1.0)));
    }
    Ok((between(found[0], found[1]), written.iter().sum()))
}

fn estimate(figures: &[f64]) -> Result<Estimate, String> {
    blocked(figures)
        .filter(|_| figures.len() >= FEWEST)
        .ok_or_else(|| format!("only {} turns fitted into the time", figures.len()))
}
