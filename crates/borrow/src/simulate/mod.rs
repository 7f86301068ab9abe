//! What each policy would do to a recorded server: its latency and the use of its core, before
//! anything is lent.
//!
//! This is a model, and every result of it is one. A core has a *request lane* and a *batch lane*. One
//! thread serves requests in the order of their arrival, at full speed alone, and at `overlap_speed`
//! while batch runs on the other lane. With an overlap speed of 0, batch and server share one CPU.
//!
//! The policies are those of Elfen (section 5.3.4, Fig. 5.9), and `slo`. What batch does between two of
//! its checks is in `leave_ns`: so long it still runs after a request has started.

mod lane;
mod outcome;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use outcome::Outcome;

use crate::grid::Grid;
use crate::slo::{Controller, Slo};
use lane::Lane;
use outcome::Sums;

/// A request as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it came, in ns.
    pub arrival_ns: u64,
    /// How long it runs alone, in ns.
    pub work_ns: u64,
}

/// The core and its threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// The speed of a request while batch runs on the other lane, as a share of its speed alone.
    pub overlap_speed: f64,
    /// How long batch still runs after it should leave, in ns.
    pub leave_ns: u64,
    /// How long batch takes to run again, in ns.
    pub wake_ns: u64,
}

/// When batch runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Never.
    Nothing,
    /// Only while no request runs.
    Idle,
    /// Also beside the first request after an idle time, for a budget in ns.
    Fixed(u64),
    /// The budget starts anew with a request behind which nobody waits.
    Refresh(u64),
    /// The same, with a budget of slow-down instead of time.
    Dynamic(u64),
    /// Beside all requests, in the share of time that an SLO allows.
    Slo(Slo),
}

/// How long phases of the policy `slo` are, and how often it decides, in ns.
const PHASE_NS: u64 = 100_000_000;
const STEP_NS: u64 = 500_000_000;

/// Plays the requests of several threads, each on a core of its own. Those of a thread are sorted by
/// their arrival.
#[must_use]
pub fn simulate(threads: &[Vec<Request>], policy: Policy, model: Model) -> Outcome {
    let mut walls = Grid::default();
    let mut sums = Sums::default();
    for requests in threads {
        sums.add(&play(requests, policy, model, &mut walls));
    }
    sums.outcome(&walls)
}

fn play(requests: &[Request], policy: Policy, model: Model, walls: &mut Grid) -> Sums {
    let mut lane = Lane::new(model, requests.first().map_or(0, |r| r.arrival_ns));
    let mut steering = match policy {
        Policy::Slo(slo) => Some(Steering::new(slo, lane.free_ns)),
        _ => None,
    };
    let mut waited_ns = 0;
    for (i, request) in requests.iter().enumerate() {
        let next_ns = requests.get(i + 1).map(|next| next.arrival_ns);
        let on = steering.as_mut().map(|s| s.phase(request.arrival_ns));
        let served = lane.serve(*request, next_ns, policy, on);
        let wall_ns = served.end_ns - request.arrival_ns;
        waited_ns += served.start_ns - request.arrival_ns;
        if let (Some(steering), Some(on)) = (&mut steering, on) {
            steering.controller.enter(on, wall_ns);
        }
        walls.enter(wall_ns);
    }
    lane.sums(waited_ns)
}

/// The phases of the policy `slo`.
struct Steering {
    controller: Controller,
    random: fastrand::Rng,
    stepped_ns: u64,
    on: bool,
    until_ns: u64,
}

impl Steering {
    fn new(slo: Slo, now_ns: u64) -> Self {
        Self {
            controller: Controller::new(slo, 1.0 - crate::DEFAULT_HELD_BACK),
            random: fastrand::Rng::with_seed(1),
            stepped_ns: now_ns,
            on: false,
            until_ns: now_ns,
        }
    }

    /// Whether batch may run beside a request that comes now.
    fn phase(&mut self, now_ns: u64) -> bool {
        while now_ns >= self.stepped_ns + STEP_NS {
            self.stepped_ns += STEP_NS;
            self.controller.step(Duration::from_nanos(STEP_NS));
        }
        while now_ns >= self.until_ns {
            self.on = !self.on;
            let share = self.controller.share();
            let own = if self.on { share } else { 1.0 - share };
            let mean = PHASE_NS as f64 * own / share.min(1.0 - share);
            self.until_ns += (mean * (0.5 + self.random.f64())) as u64 + 1;
        }
        self.on
    }
}

#[cfg(test)]
mod tests;
