//! The causes that a span's time can go to, with their persisted numbers.

use std::fmt;

/// Where a span's time went. Causes are exclusive: with the time the span ran itself they add up
/// to its wall time. The numbers are persisted and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Runnable but not running, from a wake-up to the switch-in, less `Throttled`.
    Runqueue = 0,
    /// Runnable but not running, from an involuntary switch to the switch-in, less `Throttled`.
    Preempted = 1,
    /// Runnable but held back by a CPU quota of one of its groups.
    Throttled = 2,
    /// Blocked in futex, or in the kernel on a contended lock.
    Lock = 3,
    /// Blocked on a block device or on the page cache.
    Io = 4,
    /// Blocked in a socket, epoll or poll call inside the span.
    Network = 5,
    /// Every other voluntary block.
    Sleep = 6,
    /// Hard interrupts and vectors, less what nested in them.
    Irq = 7,
    /// Softirqs NET_TX and NET_RX on top of the span, less what nested in them.
    SoftirqNet = 8,
    /// Softirqs TIMER and HRTIMER, likewise.
    SoftirqTimer = 9,
    /// Every other softirq, likewise.
    SoftirqOther = 10,
    /// Page faults, less the time switched out in them and less interrupts.
    Fault = 11,
    /// Time in which the hypervisor ran something else.
    Steal = 12,
    /// The request was ready at its socket while its thread was on the CPU with other work.
    Queue = 13,
    /// Kept from running by a signal, a tracer or its cgroup's freezer.
    Stopped = 14,
    /// Taking memory back before it gets some: over `memory.high`, or where memory is short.
    Reclaim = 15,
    /// TCP kept the end of the answer back: Nagle, a full window.
    Tcp = 16,
    /// The request's data was there, and its connection waited to be accepted.
    Accept = 17,
    /// What the request did or waited for is not known: a timer, or something that neither a socket
    /// nor a wake-up shows. In `ready..send` spans: another thread answered than received.
    Unknown = 18,
    /// Another server was asked, from the send to the moment when its answer was ready.
    Downstream = 19,
}

impl Cause {
    /// How many causes there are.
    pub const COUNT: usize = 20;

    /// Every cause, in the persisted order: `ALL[n]` has the number `n`.
    pub const ALL: [Cause; Cause::COUNT] = [
        Cause::Runqueue,
        Cause::Preempted,
        Cause::Throttled,
        Cause::Lock,
        Cause::Io,
        Cause::Network,
        Cause::Sleep,
        Cause::Irq,
        Cause::SoftirqNet,
        Cause::SoftirqTimer,
        Cause::SoftirqOther,
        Cause::Fault,
        Cause::Steal,
        Cause::Queue,
        Cause::Stopped,
        Cause::Reclaim,
        Cause::Tcp,
        Cause::Accept,
        Cause::Unknown,
        Cause::Downstream,
    ];

    /// The causes that a thread's meter has: `METERED[n]` has the meter's number `n`
    /// (`enum ts_cause` in `sdk/c/tailscope_abi.h`).
    pub const METERED: [Cause; 14] = [
        Cause::Runqueue,
        Cause::Preempted,
        Cause::Throttled,
        Cause::Lock,
        Cause::Io,
        Cause::Network,
        Cause::Sleep,
        Cause::Irq,
        Cause::SoftirqNet,
        Cause::SoftirqTimer,
        Cause::SoftirqOther,
        Cause::Fault,
        Cause::Stopped,
        Cause::Reclaim,
    ];

    /// The name as in the ledger's columns, `<name>_ns` and `<name>_n`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Runqueue => "runqueue",
            Cause::Preempted => "preempted",
            Cause::Throttled => "throttled",
            Cause::Lock => "lock",
            Cause::Io => "io",
            Cause::Network => "network",
            Cause::Sleep => "sleep",
            Cause::Irq => "irq",
            Cause::SoftirqNet => "softirq_net",
            Cause::SoftirqTimer => "softirq_timer",
            Cause::SoftirqOther => "softirq_other",
            Cause::Fault => "fault",
            Cause::Steal => "steal",
            Cause::Queue => "queue",
            Cause::Stopped => "stopped",
            Cause::Reclaim => "reclaim",
            Cause::Tcp => "tcp",
            Cause::Accept => "accept",
            Cause::Unknown => "unknown",
            Cause::Downstream => "downstream",
        }
    }

    /// Whether the ledger says who is to blame for it, in the column `<name>_by`.
    #[must_use]
    pub const fn blames(self) -> bool {
        matches!(
            self,
            Cause::Runqueue
                | Cause::Preempted
                | Cause::Lock
                | Cause::Network
                | Cause::Sleep
                | Cause::Irq
                | Cause::SoftirqNet
                | Cause::SoftirqTimer
                | Cause::SoftirqOther
                | Cause::Queue
                | Cause::Stopped
                | Cause::Tcp
                | Cause::Downstream
        )
    }

    /// The cause's number as an index into the arrays of a [`SpanRow`](crate::SpanRow).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The cause of that number, if there is one.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Cause> {
        Cause::ALL.get(index).copied()
    }

    /// The cause of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of causes, such as those that this machine can measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CauseSet(u32);

impl CauseSet {
    /// No cause.
    pub const EMPTY: CauseSet = CauseSet(0);
    /// Every cause.
    pub const ALL: CauseSet = CauseSet((1 << Cause::COUNT) - 1);

    /// This set and `cause`.
    #[must_use]
    pub const fn with(self, cause: Cause) -> CauseSet {
        CauseSet(self.0 | 1 << cause as u32)
    }

    /// This set less `cause`.
    #[must_use]
    pub const fn without(self, cause: Cause) -> CauseSet {
        CauseSet(self.0 & !(1 << cause as u32))
    }

    /// Whether `cause` is in the set.
    #[must_use]
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & 1 << cause as u32 != 0
    }

    /// The set as bits: bit n stands for the cause of number n.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The causes of the set in the persisted order.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL
            .into_iter()
            .filter(move |cause| self.contains(*cause))
    }
}

impl FromIterator<Cause> for CauseSet {
    fn from_iter<I: IntoIterator<Item = Cause>>(causes: I) -> Self {
        causes.into_iter().fold(CauseSet::EMPTY, CauseSet::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_their_cause() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), number);
            assert_eq!(Cause::from_index(number), Some(cause));
            assert_eq!(Cause::from_name(cause.name()), Some(cause));
        }
        assert_eq!(Cause::from_index(Cause::COUNT), None);
        assert_eq!(Cause::from_name("running"), None);
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: CauseSet = [Cause::Steal, Cause::Lock].into_iter().collect();
        assert!(set.contains(Cause::Lock) && !set.contains(Cause::Io));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Cause::Lock, Cause::Steal]);
        assert_eq!(
            set.without(Cause::Lock).iter().collect::<Vec<_>>(),
            [Cause::Steal]
        );
        assert_eq!(Cause::ALL.into_iter().collect::<CauseSet>(), CauseSet::ALL);
    }
}
