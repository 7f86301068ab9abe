//! Memory that is mapped.

use core::ptr::null_mut;

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ,
    PROT_WRITE, c_int,
};

use super::{Errno, Fd, checked, last};

/// In place of a descriptor.
const NOBODY: c_int = -1;

/// # Safety
/// With `MAP_FIXED` in the flags, what is at `at` so far is ours, and nobody uses it any more.
unsafe fn map(
    at: *mut u8,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
) -> Result<*mut u8, Errno> {
    // SAFETY: a new mapping, at a place that the kernel chooses or the caller answers for.
    let mapped = unsafe { libc::mmap(at.cast(), bytes, rights, flags, fd, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(last());
    }
    Ok(mapped.cast())
}

/// Zeroed memory of our own.
pub(crate) fn map_private(bytes: usize) -> Result<*mut u8, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: at a place that the kernel chooses.
    unsafe { map(null_mut(), bytes, PROT_READ | PROT_WRITE, flags, NOBODY) }
}

/// Addresses that nobody else gets.
pub(crate) fn reserve(bytes: usize) -> Result<*mut u8, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: at a place that the kernel chooses.
    unsafe { map(null_mut(), bytes, PROT_NONE, flags, NOBODY) }
}

/// Maps a descriptor over reserved addresses.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn map_over(at: *mut u8, bytes: usize, fd: &Fd) -> Result<(), Errno> {
    let (rights, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED);
    // SAFETY: what was there is reserved addresses, or an earlier such mapping, by the contract.
    unsafe { map(at, bytes, rights, flags, fd.0) }.map(drop)
}

/// Maps a descriptor over reserved addresses, to be read only.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn map_to_read(at: *mut u8, bytes: usize, fd: &Fd) -> Result<(), Errno> {
    // SAFETY: what was there is ours, by the contract.
    unsafe { map(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd.0) }.map(drop)
}

/// Nothing is counted there any more; who reads it all the same finds zeros, and a child has none of it.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn empty(at: *mut u8, bytes: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: what was there is ours, by the contract.
    unsafe {
        map(at, bytes, PROT_READ, flags, NOBODY)?;
        after_fork(at, bytes, AfterFork::Nothing)
    }
}

/// How long a page of memory is here.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes a number.
    (unsafe { libc::getauxval(libc::AT_PAGESZ) }) as usize
}

/// Zeroed memory in a file of its own, sealed so that an observer that maps it can't be struck by its
/// shrinking. The file stays open: that is how an observer without the powers of an administrator finds it.
/// `over`: in place of an earlier such mapping; else anywhere.
pub(crate) fn map_channels(bytes: usize, over: Option<*mut u8>) -> Result<*mut u8, Errno> {
    const FLAGS: u32 = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let name = super::super::abi::CHANNEL_FILE.as_ptr();
    // SAFETY: a text that ends in zero.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name, FLAGS) };
    let fd = checked(fd as c_int).map(Fd)?;
    // SAFETY: takes numbers.
    checked(unsafe { libc::ftruncate(fd.0, bytes as libc::off_t) })?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK;
    // SAFETY: takes numbers.
    checked(unsafe { libc::fcntl(fd.0, libc::F_ADD_SEALS, seals) })?;
    let fixed = if over.is_some() { MAP_FIXED } else { 0 };
    let (at, rights) = (over.unwrap_or(null_mut()), PROT_READ | PROT_WRITE);
    // SAFETY: at a place that the kernel chooses, or over one of ours of the same length.
    let at = unsafe { map(at, bytes, rights, MAP_SHARED | fixed, fd.0) }?;
    core::mem::forget(fd);
    Ok(at)
}

/// What a child of this process has in place of this memory: zeros, or nothing.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum AfterFork {
    Nothing = libc::MADV_DONTFORK,
    Zeros = libc::MADV_WIPEONFORK,
}

/// # Safety
/// `at` and `bytes` are a mapping of ours.
pub(crate) unsafe fn after_fork(at: *mut u8, bytes: usize, what: AfterFork) -> Result<(), Errno> {
    // SAFETY: it changes nothing in this process.
    checked(unsafe { libc::madvise(at.cast(), bytes, what as c_int) }).map(drop)
}
