//! The counts by which the programs rule out nearly all processes that are not watched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::Object;
use rustix::mm::{MapFlags, ProtFlags};

use crate::load_error::LoadError;
use crate::object::map_of;
use crate::shared;

/// The counts of watched processes by the low bits of their id, shared with the programs.
#[derive(Debug)]
pub(crate) struct Watched(std::ptr::NonNull<std::sync::atomic::AtomicU32>);

impl Watched {
    const BYTES: usize = shared::WATCHED_BUCKETS as usize * 4;

    /// The table of loaded programs.
    pub(crate) fn of(object: &Object) -> Result<Self, LoadError> {
        Self::map(map_of(object, ".bss.watched").as_fd()).map_err(|source| LoadError::System {
            what: "map the table of watched processes",
            source,
        })
    }

    fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of the map's own memory aliases nothing of ours.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )?
        };
        std::ptr::NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at null"))
    }

    pub(crate) fn add(&self, pid: u32, by: i32) {
        let bucket = (pid % shared::WATCHED_BUCKETS) as usize;
        // SAFETY: `bucket` is inside the mapping, which lives as long as `self`; the programs
        // change the words only by atomic additions, and so do we.
        let word = unsafe { self.0.add(bucket).as_ref() };
        word.fetch_add(by as u32, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; `add` lends no reference out.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}
