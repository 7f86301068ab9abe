//! The chunks of a region: each belongs to one thread, which fills it with rows.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::abi::{self, Meter};
use super::process::Process;
use super::thread::Thread;

/// Writes values into a chunk; returns where they end.
///
/// # Safety
/// From `at` on, a multiple of eight, there is room in the chunk that nobody reads. What is written is a
/// multiple of eight bytes long and aligned to no more.
#[inline(always)]
pub(super) unsafe fn put<T: Copy>(chunk: &abi::Chunk, at: usize, what: &[T]) -> usize {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() <= 8) };
    if what.is_empty() {
        return at; // most rows have no shares
    }
    // SAFETY: by the contract.
    unsafe {
        let place = chunk.rows.as_ptr().add(at).cast_mut().cast::<T>();
        place.copy_from_nonoverlapping(what.as_ptr(), what.len());
    }
    at + size_of_val(what)
}

/// The chunk that this thread writes, with room for a row.
#[inline(always)]
pub(super) fn room(
    process: &Process,
    thread: &Thread,
    meter: &'static Meter,
) -> Option<&'static abi::Chunk> {
    let has_room = thread.used.get() as usize + abi::ROW_MAX <= abi::CHUNK_BYTES - 8;
    match thread.chunk.get() {
        Some((chunk, _)) if has_room => Some(chunk),
        _ => next_chunk(process, thread, meter),
    }
}

/// Hands over the full chunk and takes a free one; `None` if there is none.
#[cold]
#[inline(never)]
fn next_chunk(
    process: &Process,
    thread: &Thread,
    meter: &'static Meter,
) -> Option<&'static abi::Chunk> {
    let region = process.region();
    if let Some((_, index)) = thread.chunk.take() {
        region.chunk_state[index as usize].store(abi::CHUNK_FULL, Release);
    }
    if thread.skip.get() > 0 {
        thread.skip.set(thread.skip.get() - 1);
        region.lost.fetch_add(1, Relaxed);
        return None;
    }
    let owned = abi::CHUNK_OWNED | process.slot(meter) << 8;
    for (index, state) in region.chunk_state.iter().enumerate() {
        let free = state.load(Relaxed) == abi::CHUNK_FREE;
        if free
            && state
                .compare_exchange(abi::CHUNK_FREE, owned, AcqRel, Relaxed)
                .is_ok()
        {
            let chunk = process.chunk(index as u32);
            chunk.tid.store(meter.kernel_tid.load(Relaxed), Relaxed);
            thread.chunk.set(Some((chunk, index as u32)));
            thread.used.set(0);
            return Some(chunk);
        }
    }
    thread.skip.set(255); // looking costs more than a row: not each time
    region.lost.fetch_add(1, Relaxed);
    None
}
