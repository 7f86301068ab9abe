//! The few system calls that attaching takes, made directly: the kernel's interface is the same
//! under every C library.

mod memory;
mod socket;

use core::arch::asm;

pub(crate) use memory::{
    AfterFork, after_fork, empty, map_channels, map_over, map_private, map_to_read, page_bytes,
    reserve,
};
pub(crate) use socket::{connect, effective_user, is_quiet, receive};

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i64);

pub(crate) const EPERM: Errno = Errno(1);
pub(crate) const ESRCH: Errno = Errno(3);
pub(crate) const EAGAIN: Errno = Errno(11);
pub(crate) const ENOMEM: Errno = Errno(12);
pub(crate) const ENAMETOOLONG: Errno = Errno(36);
pub(crate) const EPROTO: Errno = Errno(71);
pub(crate) const ENOSPC: Errno = Errno(28);
pub(crate) const EOPNOTSUPP: Errno = Errno(95);

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOSE: usize = 3;
    pub(super) const FSTAT: usize = 5;
    pub(super) const PPOLL: usize = 271;
    pub(super) const MMAP: usize = 9;
    pub(super) const MADVISE: usize = 28;
    pub(super) const SOCKET: usize = 41;
    pub(super) const CONNECT: usize = 42;
    pub(super) const RECVMSG: usize = 47;
    pub(super) const SETSOCKOPT: usize = 54;
    pub(super) const GETSOCKOPT: usize = 55;
    pub(super) const GETEUID: usize = 107;
    pub(super) const GETTID: usize = 186;
    pub(super) const FCNTL: usize = 72;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const MEMFD_CREATE: usize = 319;
    pub(super) const PERF_EVENT_OPEN: usize = 298;
    pub(super) const IOCTL: usize = 16;
    pub(super) const GETPID: usize = 39;
    pub(super) const TGKILL: usize = 234;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const CLOSE: usize = 57;
    pub(super) const FSTAT: usize = 80;
    pub(super) const PPOLL: usize = 73;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    pub(super) const SOCKET: usize = 198;
    pub(super) const CONNECT: usize = 203;
    pub(super) const RECVMSG: usize = 212;
    pub(super) const SETSOCKOPT: usize = 208;
    pub(super) const GETSOCKOPT: usize = 209;
    pub(super) const GETEUID: usize = 175;
    pub(super) const GETTID: usize = 178;
    pub(super) const FCNTL: usize = 25;
    pub(super) const FTRUNCATE: usize = 46;
    pub(super) const MEMFD_CREATE: usize = 279;
    pub(super) const PERF_EVENT_OPEN: usize = 241;
    pub(super) const IOCTL: usize = 29;
    pub(super) const GETPID: usize = 172;
    pub(super) const TGKILL: usize = 131;
}

/// # Safety
/// As the system call with that number asks of its arguments.
unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the kernel's calling convention; what it does to memory the caller answers for.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack));
    }
    if (-4095..0).contains(&result) {
        Err(Errno(-result as i64))
    } else {
        Ok(result as usize)
    }
}

/// A descriptor that is closed when it goes.
#[derive(Debug)]
pub(crate) struct Fd(pub(crate) i32);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        let _ = unsafe { call(number::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(number::GETTID, [0; 6]) }.unwrap_or(0) as u32
}

/// Whether this process has that thread.
pub(crate) fn has_thread(id: u32) -> bool {
    // SAFETY: takes nothing.
    let process = unsafe { call(number::GETPID, [0; 6]) }.unwrap_or(0);
    // SAFETY: signal 0 asks only.
    let asked = unsafe { call(number::TGKILL, [process, id as usize, 0, 0, 0, 0]) };
    asked != Err(ESRCH)
}

/// Device and inode: to know a descriptor again before it is closed, for programs close all they find.
pub(crate) fn identity(fd: i32) -> Result<(u64, u64), Errno> {
    let mut stat = [0u64; 32]; // struct stat begins with both, and is shorter than that
    let at = stat.as_mut_ptr() as usize;
    // SAFETY: there is room for a struct stat.
    unsafe { call(number::FSTAT, [fd as usize, at, 0, 0, 0, 0]) }?;
    Ok((stat[0], stat[1]))
}

/// In place of a descriptor.
const NOBODY: usize = usize::MAX;

/// An event of this thread, counted with the leader's, if there is one.
pub(crate) fn open_event(attributes: &[u64; 9], leader: Option<&Fd>) -> Result<Fd, Errno> {
    const CLOSE_ON_EXEC: usize = 8;
    let leader = leader.map_or(NOBODY, |leader| leader.0 as usize);
    let arguments = [
        attributes.as_ptr() as usize,
        0,
        NOBODY,
        leader,
        CLOSE_ON_EXEC,
        0,
    ];
    // SAFETY: the attributes say how long they are, and outlive the call.
    let fd = unsafe { call(number::PERF_EVENT_OPEN, arguments) }?;
    Ok(Fd(fd as i32))
}

/// A request of a descriptor that takes a number.
pub(crate) fn ask(fd: &Fd, request: usize, number: usize) -> Result<(), Errno> {
    // SAFETY: nothing in memory.
    unsafe {
        call(
            self::number::IOCTL,
            [fd.0 as usize, request, number, 0, 0, 0],
        )
    }
    .map(drop)
}
