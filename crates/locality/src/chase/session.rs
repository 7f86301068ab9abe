//! A session: a fibre that walks its loop again and again, in the mode that is set.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tailscope_fibre::{Here, Memory, Mode};

use crate::chase::alone::Alone;
use crate::chase::path::{Path, Place};
use crate::chase::probe::Probe;

/// What the sessions and the experiment share.
#[derive(Debug)]
pub struct Arena {
    pub path: Path,
    /// Own lines, by session.
    pub own: Vec<Memory>,
    /// Accesses so far, by session.
    pub done: Vec<Alone<AtomicU64>>,
    pub clusters: usize,
    pub command: Alone<AtomicU8>,
    pub probe: Probe,
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

    /// Accesses of all sessions so far.
    pub fn total(&self) -> u64 {
        let counts = self.done.iter().map(|done| done.0.load(Ordering::Relaxed));
        counts.sum()
    }
}

/// The body of a session's fibre.
pub fn run(here: &Here<'_>, arena: &Arena, session: usize, start: usize) {
    let phases = arena.path.phases();
    let (own, done) = (&arena.own[session], &arena.done[session].0);
    let mut phase = start;
    let mut place = arena.path.start(phase);
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
        let moves = mode == Mode::Delegate;
        let walk = |_: &Here<'_>| -> Option<Place> {
            // The mode may have changed while this fibre was waiting in a queue.
            let stays = !moves || arena.command() == Command::Walk(mode);
            stays.then(|| arena.path.walk(place, own, done))
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
