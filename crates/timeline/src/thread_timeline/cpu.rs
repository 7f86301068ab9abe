//! One CPU: which thread has it, what runs on top of that, and who had it before.

use std::collections::{HashMap, VecDeque};

use tailscope_signals::event::OnTop;

/// So many stretches of a CPU are remembered, to say behind whom a thread waited.
const HISTORY: usize = 4096;
/// What can nest on top of a thread: more is a lost event.
const NESTING: usize = 8;

/// A stretch in which a thread had a CPU.
#[derive(Debug, Clone, Copy)]
struct Ran {
    tid: u32,
    from: u64,
    to: u64,
}

#[derive(Debug, Default)]
pub(super) struct Cpu {
    current: Option<u32>,
    since: u64,
    on_top: Vec<OnTop>,
    history: VecDeque<Ran>,
}

impl Cpu {
    /// It goes from one thread to another, and nothing is on top of anybody any more.
    pub(super) fn switch(&mut self, from: u32, to: u32, now: u64) {
        if self.current == Some(from) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(Ran {
                tid: from,
                from: self.since,
                to: now,
            });
        }
        self.current = Some(to);
        self.since = now;
        self.on_top.clear();
    }

    /// A thread is seen on it, before the first switch too.
    pub(super) fn seen(&mut self, tid: u32, now: u64) {
        if self.current.is_none() {
            self.current = Some(tid);
            self.since = now;
        }
    }

    /// Something begins on top.
    pub(super) fn enter(&mut self, on_top: OnTop) {
        if self.on_top.len() < NESTING {
            self.on_top.push(on_top);
        }
    }

    /// And ends, with what is on top of it.
    pub(super) fn leave(&mut self, on_top: OnTop) {
        if let Some(at) = self.on_top.iter().rposition(|other| *other == on_top) {
            self.on_top.truncate(at);
        }
    }

    /// What runs on top of all.
    pub(super) fn top(&self) -> Option<OnTop> {
        self.on_top.last().copied()
    }

    /// Who had the CPU longest from `since` until `now`.
    pub(super) fn longest(&self, since: u64, now: u64) -> Option<u32> {
        let mut time: HashMap<u32, u64> = HashMap::new();
        if let Some(current) = self.current {
            let has = now.saturating_sub(self.since.max(since));
            time.extend((has > 0).then_some((current, has)));
        }
        for ran in self.history.iter().rev().take_while(|ran| ran.to > since) {
            *time.entry(ran.tid).or_default() += ran.to - ran.from.max(since);
        }
        // Of equals the smallest id, so that the answer does not hang on the map's order.
        time.into_iter()
            .max_by_key(|(tid, ns)| (*ns, std::cmp::Reverse(*tid)))
            .map(|(tid, _)| tid)
    }
}
