//! Files that are cut short while they are mapped here.
//!
//! Whoever owns a mapped file can cut it short; the next load behind its new end raises SIGBUS, which
//! ends a process. [`survive`] has such a load read zeros instead, and [`happened`] says that it did:
//! what was read since is not to be believed.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Why the kernel raises SIGBUS where a file has no page: from `asm-generic/siginfo.h`.
const BUS_ADRERR: c_int = 2;

static TIMES: AtomicU64 = AtomicU64::new(0);
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Has loads from files that were cut short read zeros, in all threads, from now on.
pub fn survive() -> io::Result<()> {
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one, whose fields are set below; the handler makes no call
    // that a signal handler must not make.
    let done = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_sigbus;
        action.sa_sigaction = handler as usize;
        // On the stack that Rust gives threads for signals, if there is one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut())
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How many pages were missing so far.
#[must_use]
pub fn happened() -> u64 {
    TIMES.load(Ordering::Relaxed)
}

/// Puts a page of zeros where the load found none, and has it tried again. Every other SIGBUS ends the
/// process, as without this.
extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid one.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let page = PAGE.load(Ordering::Relaxed);
    if code == BUS_ADRERR && address != 0 {
        // SAFETY: in place of a page of ours that can't be read anyhow; mmap is a plain system call.
        let placed = unsafe {
            libc::mmap(
                (address & !(page - 1)) as *mut c_void,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if placed != libc::MAP_FAILED {
            TIMES.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // SAFETY: both may be called in a handler; the load is tried again, and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::View;

    #[test]
    fn a_file_that_is_cut_short_reads_as_zeros_and_is_told() {
        survive().expect("a handler");
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(8192).expect("longer");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8192], 0).expect("written");
        let view = View::map(&file, 0, 8192).expect("mapped");
        let word = view.word(4096, 1).expect("inside");
        assert_eq!(word.load(), 7);
        let before = happened();
        file.set_len(0).expect("cut short");
        assert_eq!((word.load(), happened()), (0, before + 1));
        assert_eq!(view.copy(0, 4096), Some(vec![0; 4096]));
        assert_eq!(happened(), before + 2);
    }
}
