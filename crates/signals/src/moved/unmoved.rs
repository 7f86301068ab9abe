//! Why a page is not moved.

use std::io;
use std::time::Duration;

/// Why a page is not moved. The process goes on as it was.
#[derive(Debug, thiserror::Error)]
pub enum Unmoved {
    /// The process ended.
    #[error("the process has ended")]
    Gone,
    /// Somebody traces it.
    #[error("process {0} traces it already")]
    Traced(u64),
    /// It restricts its own system calls.
    #[error("it runs under seccomp, which may refuse the system calls that moving takes")]
    Seccomp,
    /// It is stopped.
    #[error("it is stopped")]
    Stopped,
    /// A step of it would change what it does about a signal.
    #[error("it ignores SIGTRAP, by which a thread is stepped")]
    IgnoresTraps,
    /// Devices may write into its memory at any time.
    #[error("some of its memory is pinned for a device")]
    Pinned,
    /// They may while a request is under way.
    #[error("it uses asynchronous I/O (io_uring or AIO), which may be writing into the page")]
    AsynchronousIo,
    /// The page is none that can be moved.
    #[error("{0}")]
    Mapping(String),
    /// It has children that go on in its own program.
    #[error("it forks (child {0} runs the same program), and a child would share the page")]
    Forks(u32),
    /// Another process has the same memory.
    #[error("process {0} lives in the same memory")]
    SharesMemory(u32),
    /// There is nothing in it that makes a system call.
    #[error("it has no vDSO with a system call in it")]
    NoInstruction,
    /// No thread of it may make calls for us.
    #[error("none of its threads can make a system call for it now")]
    NoCaller,
    /// Its threads did not stop soon enough, or those that had stopped would have stood too long.
    #[error("it would have stood still for too long (after {} µs not all was ready)", .0.as_micros())]
    Slow(Duration),
    /// It was tried as often as is reasonable.
    #[error("{why}, the last of {stops} times that it was stopped for, {} µs at most", .longest.as_micros())]
    InVain {
        /// Why not the last time.
        why: Box<Unmoved>,
        /// How often it, or one of its threads, was stopped.
        stops: u32,
        /// For how long at most.
        longest: Duration,
    },
    /// Another observation has it.
    #[error("another observation has moved it")]
    Taken,
    /// The system refused.
    #[error("can't {what}: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Unmoved {
    pub(super) fn failed(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            _ => Self::Failed { what, source },
        }
    }
}

/// What `map_err` takes.
pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> Unmoved {
    move |source| Unmoved::failed(what, source)
}
