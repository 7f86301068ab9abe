//! Words of memory that somebody else writes, read with one load.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::clock::After;

/// A shared mapping of a file, for reading only.
///
/// Whoever can shrink the file under it can end this process by SIGBUS: callers see to it that
/// nobody can (a seal), or say so.
///
/// For reading only, and not for safety alone: through a mapping that may be written, an EPYC (family 26)
/// has the writer's line handed over with the right to write. A reader that reads as fast as it can then
/// waits half as long for it, and takes 70 % of a tight loop of stores rather than 25 %.
#[derive(Debug)]
pub struct View {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that nothing here writes, bound to no thread.
unsafe impl Send for View {}
// SAFETY: as above; all reads of what others write go through atomics or volatile copies.
unsafe impl Sync for View {}

impl View {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size.
    pub fn map(file: impl AsFd, offset: u64, len: usize) -> io::Result<Arc<Self>> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Arc::new(Self { base, len }))
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A copy of bytes, which no longer changes; `None` if they are not all inside.
    #[must_use]
    pub fn copy(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping, as just checked, and `bytes` is ours alone. What is torn by
        // a writer is wrong bytes, never an undefined structure: callers parse them as foreign.
        unsafe {
            ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), bytes.as_mut_ptr(), len);
        }
        Some(bytes)
    }

    /// The number of `width` bytes (1, 2, 4 or 8) at `offset`. `None` if it is not all inside, or
    /// not aligned to its width: then no load reads it whole.
    #[must_use]
    pub fn word(self: &Arc<Self>, offset: usize, width: usize) -> Option<Word> {
        let is_width = matches!(width, 1 | 2 | 4 | 8);
        if !is_width || !offset.is_multiple_of(width) || offset.checked_add(width)? > self.len {
            return None;
        }
        // Pages end at a multiple of 8, so the eight bytes around it are mapped too.
        let around = offset & !7;
        // SAFETY: inside the mapping.
        let at = unsafe { NonNull::new_unchecked(self.base.as_ptr().add(around)) }.cast();
        Some(Word {
            at,
            shift: ((offset - around) * 8) as u32,
            mask: u64::MAX >> (64 - width * 8),
            _memory: Arc::clone(self),
        })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every word holds the view that it lies in.
        // Unmapping can only fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// One number in a [`View`], little-endian, without sign.
#[derive(Debug, Clone)]
pub struct Word {
    at: NonNull<AtomicU64>,
    shift: u32,
    mask: u64,
    _memory: Arc<View>,
}

// SAFETY: it points into a view that it keeps, and only loads from there.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    /// The number now.
    #[inline(always)]
    #[must_use]
    pub fn load(&self) -> u64 {
        // SAFETY: inside the mapping that `_memory` keeps, aligned to eight bytes.
        let around = unsafe { self.at.as_ref() }.load(Relaxed);
        (around >> self.shift) & self.mask
    }

    /// The number at some time after a reading of the clock.
    #[inline(always)]
    #[must_use]
    pub fn load_after(&self, after: After) -> u64 {
        // SAFETY: as in `load`, for what is added is zero.
        let around = unsafe { self.at.add(after.zero()).as_ref() }.load(Relaxed);
        (around >> self.shift) & self.mask
    }

    /// Asks for the line that it is in, and does not wait for it.
    #[inline(always)]
    pub fn ask(&self) {
        let at = self.at.as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which changes nothing that a program sees, and faults at no address. Not said
        // to leave memory alone, or it could be moved beyond a fence.
        unsafe {
            core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
        }
    }

    /// All ones in as many bits as it has: what a change of it is taken modulo.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.mask
    }
}

/// The first eight bytes of a file, for one thread that counts in it as a program does: with plain
/// loads and stores.
#[derive(Debug)]
pub struct WrittenWord(crate::mapping::Mapping);

// SAFETY: all access to the mapping is by atomics.
unsafe impl Sync for WrittenWord {}

impl WrittenWord {
    /// Maps a file of at least a page for writing.
    pub fn map(file: impl AsFd) -> io::Result<Self> {
        crate::mapping::Mapping::new(file, 4096).map(Self)
    }

    /// Counts so many times.
    #[inline(always)]
    pub fn count(&self, times: u64) {
        let word = self.0.u64(0);
        for _ in 0..times {
            word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn view(bytes: &[u8]) -> Arc<View> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        View::map(&file, 0, bytes.len()).expect("mapped")
    }

    proptest! {
        #[test]
        fn a_word_is_what_its_bytes_say(
            bytes in proptest::collection::vec(any::<u8>(), 4096), offset in 0usize..4110,
            log_width in 0u32..4,
        ) {
            let width = 1usize << log_width;
            let view = view(&bytes);
            let word = view.word(offset, width);
            let fits = offset % width == 0 && offset + width <= bytes.len();
            prop_assert_eq!(word.is_some(), fits);
            if let Some(word) = word {
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(&bytes[offset..offset + width]);
                prop_assert_eq!(word.load(), u64::from_le_bytes(wide));
                prop_assert_eq!(word.mask(), u64::MAX >> (64 - 8 * width));
            }
        }
    }

    #[test]
    fn what_is_not_inside_is_none() {
        let view = view(&[7; 4096]);
        assert_eq!(view.copy(4090, 6), Some(vec![7; 6]));
        assert_eq!(view.copy(4091, 6), None);
        assert_eq!(view.copy(usize::MAX, 2), None);
        assert!(view.word(0, 3).is_none() && view.word(usize::MAX - 7, 8).is_none());
    }

    #[test]
    fn a_word_outlives_the_handle_of_its_view() {
        let word = view(&[1; 4096]).word(8, 4).expect("inside");
        assert_eq!(word.load(), 0x0101_0101);
    }
}
