//! The few system calls that attaching takes. Those that old C libraries have no function for are made
//! by number.

mod memory;
mod socket;

use core::mem::MaybeUninit;

use libc::{c_int, c_long, c_ulong};

pub(crate) use memory::{
    AfterFork, after_fork, empty, map_channels, map_over, map_private, map_to_read, page_bytes,
    reserve,
};
pub(crate) use socket::{connect, effective_user, is_quiet, receive};

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) const EPERM: Errno = Errno(libc::EPERM);
pub(crate) const ESRCH: Errno = Errno(libc::ESRCH);
pub(crate) const EAGAIN: Errno = Errno(libc::EAGAIN);
pub(crate) const ENOMEM: Errno = Errno(libc::ENOMEM);
pub(crate) const ENAMETOOLONG: Errno = Errno(libc::ENAMETOOLONG);
pub(crate) const EPROTO: Errno = Errno(libc::EPROTO);
pub(crate) const ENOSPC: Errno = Errno(libc::ENOSPC);
pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

/// Sets this thread's error number back when it goes. A begin or an end may stand between a failed call
/// of the program and its look at that number.
pub(crate) struct KeptErrno(c_int);

impl KeptErrno {
    pub(crate) fn here() -> Self {
        Self(last().0)
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: this thread's own number.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

fn last() -> Errno {
    // SAFETY: this thread's own number.
    Errno(unsafe { *libc::__errno_location() })
}

/// What a call returned; negative: it failed.
fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// A descriptor that is closed when it goes.
#[derive(Debug)]
pub(crate) struct Fd(pub(crate) c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        let _ = unsafe { libc::close(self.0) };
    }
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes nothing.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Whether this process has that thread.
pub(crate) fn has_thread(id: u32) -> bool {
    // SAFETY: takes nothing.
    let process = c_long::from(unsafe { libc::getpid() });
    // SAFETY: signal 0 asks only.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, process, c_long::from(id), 0 as c_long) };
    asked == 0 || last() != ESRCH
}

/// Device and inode: to know a descriptor again before it is closed, for programs close all they find.
pub(crate) fn identity(fd: c_int) -> Result<(u64, u64), Errno> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for it.
    checked(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: it was filled in.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

/// An event of this thread, counted with the leader's, if there is one.
pub(crate) fn open_event(attributes: &[u64; 9], leader: Option<&Fd>) -> Result<Fd, Errno> {
    const CLOSE_ON_EXEC: c_long = 8;
    const THIS_THREAD: c_long = 0;
    const ANY_CPU: c_long = -1;
    let leader = c_long::from(leader.map_or(-1, |leader| leader.0));
    // SAFETY: the attributes say how long they are, and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            THIS_THREAD,
            ANY_CPU,
            leader,
            CLOSE_ON_EXEC,
        )
    };
    checked(fd as c_int).map(Fd)
}

/// A request of a descriptor that takes a number.
pub(crate) fn ask(fd: &Fd, request: u32, number: c_ulong) -> Result<(), Errno> {
    // SAFETY: nothing in memory.
    checked(unsafe { libc::ioctl(fd.0, request as _, number) }).map(drop)
}
