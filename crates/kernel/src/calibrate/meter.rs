//! The meter of one thread that only the kernel meters, read and written from outside.

use std::io;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use tailscope_signals::abi;

/// A slot of a map of meters, and whose it is.
pub(super) struct Meter<'k> {
    map: &'k MapHandle,
    slot: [u8; 4],
}

impl<'k> Meter<'k> {
    /// Slots are handed out from the last one on, so the search ends soon.
    pub(super) fn of(maps: &'k [MapHandle], tid: u32) -> Option<Self> {
        maps.iter().rev().find_map(|map| {
            (0..abi::TS_METERS).rev().find_map(|slot| {
                let slot = slot.to_ne_bytes();
                let meter = Self { map, slot };
                (meter.read().ok()?.kernel_tid == tid).then_some(meter)
            })
        })
    }

    fn read(&self) -> io::Result<abi::ts_meter> {
        let bytes = self
            .map
            .lookup(&self.slot, MapFlags::ANY)
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("the meter no longer exists"))?;
        if bytes.len() < size_of::<abi::ts_meter>() {
            return Err(io::Error::other("the meter is truncated"));
        }
        // SAFETY: there are as many bytes as a meter has, which is plain integers; they need not
        // be aligned.
        Ok(unsafe { bytes.as_ptr().cast::<abi::ts_meter>().read_unaligned() })
    }

    /// What its thread was charged so far.
    pub(super) fn totals(&self) -> io::Result<abi::ts_totals> {
        Ok(self.read()?.totals)
    }

    /// Says that a span is open. Its thread is blocked, so nobody else writes.
    pub(super) fn open(&self) -> io::Result<()> {
        let mut bytes = self
            .map
            .lookup(&self.slot, MapFlags::ANY)
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("the meter no longer exists"))?;
        let at = std::mem::offset_of!(abi::ts_meter, open);
        bytes[at..at + 4].copy_from_slice(&1u32.to_ne_bytes());
        self.map
            .update(&self.slot, &bytes, MapFlags::ANY)
            .map_err(io::Error::other)
    }
}
