//! Whether this thread lost its CPU since the last look, without a system call.
//!
//! The kernel undoes a *restartable sequence* that was announced by a thread when it takes the CPU
//! from it: it clears the announcement. So an announcement that covers no instruction at all is a
//! flag that the kernel clears at every preemption, migration and signal, and that costs one load
//! to look at. glibc (from 2.35 on) has registered the place for every thread.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// As `struct rseq_cs` of <linux/rseq.h>.
#[repr(C, align(32))]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// Before the place that a sequence aborts to stands this mark, or the kernel ends the process.
/// Nothing ever aborts to here: the sequence is empty.
#[cfg(target_arch = "x86_64")]
static MARK: [u32; 2] = [0x5305_3053, 0];
#[cfg(target_arch = "aarch64")]
static MARK: [u32; 2] = [0xd428_bc00, 0];

/// `rseq_cs` in `struct rseq`.
const ANNOUNCEMENT: isize = 8;

unsafe extern "C" {
    // glibc's: where `struct rseq` is from the thread pointer on, and how long it is (0: none).
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

/// Notices that the calling thread was preempted. Not `Send`: it looks at its own thread's flag.
#[derive(Debug)]
pub struct Preemption {
    announcement: NonNull<AtomicU64>,
    sequence: u64,
}

impl Preemption {
    /// Begins to watch the calling thread; `None` where the kernel or the C library can't.
    #[must_use]
    pub fn watch() -> Option<Self> {
        // SAFETY: constants of the C library, set before main.
        let (offset, size) = unsafe { (__rseq_offset, __rseq_size) };
        if size == 0 {
            return None;
        }
        let pointer: *mut u8;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the first word of a thread's block points to the block itself.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads the thread pointer.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem));
        }
        // SAFETY: by the C library's word, this thread's `struct rseq` is there.
        let announcement =
            NonNull::new(unsafe { pointer.offset(offset + ANNOUNCEMENT) }.cast::<AtomicU64>())?;
        // Leaked: the kernel may look at it as long as the thread lives. 32 bytes a watch.
        let sequence: &'static Sequence = Box::leak(Box::new(Sequence {
            version: 0,
            flags: 0,
            start: 1,
            length: 0,
            abort: (&raw const MARK[1]) as u64,
        }));
        let watch = Self {
            announcement,
            sequence: std::ptr::from_ref(sequence) as u64,
        };
        watch.announce();
        Some(watch)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the thread's own, aligned to 8 as the kernel asks, and there while it lives.
        unsafe { self.announcement.as_ref() }
    }

    fn announce(&self) {
        self.word().store(self.sequence, Relaxed);
    }

    /// Whether the thread was preempted, moved or interrupted by a signal since the last call.
    #[inline(always)]
    #[must_use]
    pub fn since_last(&self) -> bool {
        let was = self.word().load(Relaxed) != self.sequence;
        if was {
            self.announce();
        }
        was
    }
}

impl Drop for Preemption {
    fn drop(&mut self) {
        self.word().store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_slept_had_lost_its_cpu() {
        let Some(watch) = Preemption::watch() else {
            println!("skipped: no restartable sequences here");
            return;
        };
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(watch.since_last());
        // Twice in a row with nothing in between: an interruption of each of many tries would be
        // needed to fail.
        assert!((0..1000).any(|_| !watch.since_last()));
    }
}
