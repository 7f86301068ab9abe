//! The thread that seals files.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::file::ClosedFile;
use crate::{Error, Result};

/// Files that may wait while one is being synced.
const QUEUE: usize = 1;

/// What became of a file.
pub(crate) struct Outcome {
    /// Its rows.
    pub(crate) rows: u64,
    /// Its bytes on disk, or why its rows are lost.
    pub(crate) result: Result<u64>,
}

/// Seals files in the background, in the order in which they were submitted. Dropped, it seals
/// those that were.
///
/// The thread starts with the first file: by then the recorder has dropped its capabilities, and
/// the thread never has them.
#[derive(Default)]
pub(crate) struct Sealer {
    thread: Option<Thread>,
    /// Outcomes of files that were sealed in the foreground.
    direct: Vec<Outcome>,
    outstanding: usize,
}

struct Thread {
    /// Hanging up ends it once its queue is empty.
    jobs: SyncSender<ClosedFile>,
    outcomes: Receiver<Outcome>,
    ends: JoinHandle<()>,
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (jobs, to_do) = sync_channel(QUEUE);
        let (done, outcomes) = channel();
        let ends = Builder::new()
            .name("ledger-seal".to_owned())
            .spawn(move || work(&to_do, &done))?;
        Ok(Self {
            jobs,
            outcomes,
            ends,
        })
    }
}

impl Sealer {
    /// Has the file sealed; waits while the queue is full.
    pub(crate) fn submit(&mut self, file: ClosedFile) {
        if self.thread.is_none() {
            self.thread = Thread::start().ok();
        }
        let refused = match &self.thread {
            Some(thread) => thread.jobs.send(file).err().map(|refused| refused.0),
            None => Some(file),
        };
        match refused {
            None => self.outstanding += 1,
            // There is no thread: the rows are worth the wait.
            Some(file) => self.direct.push(seal(file)),
        }
    }

    /// What became of the files since the last call.
    pub(crate) fn finished(&mut self) -> Vec<Outcome> {
        let mut outcomes = std::mem::take(&mut self.direct);
        if let Some(thread) = &self.thread {
            let before = outcomes.len();
            outcomes.extend(thread.outcomes.try_iter());
            self.outstanding -= outcomes.len() - before;
        }
        outcomes
    }

    /// Waits for every file that was submitted.
    pub(crate) fn wait(&mut self) -> Vec<Outcome> {
        let mut outcomes = self.finished();
        if let Some(thread) = &self.thread {
            let late = thread.outcomes.iter().take(self.outstanding);
            outcomes.extend(late);
            self.outstanding = 0;
        }
        outcomes
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        if let Some(Thread { jobs, ends, .. }) = self.thread.take() {
            drop(jobs);
            let _ = ends.join();
        }
    }
}

fn work(to_do: &Receiver<ClosedFile>, done: &Sender<Outcome>) {
    while let Ok(file) = to_do.recv() {
        // Nobody listens while a writer is being dropped: the file is sealed all the same.
        let _ = done.send(seal(file));
    }
}

fn seal(file: ClosedFile) -> Outcome {
    let (path, rows) = (file.sealed_path.clone(), file.rows);
    let result = file
        .seal()
        .map_err(|source| Error::losing_io("seal", &path, rows, source));
    Outcome { rows, result }
}
