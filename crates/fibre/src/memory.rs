//! Memory that fibres of several clusters share, in large pages where the kernel has them.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Which pages are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Those of the base size.
    Small,
    /// Transparent huge pages of 2 MiB, if the kernel has some free.
    Huge,
}

/// A zeroed region of 32-bit words, aligned to 2 MiB.
///
/// Physical memory is contiguous within a huge page. So lines of one such page fill a cache evenly.
#[derive(Debug)]
pub struct Memory {
    /// The start of the whole mapping, which is larger than the region.
    mapped: NonNull<u8>,
    length: usize,
    words: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: plain memory, owned by this value; nothing in it is bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: all access is through atomics.
unsafe impl Sync for Memory {}

const HUGE: usize = 2 << 20;

impl Memory {
    /// A region of `count` words.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for it.
    pub fn new(count: usize, pages: Pages) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = count.checked_mul(4).ok_or_else(too_much)?.max(4);
        let bytes = bytes.checked_next_multiple_of(HUGE).ok_or_else(too_much)?;
        let length = bytes.checked_add(HUGE).ok_or_else(too_much)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)? };
        let mapped = NonNull::new(start.cast::<u8>()).ok_or_else(too_much)?;
        let skip = start.addr().next_multiple_of(HUGE) - start.addr();
        // SAFETY: less than `HUGE` bytes on, and the mapping has `HUGE` bytes more than the region.
        let words = unsafe { mapped.add(skip) };
        let advice = match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: inside the mapping. A kernel without huge pages refuses, and keeps small ones.
        let _ = unsafe { madvise(words.as_ptr().cast(), bytes, advice) };
        Ok(Self {
            mapped,
            length,
            words: words.cast(),
            count,
        })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: zeroed and mapped for as long as `self` lives; all access is through atomics.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.length) };
    }
}
