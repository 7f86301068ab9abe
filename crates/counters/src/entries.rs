//! How often a thread comes to an instruction, by a debug register of the processor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use rustix::io::Errno;

use crate::open::{in_user_space, open};
use crate::sampled::done;

/// `HW_BREAKPOINT_X` of `linux/hw_breakpoint.h`, whose length is that of a `long`.
const EXECUTE: u32 = 4;
const LONG: u64 = 8;

/// Counts how often one thread of any process comes to an instruction. The thread stops for some
/// microseconds each time. The kernel ends it when this process ends, however it ends.
#[derive(Debug)]
pub struct EntryCounter(OwnedFd);

/// What a counter has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entries {
    /// How often the thread came there.
    pub count: u64,
    /// CPU time that the thread had while it was counted, in ns.
    pub running: u64,
}

impl EntryCounter {
    /// Counts from now on.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if the thread is gone, `ENOSPC` if a debugger has the debug registers.
    pub fn open(tid: u32, address: u64) -> io::Result<Self> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| Errno::SRCH)?;
        let mut attributes = in_user_space(b::PERF_TYPE_BREAKPOINT, [0, address, LONG]);
        attributes.bp_type = EXECUTE;
        attributes.read_format = b::PERF_FORMAT_TOTAL_TIME_RUNNING.into();
        attributes.set_disabled(1);
        let counter = Self(open(attributes, tid, None)?);
        // SAFETY: a perf event's descriptor; the argument is a number.
        done(unsafe { perf::ioctls::ENABLE(counter.0.as_raw_fd(), 0) })?;
        Ok(counter)
    }

    /// What it has found so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Entries> {
        let mut words = [0; 16];
        rustix::io::read(&self.0, &mut words)?;
        let word = |place: usize| {
            let bytes = words[8 * place..8 * place + 8].try_into();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Ok(Entries {
            count: word(0),
            running: word(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    extern "C" fn entered(n: u64) -> u64 {
        black_box(n) + 1
    }

    #[test]
    fn each_entry_counts_once_and_the_time_is_the_threads() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let counter = match EntryCounter::open(tid.cast_unsigned(), entered as *const () as u64) {
            Ok(counter) => counter,
            Err(e) => return println!("skipped: {e}"),
        };
        let calls = || (0..1000).fold(0, |sum, n| sum + entered(n));
        assert_eq!(calls(), 500_500);
        let found = counter.read().expect("a count");
        assert_eq!(found.count, 1000);
        println!("{found:?}");
        assert!(found.running > 0);
    }
}
