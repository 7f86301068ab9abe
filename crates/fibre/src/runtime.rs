//! The runtime: clusters of pinned kernel threads, and the fibres on them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use corosensei::Coroutine;
use corosensei::stack::DefaultStack;
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

use crate::fibre::{Fibre, WorkerId};
use crate::here::Here;
use crate::worker::{self, Mailed, Shared};

/// A group of kernel threads, one on each of these CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// A CPU may appear more than once.
    pub cpus: Vec<u32>,
}

/// Why a runtime could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A cluster without a CPU, or no cluster.
    #[error("a cluster needs at least one CPU; name one")]
    Empty,
    /// The CPU does not exist, is offline, or the cpuset excludes it.
    #[error("can't pin a thread to CPU {cpu}: {why}; choose one that `taskset -p $$` allows")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's reason.
        why: io::Error,
    },
    /// No thread or no stack.
    #[error("can't create a thread: {0}; check the limits of processes and memory")]
    Thread(#[from] io::Error),
}

/// Clusters of kernel threads that run fibres. Dropping it waits for every fibre to end.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
    spawned: AtomicUsize,
    stack: usize,
}

/// The result of a fibre, once it has ended.
#[derive(Debug)]
pub struct JoinHandle<T>(mpsc::Receiver<thread::Result<T>>);

impl<T> JoinHandle<T> {
    /// Blocks this kernel thread until the fibre ends. Not for use inside a fibre.
    ///
    /// # Errors
    ///
    /// The panic that ended the fibre.
    pub fn join(self) -> thread::Result<T> {
        let lost = "the fibre sends its result before it ends, and a runtime drops no fibre";
        self.0.recv().expect(lost)
    }
}

impl Runtime {
    /// An idle worker polls for 50 µs: as long as about two wake-ups of a kernel thread take.
    pub const PATIENCE: Duration = Duration::from_micros(50);
    /// Bytes of a fibre's stack.
    pub const STACK: usize = 64 * 1024;

    /// Starts the threads, each pinned to its CPU.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(clusters: &[Cluster]) -> Result<Self, StartError> {
        Self::start_with(clusters, Self::PATIENCE, Self::STACK)
    }

    /// As [`start`](Self::start), with the time that an idle worker polls, and the bytes of a stack.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start_with(
        clusters: &[Cluster],
        patience: Duration,
        stack: usize,
    ) -> Result<Self, StartError> {
        if clusters.is_empty() || clusters.iter().any(|cluster| cluster.cpus.is_empty()) {
            return Err(StartError::Empty);
        }
        let cpus: Vec<u32> = clusters.iter().flat_map(|c| c.cpus.clone()).collect();
        let mut ids = 0..cpus.len();
        let ids_of = |cluster: &Cluster| ids.by_ref().take(cluster.cpus.len()).collect();
        let shared = Arc::new(Shared {
            clusters: clusters.iter().map(ids_of).collect(),
            workers: cpus.iter().map(|_| Mailed::default()).collect(),
            alive: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            patience,
        });
        let mut runtime = Self {
            shared,
            threads: Vec::new(),
            spawned: AtomicUsize::new(0),
            stack,
        };
        for (id, cpu) in cpus.into_iter().enumerate() {
            runtime.start_worker(id, cpu)?;
        }
        Ok(runtime)
    }

    fn start_worker(&mut self, id: WorkerId, cpu: u32) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let (tell, pinned) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("fibres-{cpu}"))
            .spawn(move || {
                let outcome = pin(cpu);
                let works = outcome.is_ok();
                // The receiver waits below.
                let _ = tell.send(outcome);
                if works {
                    worker::run(&shared, id);
                }
            })?;
        let handle = thread.thread().clone();
        let new = self.shared.workers[id].thread.set(handle);
        new.expect("each worker is started once");
        self.threads.push(thread);
        let outcome = pinned.recv();
        let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
        outcome.map_err(|why| StartError::Pin { cpu, why })
    }

    /// Starts a fibre whose home is a thread of `cluster`.
    ///
    /// # Errors
    ///
    /// If there is no memory for its stack.
    ///
    /// # Panics
    ///
    /// If there is no such cluster.
    pub fn spawn<T: Send + 'static>(
        &self,
        cluster: usize,
        work: impl FnOnce(&Here<'_>) -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let number = self.spawned.fetch_add(1, Ordering::Relaxed);
        let workers = &self.shared.clusters[cluster];
        let home = workers[number % workers.len()];
        let (tell, result) = mpsc::channel();
        let stack = DefaultStack::new(self.stack)?;
        let shared = Arc::clone(&self.shared);
        let coroutine = Coroutine::with_stack(stack, move |yielder, worker| {
            let here = Here::new(yielder, &shared, worker, number);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&here)));
            // Nobody has to wait for the result.
            let _ = tell.send(outcome);
        });
        self.shared.alive.fetch_add(1, Ordering::AcqRel);
        let next = std::ptr::null_mut();
        self.shared.send(home, Box::new(Fibre { coroutine, next }));
        Ok(JoinHandle(result))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for thread in self.threads.drain(..) {
            // A worker does not panic: each fibre catches its own.
            let _ = thread.join();
        }
    }
}

/// Pins the calling thread to one CPU.
fn pin(cpu: u32) -> io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::Error::other("no such CPU"));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}
