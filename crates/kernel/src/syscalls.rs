//! What a thread that blocks inside a system call waits for, by the call's number on this
//! architecture. Whatever is not listed is `sleep`.

use libc as c;

use crate::shared::{self, SYSCALLS};

/// Locks between threads.
const FUTEX: &[i64] = &[c::SYS_futex, c::SYS_futex_waitv];

/// Locks of files, and semaphores. `fcntl` waits for nothing but the lock of a part of a file.
const LOCK: &[i64] = &[c::SYS_flock, c::SYS_fcntl, c::SYS_semop, c::SYS_semtimedop];

/// Sockets.
const NETWORK: &[i64] = &[
    c::SYS_accept,
    c::SYS_accept4,
    c::SYS_connect,
    c::SYS_recvfrom,
    c::SYS_recvmsg,
    c::SYS_recvmmsg,
    c::SYS_sendto,
    c::SYS_sendmsg,
    c::SYS_sendmmsg,
];

/// Waiting for any of several sockets. The longest time is the fourth argument, in ms, unless one of the
/// lists below says otherwise.
const POLL: &[i64] = &[
    c::SYS_epoll_pwait,
    c::SYS_epoll_pwait2,
    c::SYS_ppoll,
    c::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    c::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    c::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    c::SYS_select,
];
const THIRD: &[i64] = &[
    c::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    c::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    c::SYS_select, // THIRD and FIFTH together mean a struct timeval
];
const FIFTH: &[i64] = &[
    c::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    c::SYS_select,
];
const POINTS: &[i64] = &[
    c::SYS_epoll_pwait2,
    c::SYS_ppoll,
    c::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    c::SYS_select,
];

/// Files that are brought to or from a device.
const IO: &[i64] = &[
    c::SYS_fsync,
    c::SYS_fdatasync,
    c::SYS_sync,
    c::SYS_syncfs,
    c::SYS_sync_file_range,
    c::SYS_msync,
    c::SYS_openat,
    c::SYS_unlinkat,
    c::SYS_renameat2,
    c::SYS_ftruncate,
    c::SYS_fallocate,
    c::SYS_getdents64,
    c::SYS_io_getevents,
    c::SYS_readahead,
    c::SYS_copy_file_range,
];

/// Whatever their descriptor is.
const FILE: &[i64] = &[
    c::SYS_read,
    c::SYS_readv,
    c::SYS_pread64,
    c::SYS_preadv,
    c::SYS_preadv2,
    c::SYS_write,
    c::SYS_writev,
    c::SYS_pwrite64,
    c::SYS_pwritev,
    c::SYS_pwritev2,
    c::SYS_sendfile,
    c::SYS_splice,
];

/// Those that receive or send, by what their second argument is.
const BUFFER: &[i64] = &[c::SYS_read, c::SYS_recvfrom, c::SYS_write, c::SYS_sendto];
const VECTOR: &[i64] = &[c::SYS_readv, c::SYS_writev];
const MESSAGE: &[i64] = &[c::SYS_recvmsg, c::SYS_sendmsg];

/// Those in which a thread may wake another by a message, a signal or the end of a connection.
const WAKES: &[i64] = &[
    c::SYS_write,
    c::SYS_writev,
    c::SYS_pwrite64,
    c::SYS_pwritev,
    c::SYS_pwritev2,
    c::SYS_sendto,
    c::SYS_sendmsg,
    c::SYS_sendmmsg,
    c::SYS_sendfile,
    c::SYS_splice,
    c::SYS_tee,
    c::SYS_vmsplice,
    c::SYS_connect,
    c::SYS_shutdown,
    c::SYS_close,
    c::SYS_close_range,
    c::SYS_futex,
    c::SYS_kill,
    c::SYS_tkill,
    c::SYS_tgkill,
    c::SYS_rt_sigqueueinfo,
    c::SYS_rt_tgsigqueueinfo,
    c::SYS_pidfd_send_signal,
    c::SYS_io_uring_enter,
    c::SYS_exit,
    c::SYS_exit_group,
    c::SYS_mq_timedsend,
    c::SYS_msgsnd,
    c::SYS_semop,
    c::SYS_semtimedop,
];

/// Those in which a thread may wake another by making room, or by letting the memory of its parent go.
/// Or wait for that, as in those above.
const FREES: &[i64] = &[
    c::SYS_read,
    c::SYS_readv,
    c::SYS_recvfrom,
    c::SYS_recvmsg,
    c::SYS_recvmmsg,
    c::SYS_msgrcv,
    c::SYS_mq_timedreceive,
    c::SYS_clone,
    c::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    c::SYS_vfork,
    c::SYS_execve,
    c::SYS_execveat,
    c::SYS_ptrace,
];

/// The table for the programs.
pub(crate) fn kinds() -> [u8; SYSCALLS as usize] {
    let mut kinds = [shared::KIND_SLEEP as u8; SYSCALLS as usize];
    for (calls, kind) in [
        (FUTEX, shared::KIND_FUTEX),
        (LOCK, shared::KIND_LOCK),
        (NETWORK, shared::KIND_NETWORK),
        (POLL, shared::KIND_POLL),
        (IO, shared::KIND_IO),
        (FILE, shared::KIND_FILE),
    ] {
        for &nr in calls {
            if let Some(entry) = kinds.get_mut(nr as usize) {
                *entry = kind as u8;
            }
        }
    }
    for (calls, flag) in [
        (WAKES, shared::KIND_WAKES),
        (FREES, shared::KIND_FREES),
        (BUFFER, shared::KIND_BUFFER),
        (VECTOR, shared::KIND_VECTOR),
        (MESSAGE, shared::KIND_MESSAGE),
        (THIRD, shared::POLL_THIRD),
        (FIFTH, shared::POLL_FIFTH),
        (POINTS, shared::POLL_POINTS),
    ] {
        for &nr in calls {
            if let Some(entry) = kinds.get_mut(nr as usize) {
                *entry |= flag as u8;
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_in_two_lists() {
        let mut all: Vec<_> = [FUTEX, LOCK, NETWORK, POLL, IO, FILE].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_waits_for_a_lock_of_a_file_or_a_semaphore_waits_for_a_lock() {
        let kinds = kinds();
        let of = |nr: i64| u32::from(kinds[nr as usize]);
        assert_eq!(of(c::SYS_flock), shared::KIND_LOCK);
        assert_eq!(of(c::SYS_fcntl), shared::KIND_LOCK);
        assert_eq!(of(c::SYS_semop), shared::KIND_LOCK | shared::KIND_WAKES);
        assert_eq!(of(c::SYS_futex), shared::KIND_FUTEX | shared::KIND_WAKES);
    }

    #[test]
    fn where_the_longest_time_of_a_wait_is() {
        let kinds = kinds();
        let of = |nr: i64| u32::from(kinds[nr as usize]);
        let poll = shared::KIND_POLL;
        let (third, fifth, points) = (shared::POLL_THIRD, shared::POLL_FIFTH, shared::POLL_POINTS);
        assert_eq!(of(c::SYS_epoll_pwait), poll);
        assert_eq!(of(c::SYS_epoll_pwait2), poll | points);
        assert_eq!(of(c::SYS_ppoll), poll | third | points);
        assert_eq!(of(c::SYS_pselect6), poll | fifth | points);
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(of(c::SYS_epoll_wait), poll);
            assert_eq!(of(c::SYS_poll), poll | third);
            assert_eq!(of(c::SYS_select), poll | third | fifth | points);
        }
    }

    #[test]
    fn the_bits_of_two_kinds_do_not_meet() {
        let others = [BUFFER, VECTOR, MESSAGE].concat();
        assert!(POLL.iter().all(|nr| !others.contains(nr)));
    }

    #[test]
    fn every_listed_call_fits_the_table() {
        for nr in [FUTEX, LOCK, NETWORK, POLL, IO, FILE].concat() {
            assert!((0..i64::from(SYSCALLS)).contains(&nr), "{nr}");
        }
    }
}
