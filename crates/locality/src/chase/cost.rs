//! What a switch between fibres takes, and a migration there and back.

use serde::Serialize;
use tailscope_fibre::{Cluster, Here, Runtime, StartError};

use std::time::{Duration, Instant};

use crate::chase::interval::{Interval, MANY, geometric_mean};

/// Costs in ns.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Costs {
    /// From one fibre to the next on the same thread.
    pub switch_ns: Option<Interval>,
    /// An empty closure delegated to the other CPU and back, both threads being awake.
    pub migration_ns: Option<Interval>,
}

/// Batches are so short that most see no other program on the CPUs.
const BATCHES: usize = 1_000;
const SWITCHES: u32 = 1_000;
const MIGRATIONS: u32 = 100;
/// Long enough for workers never to fall asleep during a batch.
const AWAKE: Duration = Duration::from_millis(5);

/// Measures between the first CPU and the second.
///
/// # Errors
///
/// If no thread can be pinned there, or started.
pub fn measure(cpus: [u32; 2]) -> Result<Costs, StartError> {
    let clusters = cpus.map(|cpu| Cluster { cpus: vec![cpu] });
    let runtime = Runtime::start_with(&clusters, AWAKE, Runtime::STACK)?;
    let beside = runtime.spawn(0, |here| yields(here, BATCHES as u32 * SWITCHES))?;
    let timed = runtime.spawn(0, |here| {
        let batch = |_| {
            let start = Instant::now();
            yields(here, SWITCHES);
            // Each of its yields runs the other fibre once.
            start.elapsed().as_nanos() as f64 / f64::from(2 * SWITCHES)
        };
        (0..BATCHES).map(batch).collect::<Vec<f64>>()
    })?;
    let switches = timed.join().unwrap_or_default();
    let _ = beside.join();
    let moving = runtime.spawn(0, |here| {
        let batch = |_| {
            let start = Instant::now();
            for _ in 0..MIGRATIONS {
                here.delegate(1, |_| ());
            }
            start.elapsed().as_nanos() as f64 / f64::from(MIGRATIONS)
        };
        (0..BATCHES).map(batch).collect::<Vec<f64>>()
    })?;
    let migrations = moving.join().unwrap_or_default();
    Ok(Costs {
        switch_ns: geometric_mean(&switches, MANY, 1),
        migration_ns: geometric_mean(&migrations, MANY, 1),
    })
}

fn yields(here: &Here<'_>, count: u32) {
    for _ in 0..count {
        here.yield_now();
    }
}
