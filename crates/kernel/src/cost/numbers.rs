//! Numbers of system calls by their names.

macro_rules! numbers {
    ($($constant:ident $name:literal),* $(,)?) => { &[$(($name, libc::$constant)),*] };
}

/// System calls of every architecture.
const COMMON: &[(&str, libc::c_long)] = numbers![
    SYS_accept "accept", SYS_accept4 "accept4", SYS_bind "bind", SYS_brk "brk",
    SYS_clock_gettime "clock_gettime", SYS_clock_nanosleep "clock_nanosleep", SYS_clone "clone",
    SYS_close "close", SYS_connect "connect", SYS_dup "dup", SYS_epoll_ctl "epoll_ctl",
    SYS_epoll_pwait "epoll_pwait", SYS_execve "execve", SYS_exit_group "exit_group",
    SYS_faccessat "faccessat", SYS_fallocate "fallocate", SYS_fcntl "fcntl",
    SYS_fdatasync "fdatasync", SYS_fsync "fsync", SYS_futex "futex", SYS_getdents64 "getdents64",
    SYS_getpid "getpid", SYS_getppid "getppid", SYS_getrandom "getrandom", SYS_gettid "gettid",
    SYS_ioctl "ioctl", SYS_kill "kill", SYS_lseek "lseek", SYS_madvise "madvise", SYS_mmap "mmap",
    SYS_mprotect "mprotect", SYS_munmap "munmap", SYS_nanosleep "nanosleep", SYS_openat "openat",
    SYS_ppoll "ppoll", SYS_prctl "prctl", SYS_pread64 "pread64", SYS_pwrite64 "pwrite64",
    SYS_read "read", SYS_readv "readv", SYS_recvfrom "recvfrom", SYS_recvmmsg "recvmmsg",
    SYS_recvmsg "recvmsg", SYS_rt_sigaction "rt_sigaction", SYS_rt_sigprocmask "rt_sigprocmask",
    SYS_sched_yield "sched_yield", SYS_sendfile "sendfile", SYS_sendmmsg "sendmmsg",
    SYS_sendmsg "sendmsg", SYS_sendto "sendto", SYS_shutdown "shutdown", SYS_socket "socket",
    SYS_statx "statx", SYS_tgkill "tgkill", SYS_unlinkat "unlinkat", SYS_wait4 "wait4",
    SYS_write "write", SYS_writev "writev",
];

/// Those that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(&str, libc::c_long)] = numbers![
    SYS_access "access", SYS_epoll_wait "epoll_wait", SYS_fork "fork", SYS_open "open",
    SYS_pipe "pipe", SYS_poll "poll", SYS_rename "rename", SYS_select "select", SYS_stat "stat",
    SYS_unlink "unlink", SYS_vfork "vfork",
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(&str, libc::c_long)] = &[];

/// The number of a system call; `None` if the name is not known.
#[must_use]
pub fn syscall_number(name: &str) -> Option<u32> {
    let name = name.strip_prefix("new").unwrap_or(name);
    let found = COMMON
        .iter()
        .chain(OLDER)
        .find(|(known, _)| *known == name)?;
    u32::try_from(found.1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        assert_eq!(syscall_number("read").map(i64::from), Some(libc::SYS_read));
        assert_eq!(syscall_number("no_such_call"), None);
    }
}
