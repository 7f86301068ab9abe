//! Hazard words: what keeps the replicas of a server from answering right now.
//!
//! Each replica has one word of a cache line, in memory that the kernel's programs or a poller
//! write. Reading one takes a few loads and no system call. `include/tailscope_hazard.h` has the
//! layout.

mod words;

use std::time::Duration;

pub use self::words::{Active, Word, Words};
use crate::clock::Monotonic;

/// `include/tailscope_hazard.h`, as Rust sees it. The words on each item are in the header.
pub mod abi {
    #![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

    include!(concat!(env!("OUT_DIR"), "/hazard_abi.rs"));
}

const WAIT_NS: u64 = abi::TS_HAZARD_WAIT_NS as u64;
/// How long a thread waits for a CPU before that is a hazard.
pub const WAIT: Duration = Duration::from_nanos(WAIT_NS);

/// What keeps a replica from answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The JVM collects, with all threads stopped.
    Collection,
    /// Another operation of the JVM, with all threads stopped.
    Safepoint,
    /// Its processes are stopped: by a signal, a debugger or the cgroup freezer.
    Stopped,
    /// None of its processes is left.
    Gone,
    /// Its cgroup has used up the CPU quota.
    Throttled,
    /// A thread waits for a CPU for longer than [`WAIT`], and no thread of its process got one
    /// meanwhile.
    Runqueue,
}

/// What a hazard applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One thread or more.
    Thread,
    /// All threads of a process.
    Process,
    /// All processes of a cgroup.
    Cgroup,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; abi::TS_HAZARD_KINDS as usize] = [
        Self::Collection,
        Self::Safepoint,
        Self::Stopped,
        Self::Gone,
        Self::Throttled,
        Self::Runqueue,
    ];

    /// The kind of this number in the header; `None`: there is no such kind.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    const fn number(self) -> u32 {
        match self {
            Self::Collection => abi::TS_HAZARD_COLLECTION,
            Self::Safepoint => abi::TS_HAZARD_SAFEPOINT,
            Self::Stopped => abi::TS_HAZARD_STOPPED,
            Self::Gone => abi::TS_HAZARD_GONE,
            Self::Throttled => abi::TS_HAZARD_THROTTLED,
            Self::Runqueue => abi::TS_HAZARD_RUNQUEUE,
        }
    }

    /// Its name in output and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Collection => "collection",
            Self::Safepoint => "safepoint",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
            Self::Throttled => "throttled",
            Self::Runqueue => "runqueue",
        }
    }

    /// What it applies to.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Collection | Self::Safepoint | Self::Stopped | Self::Gone => Scope::Process,
            Self::Throttled => Scope::Cgroup,
            Self::Runqueue => Scope::Thread,
        }
    }

    /// After how long a set bit no longer counts, because its end may have been missed. `None`:
    /// somebody looks again and again whether it still holds.
    #[must_use]
    pub const fn expiry(self) -> Option<Duration> {
        match self {
            Self::Collection | Self::Safepoint => Some(Duration::from_secs(10)),
            // The longest period of a quota.
            Self::Throttled => Some(Duration::from_secs(1)),
            Self::Stopped | Self::Gone | Self::Runqueue => None,
        }
    }
}

impl Scope {
    /// Its name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Cgroup => "cgroup",
        }
    }
}

/// A hazard that began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Monotonic,
    /// When it began.
    pub since: Monotonic,
    /// Of which replica.
    pub slot: u32,
    /// In which of its processes.
    pub pid: u32,
    /// What.
    pub kind: Kind,
    /// Whether it ended.
    pub ends: bool,
}

impl Change {
    /// Reads what a program wrote; `None`: nothing that is known here.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        const { assert!(size_of::<abi::ts_hazard_change>() == 32) };
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            at: Monotonic(word(0)?),
            since: Monotonic(word(8)?),
            slot: half(16)?,
            pid: half(20)?,
            kind: Kind::of(*bytes.get(24)?)?,
            ends: *bytes.get(25)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn foreign_changes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let change = Change::parse(&bytes);
            prop_assert!(change.is_none() || bytes.len() > 25);
        }
    }
}
