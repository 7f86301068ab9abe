//! The account of what was followed: intervals of a thread's time, and what it was at in them.

use tailscope_signals::event::Socket;

use super::{Interval, ThreadState, ThreadTimelines};
use crate::classes::Classes;
use crate::compilation::Compilations;
use crate::monitor::Monitors;
use crate::pause::Pauses;
use crate::ticks::Tick;

/// A class that is loaded so long after another, in ns of its thread's own time, goes with it. First
/// requests of a search server were 65 to 76 % class loading, linking and initialising by their JVM's
/// own clocks (its counter `sun.cls.time`); by this rule 66 % of their CPU time, by 1 ms 88 %, by 100 µs
/// 35 %, and by initialisations alone 23 %. Where classes are larger or the machine is slower it says
/// less than is true.
const BURST_NS: u64 = 300_000;

impl ThreadTimelines {
    /// When JVMs stood still.
    #[must_use]
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// When threads waited for monitors.
    #[must_use]
    pub fn monitors(&self) -> &Monitors {
        &self.monitors
    }

    /// What threads did for classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Where ticks met a thread in `from..to`.
    #[must_use]
    pub(crate) fn ticks(&self, tid: u32, from: u64, to: u64) -> &[Tick] {
        self.ticks.of(tid, from, to)
    }

    /// Whether a thread left a CPU in `from..=to` with real-time priority, its own or lent by one that
    /// waits for its lock.
    #[must_use]
    pub fn was_real_time(&self, tid: u32, from: u64, to: u64) -> bool {
        let left = self.real_time.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = left.partition_point(|at| *at < from);
        left.get(first).is_some_and(|at| *at <= to)
    }

    /// When methods were compiled.
    #[must_use]
    pub fn compilations(&self) -> &Compilations {
        &self.compilations
    }

    /// When a thread was at classes within `from..to`: from the begin of an initialisation to its end,
    /// and from one such moment or loaded class to the next that follows so soon, by the time that
    /// the thread itself ran, that little else fits between. A load alone has no length, as only ends
    /// are told.
    #[must_use]
    pub fn at_classes(&self, tid: u32, from: u64, to: u64) -> Vec<(u64, u64)> {
        let loaded = self.classes.loaded(tid, from, to).iter();
        let mut all: Vec<_> = loaded.map(|at| (*at, *at)).collect();
        all.extend(self.classes.initialized(tid, from, to));
        all.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in all {
            match apart.last_mut() {
                Some(last) if begin <= last.1 || self.ran(tid, last.1, begin) <= BURST_NS => {
                    last.1 = last.1.max(end);
                }
                _ => apart.push((begin, end)),
            }
        }
        apart.retain(|(begin, end)| end > begin);
        apart
    }

    /// So long did a thread itself run, its page faults included; what is not known counts.
    fn ran(&self, tid: u32, from: u64, to: u64) -> u64 {
        let own = |state| {
            matches!(
                state,
                ThreadState::Running | ThreadState::Fault | ThreadState::Unknown
            )
        };
        let intervals = self.intervals(tid, from, to);
        let of = intervals.iter().filter(|interval| own(interval.state));
        of.map(|interval| interval.to - interval.from).sum()
    }

    /// What a thread did from `from` to `to`, without holes.
    #[must_use]
    pub fn intervals(&self, tid: u32, from: u64, to: u64) -> Vec<Interval> {
        let all = self
            .threads
            .get(&tid)
            .map_or(&[][..], |thread| &thread.intervals);
        let first = all.partition_point(|interval| interval.to <= from);
        let mut cut: Vec<Interval> = Vec::new();
        let unknown = |from, to| Interval {
            from,
            to,
            tid,
            state: ThreadState::Unknown,
            call: None,
        };
        let mut at = from;
        for interval in all[first..]
            .iter()
            .take_while(|interval| interval.from < to)
        {
            if interval.from > at {
                cut.push(unknown(at, interval.from));
            }
            let interval = Interval {
                from: interval.from.max(at),
                to: interval.to.min(to),
                ..*interval
            };
            at = interval.to;
            cut.push(interval);
        }
        if at < to {
            cut.push(unknown(at, to));
        }
        cut
    }

    /// When a thread last received from or sent to another socket than this, within `from..to`.
    #[must_use]
    pub fn busy_until(&self, tid: u32, socket: Socket, from: u64, to: u64) -> Option<u64> {
        let turns = &self.threads.get(&tid)?.turns;
        let end = turns.partition_point(|(at, _)| *at < to);
        turns[..end]
            .iter()
            .rev()
            .take_while(|(at, _)| *at >= from)
            .find(|(_, other)| *other != socket)
            .map(|(at, _)| *at)
    }

    /// The process that a thread was seen to be of.
    #[must_use]
    pub fn process(&self, tid: u32) -> Option<u32> {
        self.members.get(&tid).copied()
    }
}
