//! The scheduling policy of a thread, read and set.

use std::io;

/// A scheduling policy, as `sched(7)` describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: the default.
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`: runs when no thread of another policy wants the CPU.
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE`.
    RealTime,
    /// `SCHED_EXT`: a BPF scheduler decides.
    Ext,
}

/// Of linux/sched.h; libc has no name for it.
const SCHED_EXT: i32 = 7;

/// The policy of a thread; 0: of the caller.
///
/// # Errors
/// `ESRCH`: there is no such thread.
pub fn policy_of(tid: u32) -> io::Result<Policy> {
    let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: the call reads no memory of ours.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    match policy & !libc::SCHED_RESET_ON_FORK {
        _ if policy < 0 => Err(io::Error::last_os_error()),
        libc::SCHED_OTHER => Ok(Policy::Other),
        libc::SCHED_BATCH => Ok(Policy::Batch),
        libc::SCHED_IDLE => Ok(Policy::Idle),
        SCHED_EXT => Ok(Policy::Ext),
        _ => Ok(Policy::RealTime),
    }
}

/// Puts a thread into `SCHED_IDLE`; 0: the caller. What it forks has that policy too.
///
/// # Errors
/// `ESRCH`: there is no such thread; `EPERM`: it is another user's.
pub fn make_idle(tid: u32) -> io::Result<()> {
    let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: all bytes of 0 are a valid value of this plain C structure.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives until the call has returned, and is only read.
    match unsafe { libc::sched_setscheduler(tid, libc::SCHED_IDLE, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_idle_and_its_children_are() {
        std::thread::spawn(|| {
            assert_ne!(policy_of(0).expect("our own"), Policy::Idle);
            make_idle(0).expect("anybody may be idle");
            assert_eq!(policy_of(0).expect("our own"), Policy::Idle);
            let child = std::thread::spawn(|| policy_of(0).expect("our own"));
            assert_eq!(child.join().expect("it ends"), Policy::Idle);
        })
        .join()
        .expect("it ends");
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        for tid in [i32::MAX as u32, u32::MAX] {
            let error = policy_of(tid).expect_err("there is none");
            assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
            assert!(make_idle(tid).is_err());
        }
    }
}
