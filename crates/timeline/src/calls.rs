//! Names of the system calls in which threads wait, by their numbers on this architecture.

use libc as c;

/// The calls that a request may wait in. All others are told by their number.
const NAMES: &[(i64, &str)] = &[
    (c::SYS_read, "read"),
    (c::SYS_write, "write"),
    (c::SYS_readv, "readv"),
    (c::SYS_writev, "writev"),
    (c::SYS_pread64, "pread64"),
    (c::SYS_pwrite64, "pwrite64"),
    (c::SYS_recvfrom, "recvfrom"),
    (c::SYS_recvmsg, "recvmsg"),
    (c::SYS_recvmmsg, "recvmmsg"),
    (c::SYS_sendto, "sendto"),
    (c::SYS_sendmsg, "sendmsg"),
    (c::SYS_sendmmsg, "sendmmsg"),
    (c::SYS_sendfile, "sendfile"),
    (c::SYS_splice, "splice"),
    (c::SYS_accept, "accept"),
    (c::SYS_accept4, "accept4"),
    (c::SYS_connect, "connect"),
    (c::SYS_epoll_pwait, "epoll_pwait"),
    (c::SYS_epoll_pwait2, "epoll_pwait2"),
    (c::SYS_ppoll, "ppoll"),
    (c::SYS_pselect6, "pselect6"),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_epoll_wait, "epoll_wait"),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_poll, "poll"),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_select, "select"),
    (c::SYS_futex, "futex"),
    (c::SYS_futex_waitv, "futex_waitv"),
    (c::SYS_nanosleep, "nanosleep"),
    (c::SYS_clock_nanosleep, "clock_nanosleep"),
    (c::SYS_fsync, "fsync"),
    (c::SYS_fdatasync, "fdatasync"),
    (c::SYS_msync, "msync"),
    (c::SYS_sync, "sync"),
    (c::SYS_openat, "openat"),
    (c::SYS_close, "close"),
    (c::SYS_getdents64, "getdents64"),
    (c::SYS_unlinkat, "unlinkat"),
    (c::SYS_ftruncate, "ftruncate"),
    (c::SYS_fallocate, "fallocate"),
    (c::SYS_io_getevents, "io_getevents"),
    (c::SYS_io_uring_enter, "io_uring_enter"),
    (c::SYS_mmap, "mmap"),
    (c::SYS_munmap, "munmap"),
    (c::SYS_mprotect, "mprotect"),
    (c::SYS_madvise, "madvise"),
    (c::SYS_brk, "brk"),
    (c::SYS_membarrier, "membarrier"),
    (c::SYS_sched_yield, "sched_yield"),
    (c::SYS_clone, "clone"),
    (c::SYS_wait4, "wait4"),
    (c::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
];

/// The name of a system call.
pub(crate) fn name(number: u16) -> String {
    NAMES
        .iter()
        .find(|(known, _)| *known == i64::from(number))
        .map_or_else(
            || format!("system call {number}"),
            |(_, name)| (*name).into(),
        )
}
