//! The recorder's socket.

use super::{ENAMETOOLONG, EPERM, EPROTO, Errno, Fd, call, number};

/// Whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(number::GETEUID, [0; 6]) }.unwrap_or(0) as u32
}

/// Whether nothing happened to a connection: neither data nor a hang-up.
pub(crate) fn is_quiet(fd: i32) -> bool {
    #[repr(C)]
    struct Poll {
        fd: i32,
        events: i16,
        seen: i16,
    }
    let mut poll = Poll {
        fd,
        events: 0,
        seen: 0,
    };
    let at_once = [0u64; 2];
    let arguments = [
        &raw mut poll as usize,
        1,
        at_once.as_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: one entry, and a time that outlives the call.
    let ready = unsafe { call(number::PPOLL, arguments) };
    ready == Ok(0)
}

/// Connects to a unix socket of packets whose other side is root or our own user, and waits there
/// for so many milliseconds at most.
pub(crate) fn connect(path: &[u8], patience_ms: i64) -> Result<Fd, Errno> {
    const UNIX: usize = 1;
    const SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
    const SOL_SOCKET: usize = 1;
    const PEERCRED: usize = 17;
    const RECEIVE_TIMEOUT: usize = 20;
    const SEND_TIMEOUT: usize = 21;

    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&(UNIX as u16).to_ne_bytes());
    // One byte stays zero.
    let room = address.get_mut(2..2 + path.len()).filter(|r| r.len() < 108);
    room.ok_or(ENAMETOOLONG)?.copy_from_slice(path);
    // SAFETY: takes numbers.
    let fd = unsafe { call(number::SOCKET, [UNIX, SEQPACKET_CLOEXEC, 0, 0, 0, 0]) }?;
    let fd = Fd(fd as i32);
    let number = fd.0 as usize;
    let patience = [patience_ms / 1000, patience_ms % 1000 * 1000]; // struct timeval
    for which in [RECEIVE_TIMEOUT, SEND_TIMEOUT] {
        let arguments = [number, SOL_SOCKET, which, patience.as_ptr() as usize, 16, 0];
        // SAFETY: the value is as long as is said, and outlives the call.
        let _ = unsafe { call(self::number::SETSOCKOPT, arguments) };
    }
    let arguments = [number, address.as_ptr() as usize, address.len(), 0, 0, 0];
    // SAFETY: the address is as long as is said, and outlives the call.
    unsafe { call(self::number::CONNECT, arguments) }?;
    let mut peer = [0u32; 3]; // struct ucred: process, user, group
    let mut length = size_of_val(&peer) as u32;
    let (value, size) = (peer.as_mut_ptr() as usize, &raw mut length as usize);
    // SAFETY: the value is as long as is said, and outlives the call.
    unsafe {
        call(
            self::number::GETSOCKOPT,
            [number, SOL_SOCKET, PEERCRED, value, size, 0],
        )
    }?;
    // Shared memory asks for trust.
    if peer[1] != 0 && peer[1] != effective_user() {
        return Err(EPERM);
    }
    Ok(fd)
}

/// Receives a packet of exactly this many bytes, and two descriptors if they come with it.
pub(crate) fn receive(socket: &Fd, packet: &mut [u8]) -> Result<Option<[Fd; 2]>, Errno> {
    const CLOEXEC: usize = 0x4000_0000;
    const RIGHTS: u32 = 1;

    #[repr(C)]
    struct Control {
        length: usize,
        level: u32,
        kind: u32,
        fds: [i32; 2],
    }
    #[repr(C)]
    struct Message {
        name: usize,
        name_length: usize,
        parts: usize,
        part_count: usize,
        control: usize,
        control_length: usize,
        flags: usize,
    }
    let mut control = Control {
        length: 0,
        level: 0,
        kind: 0,
        fds: [-1; 2],
    };
    let part = [packet.as_mut_ptr() as usize, packet.len()];
    let mut message = Message {
        name: 0,
        name_length: 0,
        parts: part.as_ptr() as usize,
        part_count: 1,
        control: &raw mut control as usize,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let arguments = [
        socket.0 as usize,
        &raw mut message as usize,
        CLOEXEC,
        0,
        0,
        0,
    ];
    // SAFETY: the message names memory that is as long as it says and outlives the call.
    let received = unsafe { call(number::RECVMSG, arguments) }?;
    let fds = (control.kind == RIGHTS && control.length == size_of::<Control>())
        .then(|| control.fds.map(Fd));
    if received != packet.len() {
        return Err(EPROTO);
    }
    Ok(fds)
}
