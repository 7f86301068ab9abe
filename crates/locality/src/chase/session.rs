//! A session: a fibre that walks its loop again and again, in the mode that is set.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use tailscope_fibre::{Here, Memory, Mode};

use crate::chase::alone::Alone;
use crate::chase::compute;
use crate::chase::path::{Path, Place};
use crate::chase::probe::Probe;

/// What the sessions and the experiment share.
#[derive(Debug)]
pub struct Arena {
    pub path: Path,
    /// Own lines, by session; sessions share them if there are fewer.
    pub own: Vec<Memory>,
    /// Accesses so far, by session.
    pub done: Vec<Alone<AtomicU64>>,
    pub clusters: usize,
    pub command: Alone<AtomicU8>,
    pub probe: Probe,
    /// By phase: steps of other work at each visit. Empty if there is none.
    pub compute: Vec<u64>,
    /// By phase, if visits are timed.
    pub clocks: Vec<Alone<Clock>>,
}

/// How long the visits of a phase took.
#[derive(Debug)]
pub struct Clock([Took; 64]);

/// Visits of at least 2^n and below 2^(n+1) ns.
#[derive(Debug, Default)]
struct Took {
    visits: AtomicU64,
    ns: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Took::default()))
    }
}

impl Clock {
    fn add(&self, ns: u64) {
        let took = &self.0[ns.max(1).ilog2() as usize];
        took.visits.fetch_add(1, Ordering::Relaxed);
        took.ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// ns of a visit, on average; NaN without a visit. Visits of more than eight times the median are
    /// left out: in those, another program had the CPU.
    pub fn mean(&self) -> f64 {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let all: u64 = self.0.iter().map(|took| of(&took.visits)).sum();
        let mut seen = 0;
        let median = self.0.iter().position(|took| {
            seen += of(&took.visits);
            2 * seen > all
        });
        let usual = &self.0[..(median.unwrap_or(0) + 4).min(self.0.len())];
        let sum =
            |part: fn(&Took) -> &AtomicU64| usual.iter().map(|took| of(part(took))).sum::<u64>();
        sum(|took| &took.ns) as f64 / sum(|took| &took.visits) as f64
    }
}

/// What all sessions are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Walk(Mode),
    /// Let the probe have both CPUs.
    Pause,
    Stop,
}

const COMMANDS: [Command; 5] = [
    Command::Walk(Mode::Synchronous),
    Command::Walk(Mode::Yield),
    Command::Walk(Mode::Delegate),
    Command::Pause,
    Command::Stop,
];

impl Arena {
    pub fn command(&self) -> Command {
        COMMANDS[usize::from(self.command.0.load(Ordering::Acquire))]
    }

    pub fn set(&self, command: Command) {
        let number = COMMANDS.iter().position(|c| *c == command);
        let number = number.expect("each command is in the list") as u8;
        self.command.0.store(number, Ordering::Release);
    }

    fn visit(&self, phase: usize, from: Place, session: usize) -> Place {
        let (own, done) = (&self.own[session % self.own.len()], &self.done[session].0);
        let Some(clock) = self.clocks.get(phase) else {
            return self.walk(phase, from, own, done);
        };
        let start = Instant::now();
        let next = self.walk(phase, from, own, done);
        clock.0.add(start.elapsed().as_nanos() as u64);
        next
    }

    fn walk(&self, phase: usize, from: Place, own: &Memory, done: &AtomicU64) -> Place {
        if let Some(steps) = self.compute.get(phase) {
            compute::work(*steps);
        }
        match phase % 2 {
            0 => even_phase(&self.path, from, own, done),
            _ => odd_phase(&self.path, from, own, done),
        }
    }

    /// Accesses of all sessions so far.
    pub fn total(&self) -> u64 {
        let counts = self.done.iter().map(|done| done.0.load(Ordering::Relaxed));
        counts.sum()
    }
}

/// Even and odd phases have callers of their own, so that profilers tell them apart.
#[inline(never)]
fn even_phase(path: &Path, from: Place, own: &Memory, done: &AtomicU64) -> Place {
    let next = path.walk(from, own, done);
    black_box(0u8); // no jump instead of the call, and not the same function as the other one
    next
}

#[inline(never)]
fn odd_phase(path: &Path, from: Place, own: &Memory, done: &AtomicU64) -> Place {
    let next = path.walk(from, own, done);
    black_box(1u8);
    next
}

/// The body of a session's fibre.
pub fn run(here: &Here<'_>, arena: &Arena, session: usize, start: usize) {
    let phases = arena.path.phases();
    let mut phase = start;
    // Spread over the loop, or all would have the lines of one visit in use at a time.
    let part = session as f64 / arena.done.len() as f64;
    let mut place = arena.path.start(phase, part);
    // Whether another session could run since this loop began.
    let mut gave_way = false;
    loop {
        let mode = match arena.command() {
            Command::Walk(mode) => mode,
            Command::Pause => {
                here.yield_now();
                continue;
            }
            Command::Stop => return,
        };
        let owner = phase % arena.clusters;
        gave_way |= match mode {
            Mode::Synchronous => false,
            Mode::Yield => true,
            Mode::Delegate => owner != here.cluster(),
        };
        // The mode may have changed while this fibre was waiting in a queue. To walk on in the old one
        // would be a whole phase in the wrong place, of each session.
        let walk = |_: &Here<'_>| -> Option<Place> {
            let stays = arena.command() == Command::Walk(mode);
            stays.then(|| arena.visit(phase, place, session))
        };
        let Some(next) = here.run(mode, owner, walk) else {
            continue;
        };
        place = next;
        phase = (phase + 1) % phases;
        if phase == start {
            if !gave_way {
                here.yield_now();
            }
            gave_way = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastrand::Rng;
    use tailscope_fibre::{Cluster, Pages, Runtime};

    use super::*;
    use crate::chase::plan::{Plan, Spread};

    #[test]
    fn visits_in_which_others_had_the_cpu_do_not_count() {
        let clock = Clock::default();
        assert!(clock.mean().is_nan());
        for _ in 0..9 {
            clock.add(100_000);
        }
        clock.add(300_000);
        clock.add(10_000_000);
        assert_eq!(clock.mean(), 120_000.0);
    }

    #[test]
    fn who_was_in_a_queue_when_the_mode_changed_does_not_walk_on_in_the_old_one() {
        const SESSIONS: usize = 20;
        let plan = Plan::even(2, 2000 * 64, 0.0, Spread::Even(1));
        let path = Path::new(&plan, Pages::Small, &mut Rng::with_seed(1)).expect("a path");
        let own = (0..SESSIONS).map(|_| path.own_lines(Pages::Small).expect("memory"));
        let arena = Arc::new(Arena {
            own: own.collect(),
            done: (0..SESSIONS).map(|_| Alone::default()).collect(),
            clusters: 1,
            command: Alone(AtomicU8::new(0)),
            probe: Probe::default(),
            compute: Vec::new(),
            clocks: Vec::new(),
            path,
        });
        arena.set(Command::Walk(Mode::Yield));
        let cpu = rustix::thread::sched_getcpu() as u32;
        let runtime = Runtime::start(&[Cluster { cpus: vec![cpu] }]).expect("a thread");
        let mut fibres = Vec::new();
        for session in 0..SESSIONS {
            let arena = Arc::clone(&arena);
            let body = move |here: &Here<'_>| run(here, &arena, session, 0);
            fibres.push(runtime.spawn(0, body).expect("a fibre"));
        }
        // It takes its turn with the sessions, so nobody walks while it runs.
        let watcher = Arc::clone(&arena);
        let watched = runtime.spawn(0, move |here| {
            while watcher.total() == 0 {
                here.yield_now();
            }
            watcher.set(Command::Pause);
            let before = watcher.total();
            for _ in 0..3 {
                here.yield_now();
            }
            watcher.set(Command::Stop);
            watcher.total() - before
        });
        let walked = watched.expect("a fibre").join().expect("no panic");
        assert_eq!(walked, 0);
        for fibre in fibres {
            fibre.join().expect("no panic");
        }
    }
}
