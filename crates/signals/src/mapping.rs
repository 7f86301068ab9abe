//! Memory shared with others: bytes that change while they are looked at.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a file or BPF map. All access goes through atomics or copies, because the
/// other side writes whenever it likes.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory, owned by this value; nothing in it is bound to a thread.
unsafe impl Send for Mapping {}

// SAFETY: all access is through atomics, or copies of memory that others write in any case.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes for reading and writing.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::of_part(file, 0, len)
    }

    /// Maps `len` bytes from `offset` on, which is a multiple of the page size.
    pub fn of_part(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { base, len })
    }

    fn at(&self, offset: usize, size: usize, align: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(align) && offset + size <= self.len,
            "offset in the mapping"
        );
        // SAFETY: just checked to lie inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 32-bit word at `offset` bytes.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and mapped for as long as `self` lives.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast()) }
    }

    /// The 64-bit word at `offset` bytes.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, and mapped for as long as `self` lives.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast()) }
    }

    /// Copies bytes out, so that what is parsed can no longer change.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len(), 1);
        // SAFETY: `from` has `into.len()` bytes inside the mapping; `into` is ours alone. A torn
        // read gives wrong bytes, never undefined structure: callers parse bytes as foreign.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no reference outlives `self`.
        // Unmapping can only fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
