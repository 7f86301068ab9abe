//! For each measurement the kernel hook that this machine offers for it, and why not a better one.

use std::collections::BTreeMap;
use std::fmt;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // their names say what they are; `tailscope doctor` has a line on each
pub enum Measurement {
    Block,
    Blocked,
    Connections,
    Counters,
    Fault,
    Idle,
    Irq,
    Lock,
    Migrate,
    Packet,
    Ready,
    Receive,
    Reclaim,
    Runqueue,
    Send,
    Sockets,
    Softirq,
    Steal,
    Stopped,
    Syscall,
    Tcp,
    Throttled,
    Tick,
    Transmit,
    Uprobe,
    Usdt,
}

impl Measurement {
    /// Its name in `ledger.json`, in a timeline's window, and in `tailscope doctor --json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Blocked => "blocked",
            Self::Connections => "connections",
            Self::Counters => "counters",
            Self::Fault => "fault",
            Self::Idle => "idle",
            Self::Irq => "irq",
            Self::Lock => "lock",
            Self::Migrate => "migrate",
            Self::Packet => "packet",
            Self::Ready => "ready",
            Self::Receive => "receive",
            Self::Reclaim => "reclaim",
            Self::Runqueue => "runqueue",
            Self::Send => "send",
            Self::Sockets => "sockets",
            Self::Softirq => "softirq",
            Self::Steal => "steal",
            Self::Stopped => "stopped",
            Self::Syscall => "syscall",
            Self::Tcp => "tcp",
            Self::Throttled => "throttled",
            Self::Tick => "tick",
            Self::Transmit => "transmit",
            Self::Uprobe => "uprobe",
            Self::Usdt => "usdt",
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How something is measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mechanism {
    /// The kernel's hook; `None` if this machine can't measure it.
    pub hook: Option<&'static str>,
    /// Why not a better one; empty for the best.
    pub why: String,
}

/// The mechanisms of all measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mechanisms(BTreeMap<Measurement, Mechanism>);

impl Mechanisms {
    /// Sets the mechanism of a measurement.
    pub fn set(&mut self, of: Measurement, hook: Option<&'static str>, why: impl Into<String>) {
        let why = why.into();
        self.0.insert(of, Mechanism { hook, why });
    }

    /// The mechanism of a measurement; `None`: nobody asked for it.
    #[must_use]
    pub fn get(&self, of: Measurement) -> Option<&Mechanism> {
        self.0.get(&of)
    }

    /// Whether this machine measures it.
    #[must_use]
    pub fn measures(&self, what: Measurement) -> bool {
        self.get(what)
            .is_some_and(|mechanism| mechanism.hook.is_some())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (Measurement, &Mechanism)> {
        self.0.iter().map(|(of, mechanism)| (*of, mechanism))
    }
}
