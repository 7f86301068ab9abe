//! The few system calls that attaching takes, made directly: the kernel's interface is the same
//! under every C library.

use core::arch::asm;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i64);

pub(crate) const EPERM: Errno = Errno(1);
pub(crate) const ESRCH: Errno = Errno(3);
pub(crate) const ENAMETOOLONG: Errno = Errno(36);
pub(crate) const EPROTO: Errno = Errno(71);
pub(crate) const ENOSPC: Errno = Errno(28);

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

fn effective_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(number::GETEUID, [0; 6]) }.unwrap_or(0) as u32
}

const READ_WRITE: usize = 3;
const SHARED_FIXED: usize = 0x11;
const PRIVATE_ANONYMOUS: usize = 0x22;
const NO_RESERVE: usize = 0x4000;
const NOBODY: usize = usize::MAX;

/// Zeroed memory of our own.
pub(crate) fn map_private(bytes: usize) -> Result<*mut u8, Errno> {
    let flags = PRIVATE_ANONYMOUS;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { call(number::MMAP, [0, bytes, READ_WRITE, flags, NOBODY, 0]) }?;
    Ok(at as *mut u8)
}

/// Addresses that nobody else gets.
pub(crate) fn reserve(bytes: usize) -> Result<*mut u8, Errno> {
    let flags = PRIVATE_ANONYMOUS | NO_RESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { call(number::MMAP, [0, bytes, 0, flags, NOBODY, 0]) }?;
    Ok(at as *mut u8)
}

/// Maps a descriptor over reserved addresses.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn map_over(at: *mut u8, bytes: usize, fd: &Fd) -> Result<(), Errno> {
    let arguments = [
        at as usize,
        bytes,
        READ_WRITE,
        SHARED_FIXED,
        fd.0 as usize,
        0,
    ];
    // SAFETY: what was there is reserved addresses, or an earlier such mapping, by the contract.
    unsafe { call(number::MMAP, arguments) }.map(drop)
}

/// Zeroed memory in a file of its own, sealed so that an observer that maps it can't be struck by its
/// shrinking. The file stays open: that is how an observer without the powers of an administrator finds it.
/// `over`: in place of an earlier such mapping; else anywhere.
pub(crate) fn map_channels(bytes: usize, over: Option<*mut u8>) -> Result<*mut u8, Errno> {
    const CLOEXEC_AND_SEALABLE: usize = 3;
    const ADD_SEALS: usize = 1033;
    const SEAL_AND_SHRINK: usize = 3;
    const SHARED: usize = 1;

    let name = super::abi::CHANNEL_FILE.as_ptr() as usize;
    // SAFETY: a text that ends in zero.
    let fd = unsafe {
        call(
            number::MEMFD_CREATE,
            [name, CLOEXEC_AND_SEALABLE, 0, 0, 0, 0],
        )
    }?;
    let fd = Fd(fd as i32);
    let file = fd.0 as usize;
    // SAFETY: takes numbers.
    unsafe { call(number::FTRUNCATE, [file, bytes, 0, 0, 0, 0]) }?;
    // SAFETY: takes numbers.
    unsafe { call(number::FCNTL, [file, ADD_SEALS, SEAL_AND_SHRINK, 0, 0, 0]) }?;
    let flags = if over.is_some() { SHARED_FIXED } else { SHARED };
    let at = over.map_or(0, |at| at as usize);
    // SAFETY: a new mapping at a place that the kernel chooses, or over one of ours of the same length.
    let at = unsafe { call(number::MMAP, [at, bytes, READ_WRITE, flags, file, 0]) }?;
    std::mem::forget(fd);
    Ok(at as *mut u8)
}

/// What a child of this process has in place of this memory: zeros, or nothing.
#[derive(Clone, Copy)]
pub(crate) enum AfterFork {
    Nothing = 10,
    Zeros = 18,
}

/// # Safety
/// `at` and `bytes` are a mapping of ours.
pub(crate) unsafe fn after_fork(at: *mut u8, bytes: usize, what: AfterFork) -> Result<(), Errno> {
    // SAFETY: it changes nothing in this process.
    unsafe {
        call(
            number::MADVISE,
            [at as usize, bytes, what as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Device and inode: to know a descriptor again before it is closed, for programs close all they find.
pub(crate) fn identity(fd: i32) -> Result<(u64, u64), Errno> {
    let mut stat = [0u64; 32]; // struct stat begins with both, and is shorter than that
    let at = stat.as_mut_ptr() as usize;
    // SAFETY: there is room for a struct stat.
    unsafe { call(number::FSTAT, [fd as usize, at, 0, 0, 0, 0]) }?;
    Ok((stat[0], stat[1]))
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
