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
pub(crate) struct Sealer {
    jobs: Option<SyncSender<ClosedFile>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    /// Outcomes of files that were sealed in the foreground.
    direct: Vec<Outcome>,
    outstanding: usize,
}

impl Sealer {
    pub(crate) fn start() -> io::Result<Sealer> {
        let (jobs, to_do) = sync_channel(QUEUE);
        let (done, outcomes) = channel();
        let thread = Builder::new()
            .name("ledger-seal".to_owned())
            .spawn(move || work(&to_do, &done))?;
        Ok(Sealer {
            jobs: Some(jobs),
            outcomes,
            thread: Some(thread),
            direct: Vec::new(),
            outstanding: 0,
        })
    }

    /// Has the file sealed; waits while the queue is full.
    pub(crate) fn submit(&mut self, file: ClosedFile) {
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(file).err().map(|refused| refused.0),
            None => Some(file),
        };
        match refused {
            None => self.outstanding += 1,
            // The thread is gone: the rows are worth the wait.
            Some(file) => self.direct.push(seal(file)),
        }
    }

    /// What became of the files since the last call.
    pub(crate) fn finished(&mut self) -> Vec<Outcome> {
        let mut outcomes = std::mem::take(&mut self.direct);
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.outstanding -= 1;
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Waits for every file that was submitted.
    pub(crate) fn wait(&mut self) -> Vec<Outcome> {
        let mut outcomes = self.finished();
        while self.outstanding > 0 {
            let Ok(outcome) = self.outcomes.recv() else {
                break;
            };
            self.outstanding -= 1;
            outcomes.push(outcome);
        }
        outcomes
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        // Hanging up ends the thread once its queue is empty.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
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
