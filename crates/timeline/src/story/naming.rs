//! The name of a gap: what a thread did in a piece of its time, and for whom or what it waited.

use tailscope_signals::event::OnTop;

use super::teller::Teller;
use super::{Kind, on_top_name};
use crate::calls;
use crate::pause::Pause;
use crate::track::{Doing, Piece, Waker};

/// So long before and after a wait another thread may have been at the classes that it waited for, in ns.
const AROUND_NS: u64 = 1_000_000_000;
/// What a thread does that is at classes.
const AT_CLASSES: &str = "loading or initialising classes";

/// It may: where the trace begins within a call, that is not known.
fn waits_on_a_futex(piece: &Piece) -> bool {
    piece
        .call
        .is_none_or(|call| i64::from(call) == libc::SYS_futex)
}

impl Teller<'_> {
    /// What a thread did in a piece; `other`: before it came to this request.
    pub(super) fn name(&self, piece: &Piece, other: bool) -> (Kind, String) {
        match piece.doing {
            Doing::Running if other => (Kind::Busy, "busy with other requests".into()),
            Doing::Running => (Kind::Running, "running".into()),
            Doing::Interrupted(on_top) => self.on_top(on_top),
            Doing::Fault => (Kind::PageFault, "page faults".into()),
            Doing::Waiting {
                behind: Some(0), ..
            } => (Kind::WakeUp, "waking up an idle CPU".into()),
            Doing::Waiting { cpu, behind, .. } => self.waiting(piece, cpu, behind),
            Doing::Blocked { fault: true, .. } => (
                Kind::PageFault,
                "page faults that waited for memory or the disk".into(),
            ),
            Doing::Blocked { by, .. } => {
                if let Some(pause) = self.pause(piece) {
                    return (Kind::JvmPause, pause.name.clone());
                }
                if let Some(name) = self.for_classes(piece, by) {
                    return (Kind::ClassLoading, name);
                }
                if let Some(class) = self.monitor(piece) {
                    let name = format!("waiting for a monitor of {class}{}", self.until(by, piece));
                    return (Kind::JvmMonitor, name);
                }
                let call = piece.call.map_or_else(|| "the kernel".into(), calls::name);
                let until = self.until(by, piece);
                (Kind::Blocked, format!("blocked in {call}{until}"))
            }
            Doing::Unknown => (
                Kind::Unknown,
                "unknown: no event shows what the thread did".into(),
            ),
        }
    }

    /// A thread could run. While its JVM has stopped all threads it can't, CPU or not; and a CPU may
    /// be taken by the pause of another JVM.
    fn waiting(&self, piece: &Piece, cpu: u32, behind: Option<u32>) -> (Kind, String) {
        if let Some(pause) = self.pause_of(piece.tid, piece) {
            return (Kind::JvmPause, pause.name.clone());
        }
        let Some(behind) = behind else {
            return (Kind::WaitingForCpu, "waiting for a CPU".into());
        };
        let mut name = format!("waiting for CPU {cpu} behind {}", self.trace.thread(behind));
        if let Some(pause) = self.pause_of(behind, piece).filter(|p| p.tid == behind) {
            name += &format!(" ({})", pause.name);
        } else if self.compiles(behind, piece) {
            name += " (compiling methods)";
        } else if self.was_at_classes(behind, piece) {
            name += &format!(" ({AT_CLASSES})");
        } else if self.faulted(behind, piece) {
            name += " (page faults)";
        }
        (Kind::WaitingForCpu, name)
    }

    /// What a thread did that was at its classes, if that is why: it ran, or waited for another thread, as
    /// it does where that one is at the same class.
    pub(super) fn at_classes(&self, piece: &Piece) -> Option<(Kind, String)> {
        let waits = |by| waits_on_a_futex(piece) && self.are_one(piece.tid, by);
        let why = match piece.doing {
            Doing::Running | Doing::Fault => true,
            Doing::Blocked {
                fault: false,
                by: Waker::Thread(by),
            } => waits(by) && self.pause(piece).is_none(),
            _ => false,
        };
        why.then(|| (Kind::ClassLoading, AT_CLASSES.into()))
    }

    /// Where a thread waited for another one of its JVM that was at classes most of the time.
    fn for_classes(&self, piece: &Piece, by: Waker) -> Option<String> {
        let Waker::Thread(by) = by else { return None };
        let waits = waits_on_a_futex(piece) && self.are_one(piece.tid, by);
        let name = || {
            format!(
                "waiting for {}, which was {AT_CLASSES}",
                self.trace.thread(by)
            )
        };
        (waits && self.was_at_classes(by, piece)).then(name)
    }

    /// Whether a thread was at classes most of the time of a piece.
    fn was_at_classes(&self, tid: u32, piece: &Piece) -> bool {
        let (from, to) = (piece.from, piece.to);
        let (before, behind) = (from.saturating_sub(AROUND_NS), to + AROUND_NS);
        let at_classes = self.tracks.at_classes(tid, before, behind);
        let within = at_classes
            .iter()
            .map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from)));
        within.sum::<u64>() * 2 >= to - from
    }

    /// Whether a thread was in page faults most of the time of a piece.
    fn faulted(&self, tid: u32, piece: &Piece) -> bool {
        let pieces = self.tracks.pieces(tid, piece.from, piece.to);
        let faults = pieces.iter().filter(|piece| piece.doing == Doing::Fault);
        faults.map(|piece| piece.to - piece.from).sum::<u64>() * 2 >= piece.to - piece.from
    }

    /// Whether two threads are of one process that is watched.
    fn are_one(&self, one: u32, other: u32) -> bool {
        let process = self.tracks.process(one);
        process.is_some() && process == self.tracks.process(other)
    }

    /// Who ended a wait, as the end of a sentence.
    fn until(&self, by: Waker, piece: &Piece) -> String {
        match by {
            Waker::Thread(0) | Waker::Unknown => String::new(),
            Waker::Thread(tid) if self.compiles(tid, piece) => {
                format!(
                    " until {} (compiling methods) woke it",
                    self.trace.thread(tid)
                )
            }
            Waker::Thread(tid) => format!(" until {} woke it", self.trace.thread(tid)),
            Waker::OnTop(on_top) => format!(" until {} woke it", on_top_name(self.trace, on_top)),
        }
    }

    /// Whether a thread compiled methods most of the time of a piece.
    fn compiles(&self, tid: u32, piece: &Piece) -> bool {
        self.tracks.compilations().over(tid, piece.from, piece.to)
    }

    /// The class of the monitor that a thread waited for, on a futex.
    fn monitor(&self, piece: &Piece) -> Option<String> {
        let monitors = self.tracks.monitors();
        waits_on_a_futex(piece)
            .then(|| monitors.over(piece.tid, piece.from, piece.to))
            .flatten()
    }

    /// What the JVM stopped its threads for, while this one waited on a futex, as it then does.
    pub(super) fn pause(&self, piece: &Piece) -> Option<&Pause> {
        waits_on_a_futex(piece)
            .then(|| self.pause_of(piece.tid, piece))
            .flatten()
    }

    /// The pause of a thread's JVM that covers most of a piece.
    fn pause_of(&self, tid: u32, piece: &Piece) -> Option<&Pause> {
        let process = self.tracks.process(tid)?;
        self.tracks.pauses().over(process, piece.from, piece.to)
    }

    fn on_top(&self, on_top: OnTop) -> (Kind, String) {
        let name = on_top_name(self.trace, on_top);
        match on_top {
            OnTop::Softirq(_) => (Kind::Softirq, format!("interrupted by {name}")),
            _ => (Kind::Interrupt, format!("interrupted by {name}")),
        }
    }
}
