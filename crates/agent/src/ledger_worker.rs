//! The thread for what may take long: beginning, sealing and removing ledgers. The thread that
//! records never waits for the disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use tailscope_record::{Closing, NextLedger};
use tailscope_signals::clock::unix_ns;
use tailscope_trace::{LedgerWriter, Written};

use crate::archive::{Archive, Holding};
use crate::scrape_requests::Waker;

/// What is to be done.
pub(crate) enum Job {
    Begin(Box<NextLedger>),
    Seal(Box<Closing>),
    /// Keep to the quota.
    Shrink(u64),
    /// Goes on in another folder.
    Move(Archive),
}

/// What was done.
pub(crate) enum Done {
    Begun(Result<Box<LedgerWriter>, String>),
    Sealed(PathBuf, Result<(), String>),
    /// What there is now, and what could not be removed.
    Shrunk(Holding, Vec<String>),
}

/// The thread, and both ways to it. Dropped, it finishes what it was given.
pub(crate) struct LedgerWorker {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl LedgerWorker {
    /// What ledgers come to is counted in `written`.
    pub(crate) fn start(
        archive: Archive,
        waker: Arc<Waker>,
        written: Arc<Written>,
    ) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        let (tell, done) = channel();
        let thread = Builder::new().name("agent-ledgers".into()).spawn(move || {
            let mut archive = archive;
            while let Ok(job) = to_do.recv() {
                if let Some(done) = work(&mut archive, &written, job) {
                    // Nobody listens any more when the agent ends.
                    let _ = tell.send(done);
                    waker.wake();
                }
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
        })
    }

    pub(crate) fn give(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// What was done since the last time.
    pub(crate) fn done(&self) -> impl Iterator<Item = Done> {
        self.done.try_iter()
    }

    /// Waits for the next thing to be done. `None`: the thread is gone.
    pub(crate) fn wait(&self) -> Option<Done> {
        self.done.recv().ok()
    }

    /// Waits until everything is done, and says what was.
    pub(crate) fn end(mut self) -> Vec<Done> {
        self.hang_up();
        self.done.try_iter().collect()
    }

    fn hang_up(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for LedgerWorker {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn work(archive: &mut Archive, written: &Arc<Written>, job: Job) -> Option<Done> {
    match job {
        Job::Begin(next) => {
            let begun = archive.begin(unix_ns()).map_err(|e| e.to_string());
            let begun = begun.and_then(|folder| {
                let created = next.create(&folder);
                created.map_err(|e| {
                    archive.abandon(&folder);
                    e.to_string()
                })
            });
            Some(Done::Begun(begun.map(|mut ledger| {
                ledger.count_in(Arc::clone(written));
                Box::new(ledger)
            })))
        }
        Job::Seal(closing) => {
            let folder = closing.folder().to_owned();
            let sealed = closing.seal().map(drop).map_err(|e| e.to_string());
            archive.sealed(&folder);
            Some(Done::Sealed(folder, sealed))
        }
        Job::Shrink(quota) => {
            let failed = archive.shrink(quota);
            let failed = failed.iter().map(ToString::to_string).collect();
            Some(Done::Shrunk(archive.holding(), failed))
        }
        Job::Move(to) => {
            archive.move_to(to);
            None
        }
    }
}
