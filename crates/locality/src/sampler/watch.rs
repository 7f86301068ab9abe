//! Watchpoints on sampled words: which threads touch the same word soon after?
//!
//! One word at a time is watched in all threads, from one poll to the next. A thread that touches it
//! stops for some microseconds, once. So a thread has at most two hits in 20 ms.

use serde::Serialize;
use tailscope_counters::WatchHit;

use super::threads::Threads;
use crate::profile::{Profile, Thread, Watched};

/// With more threads, setting the watchpoints takes too long.
const MOST_THREADS: usize = 64;
/// A word is watched in every other poll at most, so that hits are rare.
const EVERY: u64 = 2;
/// A poll more for each of so many threads: setting a thread's watchpoints takes up to 0.2 ms.
const THREADS_PER_POLL: u64 = 4;

/// What the watchpoints did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WatchCounts {
    /// Words that were watched.
    pub words: u64,
    /// Hits.
    pub hits: u64,
    /// Why no word was watched any more.
    pub stopped: Option<String>,
}

#[derive(Debug)]
pub(super) struct Watch {
    is_on: bool,
    polls: u64,
    word: Option<u64>,
    counts: WatchCounts,
}

impl Watch {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            polls: 0,
            word: None,
            counts: WatchCounts::default(),
        }
    }

    /// Watches a word in all threads.
    pub(super) fn begin(&mut self, word: u64, threads: &mut Threads) {
        self.polls += 1;
        let every = EVERY.max(threads.len() as u64 / THREADS_PER_POLL);
        if !self.is_on || !self.polls.is_multiple_of(every) {
            return;
        }
        if threads.len() > MOST_THREADS {
            self.stop(&format!("the process has more than {MOST_THREADS} threads"));
            return;
        }
        let mut error = None;
        for sampler in threads.samplers() {
            let outcome = sampler.watch(0, word);
            // A thread may just have ended.
            error = error.or(outcome
                .err()
                .filter(|e| e.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error())));
        }
        self.word = Some(word);
        if let Some(error) = error {
            threads.unwatch(0);
            self.word = None;
            self.stop(&match error.raw_os_error() {
                Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                    "another program, such as a debugger, has the debug registers".to_owned()
                }
                _ => format!("the kernel refused a watchpoint: {error}"),
            });
        }
    }

    fn stop(&mut self, why: &str) {
        self.is_on = false;
        self.counts.stopped = Some(why.to_owned());
    }

    /// Ends the watch, and adds what it showed.
    pub(super) fn end(
        &mut self,
        hits: &[(Thread, WatchHit)],
        threads: &mut Threads,
        profile: &mut Profile,
    ) {
        let Some(word) = self.word.take() else {
            return;
        };
        threads.unwatch(0);
        self.counts.words += 1;
        self.counts.hits += hits.len() as u64;
        profile.watched(word, seen(hits));
    }

    /// Forgets the word that is watched: the watchpoints are closed with their threads' events.
    pub(super) fn forget(&mut self) {
        self.word = None;
    }

    pub(super) fn finish(self) -> WatchCounts {
        self.counts
    }
}

/// What the hits at one word show.
fn seen(hits: &[(Thread, WatchHit)]) -> Watched {
    let mut threads: Vec<Thread> = hits.iter().map(|(thread, _)| *thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let by_several = threads.len() > 1;
    let has_write = hits.iter().any(|(_, hit)| hit.is_write);
    Watched {
        times: 1,
        by_several: by_several.into(),
        shared: (by_several && has_write).into(),
        by_none: threads.is_empty().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_shared_if_several_threads_touch_it_and_one_writes() {
        let hit = |thread, is_write| {
            let hit = WatchHit {
                place: 0,
                at: 0,
                cpu: 0,
                ip: 0,
                is_write,
            };
            (thread, hit)
        };
        let shared = |hits: &[_]| {
            let seen = seen(hits);
            (seen.by_several, seen.shared, seen.by_none)
        };
        assert_eq!(shared(&[]), (0, 0, 1));
        assert_eq!(shared(&[hit(1, true), hit(1, false)]), (0, 0, 0));
        assert_eq!(shared(&[hit(1, false), hit(2, false)]), (1, 0, 0));
        assert_eq!(shared(&[hit(1, false), hit(2, true)]), (1, 1, 0));
    }
}
