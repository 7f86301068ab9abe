//! The table by which the programs rule out nearly all processes that are not watched
//! (`bpf/watched_table.h`).

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::Object;
use rustix::mm::{MapFlags, ProtFlags};

use crate::load_error::LoadError;
use crate::object::map_of;
use crate::shared::{WATCHED_BUCKETS, watched_table};

/// The table, shared with the programs.
#[derive(Debug)]
pub(crate) struct Watched(NonNull<AtomicU32>);

impl Watched {
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
                size_of::<watched_table>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )?
        };
        NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at null"))
    }

    /// One more of these numbers is watched.
    pub(crate) fn add(&self, pid: u32) {
        self.word(offset_of!(watched_table, count), pid)
            .fetch_add(1, Relaxed);
    }

    /// This one is watched no more.
    pub(crate) fn remove(&self, pid: u32) {
        let last = self.word(offset_of!(watched_table, last), pid);
        let _ = last.compare_exchange(pid, 0, Relaxed, Relaxed); // else it is another's
        self.word(offset_of!(watched_table, count), pid)
            .fetch_sub(1, Relaxed);
    }

    /// The word of a process in one of the table's arrays.
    fn word(&self, array: usize, pid: u32) -> &AtomicU32 {
        let at = array / size_of::<u32>() + (pid % WATCHED_BUCKETS) as usize;
        // SAFETY: `at` is inside the mapping, which lives as long as `self`; everybody changes the
        // words only as a whole.
        unsafe { self.0.add(at).as_ref() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; references live no longer than `self`.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<watched_table>()) };
    }
}
