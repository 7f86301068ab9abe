//! The threads of a process, each with its clock and watchpoints.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tailscope_counters::{ThreadSampler, ThreadSamples};

use crate::profile::{Profile, Thread, ThreadName};

/// Threads that are sampled at a time. Each has a ring of up to 1 MiB.
const MOST_THREADS: usize = 256;
/// Threads of a profile, with those that have ended.
const MOST_NAMES: usize = u16::MAX as usize;
/// How often the process is asked for new threads.
const LOOK: Duration = Duration::from_millis(100);

/// The threads.
#[derive(Debug)]
pub(super) struct Threads {
    pid: u32,
    period: u64,
    stack: u32,
    pages: usize,
    sampled: Vec<(Thread, ThreadSampler)>,
    /// The numbers of threads whose events are closed for a while.
    closed: HashMap<u32, Thread>,
    looked: Option<Instant>,
    /// Threads that are not sampled, as of the last look.
    left_out: u64,
    refused: Vec<u32>,
}

impl Threads {
    pub(super) fn new(pid: u32, period: u64, stack: u32, pages: usize) -> Self {
        Self {
            pid,
            period,
            stack,
            pages,
            sampled: Vec::new(),
            closed: HashMap::new(),
            looked: None,
            left_out: 0,
            refused: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sampled.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sampled.is_empty()
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Samples new threads too, and no longer those that have ended.
    ///
    /// # Errors
    /// The process is gone, or the kernel refuses its first thread.
    pub(super) fn adopt(&mut self, profile: &mut Profile) -> io::Result<()> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Ok(());
        }
        let is_first = self.looked.replace(Instant::now()).is_none();
        let tids = self.tids()?;
        self.sampled
            .retain(|(_, sampler)| tids.contains(&sampler.tid()));
        self.refused.retain(|tid| tids.contains(tid));
        let mut error = None;
        for tid in &tids {
            let is_known = self.sampled.iter().any(|(_, s)| s.tid() == *tid);
            let has_room = self.sampled.len() < MOST_THREADS && profile.threads.len() < MOST_NAMES;
            if is_known || self.refused.contains(tid) || !has_room {
                continue;
            }
            match ThreadSampler::open(*tid, self.period, self.stack, self.pages) {
                Ok(sampler) => {
                    let name = name_of(self.pid, *tid);
                    let closed = self.closed.remove(tid);
                    // Another thread may have its number by now.
                    let same = closed.filter(|n| profile.threads[usize::from(*n)].name == name);
                    let number = same.unwrap_or_else(|| {
                        profile.threads.push(ThreadName { tid: *tid, name });
                        (profile.threads.len() - 1) as Thread
                    });
                    self.sampled.push((number, sampler));
                }
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(e) => {
                    self.refused.push(*tid);
                    error = Some(e);
                }
            }
        }
        self.left_out = (tids.len() as u64).saturating_sub(self.sampled.len() as u64);
        match error.filter(|_| is_first && self.sampled.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Closes all events, until the next [`adopt`](Self::adopt). A thread keeps its number.
    pub(super) fn close(&mut self) {
        let numbers = self.sampled.drain(..).map(|(of, s)| (s.tid(), of));
        self.closed.extend(numbers);
        self.looked = None;
    }

    fn tids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid))?;
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let tids = entries.filter_map(|entry| name(entry)?.parse().ok());
        Ok(tids.collect())
    }

    pub(super) fn tids_sampled(&self) -> impl Iterator<Item = u32> {
        self.sampled.iter().map(|(_, sampler)| sampler.tid())
    }

    /// Takes what a thread's ring holds, and returns the thread's number.
    pub(super) fn drain(&self, place: usize, into: &mut ThreadSamples) -> Thread {
        let (thread, sampler) = &self.sampled[place];
        sampler.drain(into);
        *thread
    }

    /// Sets a new random period: between a half and one and a half of the average.
    pub(super) fn jitter(&self, rng: &mut Rng) {
        for (_, sampler) in &self.sampled {
            let period = self.period / 2 + rng.u64(..=self.period);
            // It keeps the last period otherwise: the thread has ended.
            let _ = sampler.set_period(period.max(1));
        }
    }

    pub(super) fn samplers(&mut self) -> impl Iterator<Item = &mut ThreadSampler> {
        self.sampled.iter_mut().map(|(_, sampler)| sampler)
    }

    /// Ends the watch of a word by all threads.
    pub(super) fn unwatch(&mut self, place: usize) {
        for sampler in self.samplers() {
            sampler.unwatch(place);
        }
    }
}

/// A thread's name; empty if it is gone.
fn name_of(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
