//! An interval of a thread's time.

use tailscope_signals::event::OnTop;

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waker {
    /// A thread.
    Thread(u32),
    /// What ran on top of one.
    OnTop(OnTop),
    /// It was not seen.
    Unknown,
}

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ThreadState {
    /// Its own instructions, or the kernel's for it.
    Running,
    /// Something ran on top of it.
    Interrupted(OnTop),
    /// A page fault, on the CPU.
    Fault,
    /// It could run, and another had the CPU in whose queue it was: the one that had it longest in
    /// this time; `Some(0)`: nobody, the CPU was idle.
    Waiting {
        /// The CPU; where migrations are not told, the one on which it then ran.
        cpu: u32,
        /// The thread.
        behind: Option<u32>,
        /// It was made to leave the CPU.
        preempted: bool,
    },
    /// It waited for something.
    Blocked {
        /// In a page fault.
        fault: bool,
        /// Who ended that.
        by: Waker,
    },
    /// The trace does not say: it begins later.
    Unknown,
}

/// An interval of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// From when, in ns.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// The thread.
    pub tid: u32,
    /// What it did.
    pub state: ThreadState,
    /// The system call that it was in.
    pub call: Option<u16>,
}
