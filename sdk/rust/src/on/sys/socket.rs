//! The recorder's socket.

use core::mem::{MaybeUninit, size_of_val};

use libc::{SOL_SOCKET, c_int, socklen_t};

use super::{ENAMETOOLONG, EPERM, EPROTO, Errno, Fd, checked, last};

/// Whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// Whether nothing happened to a connection: neither data nor a hang-up.
pub(crate) fn is_quiet(fd: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
}

/// Sets an option of a socket.
fn set<T>(socket: &Fd, option: c_int, value: &T) -> Result<(), Errno> {
    let (value, length) = (core::ptr::from_ref(value).cast(), size_of_val(value));
    // SAFETY: the value is as long as is said, and outlives the call.
    let set = unsafe { libc::setsockopt(socket.0, SOL_SOCKET, option, value, length as socklen_t) };
    checked(set).map(drop)
}

/// Who serves a connected socket.
fn peer(socket: &Fd) -> Result<libc::ucred, Errno> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as socklen_t;
    let (option, value) = (libc::SO_PEERCRED, peer.as_mut_ptr().cast());
    // SAFETY: the value is as long as is said, and outlives the call.
    checked(unsafe { libc::getsockopt(socket.0, SOL_SOCKET, option, value, &raw mut length) })?;
    // SAFETY: it was filled in.
    Ok(unsafe { peer.assume_init() })
}

/// Connects to a unix socket of packets whose other side is root or our own user, and waits there
/// for so many milliseconds at most.
pub(crate) fn connect(path: &[u8], patience_ms: i64) -> Result<Fd, Errno> {
    // SAFETY: numbers, for which zeros are right.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // One byte stays zero.
    if path.len() >= address.sun_path.len() {
        return Err(ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).map(Fd)?;
    let patience = libc::timeval {
        tv_sec: patience_ms / 1000,
        tv_usec: patience_ms % 1000 * 1000,
    };
    let _ = set(&fd, libc::SO_RCVTIMEO, &patience);
    let _ = set(&fd, libc::SO_SNDTIMEO, &patience);
    let (at, length) = ((&raw const address).cast(), size_of_val(&address));
    // SAFETY: the address is as long as is said, and outlives the call.
    checked(unsafe { libc::connect(fd.0, at, length as socklen_t) })?;
    // Shared memory asks for trust.
    let user = peer(&fd)?.uid;
    if user != 0 && user != effective_user() {
        return Err(EPERM);
    }
    Ok(fd)
}

/// Receives a packet of exactly this many bytes, and two descriptors if they come with it.
pub(crate) fn receive(socket: &Fd, packet: &mut [u8]) -> Result<Option<[Fd; 2]>, Errno> {
    const FDS: u32 = size_of::<[c_int; 2]>() as u32;
    // SAFETY: only numbers.
    const ROOM: usize = unsafe { libc::CMSG_SPACE(FDS) } as usize;
    // SAFETY: only numbers.
    const LENGTH: usize = unsafe { libc::CMSG_LEN(FDS) } as usize;

    let mut control = [0u64; ROOM.div_ceil(8)]; // aligned as its head is
    let mut part = libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: packet.len(),
    };
    // SAFETY: numbers and pointers, for which zeros are right.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message names memory that is as long as it says and outlives the call.
    let received = unsafe { libc::recvmsg(socket.0, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(last());
    }
    // SAFETY: in what was received, or null.
    let head = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let fds = head
        .filter(|head| head.cmsg_type == libc::SCM_RIGHTS && head.cmsg_len == LENGTH as _)
        // SAFETY: there are two, by the length.
        .map(|head| unsafe { libc::CMSG_DATA(head).cast::<[c_int; 2]>().read_unaligned() })
        .map(|fds| fds.map(Fd));
    if received as usize != packet.len() {
        return Err(EPROTO);
    }
    Ok(fds)
}
