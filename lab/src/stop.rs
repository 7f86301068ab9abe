//! When to stop: after a duration, or on Ctrl-C or SIGTERM, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Tells every thread of a command when its time is over. The first signal asks it to stop in
/// order; a second one kills it, should it not listen.
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

/// A sleeper looks at the flag this often: a person notices no delay, the CPU no work.
const GLANCE: Duration = Duration::from_millis(20);

impl Stop {
    /// Starts the time and begins to listen for signals.
    pub fn after(duration: Option<Duration>) -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first runs while the flag is still unset, so only a second
            // signal finds it set and takes the default action.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
                .context("can't listen for Ctrl-C")?;
        }
        Ok(Self {
            asked,
            deadline: duration.map(|d| Instant::now() + d),
        })
    }

    /// A signal came.
    pub fn interrupted(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// A signal came or the time is over.
    pub fn due(&self) -> bool {
        self.interrupted()
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sleeps until the end.
    pub fn wait(&self) {
        while !self.due() {
            let left = self
                .deadline
                .map_or(GLANCE, |d| d.saturating_duration_since(Instant::now()));
            thread::sleep(left.min(GLANCE));
        }
    }
}
