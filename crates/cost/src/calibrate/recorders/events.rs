//! What an event of the timeline costs, with its hook.
//!
//! All events are written in the same way, and most programs do little else, so one figure is enough.
//! A process does the same while the programs are attached, for it, and while they are not, in turns.
//! What it takes longer, by the number of events, is the figure. To attach takes some 20 ms, so a turn
//! has several phases.

use std::ffi::OsString;
use std::time::Instant;

use tailscope_kernel::timeline::{Config, Events, Tier};

use super::super::Found;
use super::process::Process;
use super::tasks::Task;
use super::{FEWEST, FOR, between};
use crate::statistics::{Estimate, blocked};

/// Bytes of the rings: nobody reads them.
const MEMORY: u64 = 16 << 20;
/// Phases of each task in a turn, with the programs and without.
const PHASES: u64 = 5;

/// Times requests that come by a loopback connection, with warm and with cold caches.
pub fn measure(command: &[OsString]) -> Found {
    let mut process = Process::start(command)?;
    let tasks = [Task::Requests, Task::ColdRequests];
    for task in tasks {
        process.each(task, task.times())?; // makes the connection
    }
    let config = Config {
        memory: MEMORY,
        follow_children: false,
        probes: false,
        tier: Tier::All,
    };
    let mut events = Events::load(config).map_err(|e| e.to_string())?;
    let rings = events.rings().map_err(|e| e.to_string())?;
    if !events.watch(process.pid()) {
        return Err("the process can't be watched".to_owned());
    }
    // The process is on the CPU of this thread.
    let cpu = rustix::thread::sched_getcpu();
    let mut turns = [Vec::new(), Vec::new()];
    let (mut hits, mut attached) = (0, true);
    let begin = Instant::now();
    while begin.elapsed() < FOR {
        let mut all = [[0.0; 2]; 2];
        let mut written = [0; 2];
        // The programs stay as they are from one turn to the next.
        for on in [attached, !attached] {
            match on {
                true if !attached => events.attach().map_err(|e| e.to_string())?,
                false if attached => events.detach(),
                _ => {}
            }
            attached = on;
            for (place, task) in tasks.into_iter().enumerate() {
                let before = rings.head(cpu);
                for _ in 0..PHASES {
                    all[place][usize::from(on)] += process.each(task, task.times())?;
                }
                written[place] += rings.head(cpu) - before;
            }
        }
        for (place, task) in tasks.into_iter().enumerate() {
            let [without, with] = all[place];
            let times = PHASES * Task::repeated(task.times());
            let each = written[place] as f64 / times as f64;
            if each >= 1.0 {
                turns[place].push((with - without) / PHASES as f64 / each);
                hits += written[place];
            }
        }
    }
    Ok((between(estimate(&turns[0])?, estimate(&turns[1])?), hits))
}

fn estimate(figures: &[f64]) -> Result<Estimate, String> {
    blocked(figures)
        .filter(|_| figures.len() >= FEWEST)
        .ok_or_else(|| format!("only {} turns fitted into the time", figures.len()))
}
