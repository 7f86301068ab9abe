//! Requests for the figures by the threads that serve scrapes. The thread that records answers them in
//! its next round.
//!
//! An eventfd in the recorder's poll() wakes it, so a scrape does not wait for the next poll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, mem};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a poll: readable from a wake-up until it is cleared.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    pub(crate) fn wake(&self) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    answer: SyncSender<String>,
    asker: Arc<Waker>,
}

/// The requests that wait for the figures.
#[derive(Debug)]
pub(crate) struct ScrapeRequests {
    waker: Arc<Waker>,
    waiting: Mutex<Vec<Waiting>>,
}

impl ScrapeRequests {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self {
            waker,
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Asks for the figures, for a number of connections at once: all get the same. The asker is woken
    /// when they are there.
    pub(crate) fn ask(&self, connections: usize, asker: &Arc<Waker>) -> Vec<Receiver<String>> {
        let (answers, answered): (Vec<_>, Vec<_>) =
            (0..connections).map(|_| sync_channel(1)).unzip();
        let waiting = answers.into_iter().map(|answer| Waiting {
            answer,
            asker: Arc::clone(asker),
        });
        self.lock().extend(waiting);
        self.waker.wake();
        answered
    }

    /// Gives them to all who asked.
    pub(crate) fn answer(&self, figures: impl FnOnce() -> String) {
        let waiting = mem::take(&mut *self.lock());
        if waiting.is_empty() {
            return;
        }
        let text = figures();
        for Waiting { answer, asker } in waiting {
            // Whoever gave up has hung up.
            let _ = answer.try_send(text.clone());
            asker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
