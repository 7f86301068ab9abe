//! Memory that is mapped.

use super::{Errno, Fd, NOBODY, call, number};

const READ: usize = 1;
const READ_WRITE: usize = 3;
const SHARED_FIXED: usize = 0x11;
const PRIVATE_ANONYMOUS: usize = 0x22;
const NO_RESERVE: usize = 0x4000;

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

/// How long a page of memory is here.
pub(crate) fn page_bytes() -> usize {
    unsafe extern "C" {
        // The C library's, which the standard library is linked with anyway.
        fn getauxval(kind: u64) -> u64;
    }
    const PAGE_BYTES: u64 = 6;
    // SAFETY: takes a number.
    unsafe { getauxval(PAGE_BYTES) as usize }
}

/// Nothing is counted there any more; who reads it all the same finds zeros, and a child has none of it.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn empty(at: *mut u8, bytes: usize) -> Result<(), Errno> {
    const FIXED: usize = 0x10;
    let flags = PRIVATE_ANONYMOUS | NO_RESERVE | FIXED;
    // SAFETY: what was there is ours, by the contract.
    unsafe {
        call(number::MMAP, [at as usize, bytes, READ, flags, NOBODY, 0])?;
        after_fork(at, bytes, AfterFork::Nothing)
    }
}

/// Maps a descriptor over reserved addresses, to be read only.
///
/// # Safety
/// `at` and `bytes` are within what `reserve` gave.
pub(crate) unsafe fn map_to_read(at: *mut u8, bytes: usize, fd: &Fd) -> Result<(), Errno> {
    let arguments = [at as usize, bytes, READ, SHARED_FIXED, fd.0 as usize, 0];
    // SAFETY: what was there is ours, by the contract.
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

    let name = super::super::abi::CHANNEL_FILE.as_ptr() as usize;
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
