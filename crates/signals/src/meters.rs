//! The meters of one process, as the recorder sees them: who owns which slot, and how many spans
//! ended there. The totals themselves are read by their own threads and by the kernel.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Acquire;

use crate::abi;
use crate::mapping::Mapping;

/// A mapped BPF array of `struct ts_meter`.
#[derive(Debug)]
pub struct Meters(Mapping);

/// Bytes of a map of meters.
#[must_use]
pub fn bytes() -> usize {
    Meters::SLOTS as usize * size_of::<abi::ts_meter>()
}

/// Where in the map the total of a cause is, in ns, of the meter in a slot.
#[must_use]
pub fn cause_at(slot: u32, cause: usize) -> usize {
    let totals = offset_of!(abi::ts_meter, totals) + offset_of!(abi::ts_totals, ns);
    Meters::field(slot, totals + cause * size_of::<u64>())
}

impl Meters {
    /// How many slots a map of meters has.
    pub const SLOTS: u32 = abi::TS_METERS;

    /// Maps the array behind `map`.
    pub fn map(map: impl AsFd) -> io::Result<Self> {
        Ok(Self(Mapping::new(map, bytes())?))
    }

    fn field(slot: u32, offset: usize) -> usize {
        slot as usize * size_of::<abi::ts_meter>() + offset
    }

    /// The thread that the kernel meters in this slot, or 0.
    #[must_use]
    pub fn kernel_tid(&self, slot: u32) -> u32 {
        self.0
            .u32(Self::field(slot, offset_of!(abi::ts_meter, kernel_tid)))
            .load(Acquire)
    }

    /// Spans that ended in this process, kept or not.
    #[must_use]
    pub fn spans(&self) -> u64 {
        (0..Self::SLOTS)
            .map(|slot| {
                self.0
                    .u64(Self::field(slot, offset_of!(abi::ts_meter, spans)))
                    .load(Acquire)
            })
            .fold(0, u64::wrapping_add)
    }
}
