//! The name of a gap: what a thread did in an interval of its time, and for whom or what it waited.

use tailscope_signals::event::OnTop;

use super::critical_path::CriticalPath;
use super::{Kind, on_top_name};
use crate::calls;
use crate::pause::Pause;
use crate::thread_timeline::{Interval, ThreadState, Waker};

/// So long before and after a wait another thread may have been at the classes that it waited for, in ns.
const AROUND_NS: u64 = 1_000_000_000;
/// What a thread does that is at classes.
const AT_CLASSES: &str = "loading or initialising classes";

/// It may: where the trace begins within a call, that is not known.
fn waits_on_a_futex(interval: &Interval) -> bool {
    interval
        .call
        .is_none_or(|call| i64::from(call) == libc::SYS_futex)
}

impl CriticalPath<'_> {
    /// What a thread did in an interval; `other`: before it came to this request.
    pub(super) fn name(&self, interval: &Interval, other: bool) -> (Kind, String) {
        match interval.state {
            ThreadState::Running if other => (Kind::Busy, "busy with other requests".into()),
            ThreadState::Running => (Kind::Running, "running".into()),
            ThreadState::Interrupted(on_top) => self.on_top(on_top),
            ThreadState::Fault => (Kind::PageFault, "page faults".into()),
            ThreadState::Waiting {
                behind: Some(0), ..
            } => (Kind::WakeUp, "waking up an idle CPU".into()),
            ThreadState::Waiting {
                cpu,
                behind,
                preempted,
            } => {
                let (kind, name) = self.waiting(interval, cpu, behind);
                let call = interval.call.map(i64::from);
                match behind.is_some() && !preempted && call == Some(libc::SYS_sched_yield) {
                    true => (kind, name + ", to which it yielded"),
                    false => (kind, name),
                }
            }
            ThreadState::Blocked { fault: true, .. } => (
                Kind::PageFault,
                "page faults that waited for memory or the disk".into(),
            ),
            ThreadState::Blocked { by, .. } => {
                if let Some(pause) = self.pause(interval) {
                    return (Kind::JvmPause, pause.name.clone());
                }
                if let Some(name) = self.for_classes(interval, by) {
                    return (Kind::ClassLoading, name);
                }
                if let Some(class) = self.monitor(interval) {
                    let name = format!(
                        "waiting for a monitor of {class}{}",
                        self.until(by, interval)
                    );
                    return (Kind::JvmMonitor, name);
                }
                let call = interval
                    .call
                    .map_or_else(|| "the kernel".into(), calls::name);
                let place = match self.trace.about.records("syscall") {
                    true => format!(" in {call}"),
                    false => String::new(),
                };
                let until = self.until(by, interval);
                (Kind::Blocked, format!("blocked{place}{until}"))
            }
            ThreadState::Unknown => (
                Kind::Unknown,
                "unknown: no event shows what the thread did".into(),
            ),
        }
    }

    /// A thread could run. While its JVM has stopped all threads it can't, CPU or not; and a CPU may
    /// be taken by the pause of another JVM.
    fn waiting(&self, interval: &Interval, cpu: u32, behind: Option<u32>) -> (Kind, String) {
        if let Some(pause) = self.pause_of(interval.tid, interval) {
            return (Kind::JvmPause, pause.name.clone());
        }
        let Some(behind) = behind else {
            return (Kind::WaitingForCpu, "waiting for a CPU".into());
        };
        let mut name = format!("waiting for CPU {cpu} behind {}", self.trace.thread(behind));
        if self
            .timelines
            .was_real_time(behind, interval.from, interval.to)
        {
            name += " (real-time)";
        }
        if let Some(pause) = self.pause_of(behind, interval).filter(|p| p.tid == behind) {
            name += &format!(" ({})", pause.name);
        } else if self.compiles(behind, interval) {
            name += " (compiling methods)";
        } else if self.was_at_classes(behind, interval) {
            name += &format!(" ({AT_CLASSES})");
        } else if self.faulted(behind, interval) {
            name += " (page faults)";
        }
        (Kind::WaitingForCpu, name)
    }

    /// What a thread did that was at its classes, if that is why: it ran, or waited for another thread, as
    /// it does where that one is at the same class.
    pub(super) fn at_classes(&self, interval: &Interval) -> Option<(Kind, String)> {
        let waits = |by| waits_on_a_futex(interval) && self.are_one(interval.tid, by);
        let why = match interval.state {
            ThreadState::Running | ThreadState::Fault => true,
            ThreadState::Blocked {
                fault: false,
                by: Waker::Thread(by),
            } => waits(by) && self.pause(interval).is_none(),
            _ => false,
        };
        why.then(|| (Kind::ClassLoading, AT_CLASSES.into()))
    }

    /// Where a thread waited for another one of its JVM that was at classes most of the time.
    fn for_classes(&self, interval: &Interval, by: Waker) -> Option<String> {
        let Waker::Thread(by) = by else { return None };
        let waits = waits_on_a_futex(interval) && self.are_one(interval.tid, by);
        let name = || {
            format!(
                "waiting for {}, which was {AT_CLASSES}",
                self.trace.thread(by)
            )
        };
        (waits && self.was_at_classes(by, interval)).then(name)
    }

    /// Whether a thread was at classes most of the time of an interval.
    fn was_at_classes(&self, tid: u32, interval: &Interval) -> bool {
        let (from, to) = (interval.from, interval.to);
        let (before, behind) = (from.saturating_sub(AROUND_NS), to + AROUND_NS);
        let at_classes = self.timelines.at_classes(tid, before, behind);
        let within = at_classes
            .iter()
            .map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from)));
        within.sum::<u64>() * 2 >= to - from
    }

    /// Whether a thread was in page faults most of the time of an interval.
    fn faulted(&self, tid: u32, interval: &Interval) -> bool {
        let intervals = self.timelines.intervals(tid, interval.from, interval.to);
        let faults = intervals
            .iter()
            .filter(|interval| interval.state == ThreadState::Fault);
        faults
            .map(|interval| interval.to - interval.from)
            .sum::<u64>()
            * 2
            >= interval.to - interval.from
    }

    /// Whether two threads are of one process that is watched.
    fn are_one(&self, one: u32, other: u32) -> bool {
        let process = self.timelines.process(one);
        process.is_some() && process == self.timelines.process(other)
    }

    /// Who ended a wait, as the end of a sentence.
    fn until(&self, by: Waker, interval: &Interval) -> String {
        match by {
            Waker::Thread(0) | Waker::Unknown => String::new(),
            Waker::Thread(tid) if self.compiles(tid, interval) => {
                format!(
                    " until {} (compiling methods) woke it",
                    self.trace.thread(tid)
                )
            }
            Waker::Thread(tid) => format!(" until {} woke it", self.trace.thread(tid)),
            Waker::OnTop(on_top) => format!(" until {} woke it", on_top_name(self.trace, on_top)),
        }
    }

    /// Whether a thread compiled methods most of the time of an interval.
    fn compiles(&self, tid: u32, interval: &Interval) -> bool {
        self.timelines
            .compilations()
            .over(tid, interval.from, interval.to)
    }

    /// The class of the monitor that a thread waited for, on a futex.
    fn monitor(&self, interval: &Interval) -> Option<String> {
        let monitors = self.timelines.monitors();
        waits_on_a_futex(interval)
            .then(|| monitors.over(interval.tid, interval.from, interval.to))
            .flatten()
    }

    /// What the JVM stopped its threads for, while this one waited on a futex, as it then does.
    pub(super) fn pause(&self, interval: &Interval) -> Option<&Pause> {
        waits_on_a_futex(interval)
            .then(|| self.pause_of(interval.tid, interval))
            .flatten()
    }

    /// The pause of a thread's JVM that covers most of an interval.
    fn pause_of(&self, tid: u32, interval: &Interval) -> Option<&Pause> {
        let process = self.timelines.process(tid)?;
        self.timelines
            .pauses()
            .over(process, interval.from, interval.to)
    }

    fn on_top(&self, on_top: OnTop) -> (Kind, String) {
        let name = on_top_name(self.trace, on_top);
        match on_top {
            OnTop::Softirq(_) => (Kind::Softirq, format!("interrupted by {name}")),
            _ => (Kind::Interrupt, format!("interrupted by {name}")),
        }
    }
}
