//! `src/bpf/shared.h`, as Rust sees it. The words on each item are in the header.

#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, dead_code)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// A C structure of plain integers, as the bytes that a map holds.
pub(crate) trait Plain: Default + Sized {
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `Plain` is implemented only for bindgen's structures of integers, which have
        // no padding that is not named (they come from shared.h) and no invalid bit patterns.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The structure at the front of `bytes`, if there are enough of them.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut value = Self::default();
        let from = bytes.get(..size_of::<Self>())?;
        // SAFETY: any bytes are a valid value, and `from` has exactly as many as it takes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                std::ptr::from_mut(&mut value).cast(),
                from.len(),
            );
        }
        Some(value)
    }
}

impl Plain for config {}
impl Plain for process {}
impl Plain for late {}
impl Plain for lost {}
impl Plain for uncovered {}
impl Plain for unseen {}
impl Plain for blamed {}
impl Plain for event {}
impl Plain for tl_config {}
impl Plain for tl_lost {}
impl Plain for hazard_process {}
impl Plain for pid_namespace_config {}
impl Plain for process_numbers {}
