//! The meters of one process, as the recorder sees them: who owns which slot, and how many spans
//! ended there. The totals themselves are read by their own threads and by the kernel.

use std::cell::OnceCell;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Acquire;

use crate::abi;
use crate::mapping::Mapping;

/// Slots of a part: their bytes are whole pages of 4, 16 or 64 KiB.
const PART: u32 = 256;
const PART_BYTES: usize = PART as usize * size_of::<abi::ts_meter>();
const PARTS: usize = (abi::TS_METERS / PART) as usize;
const _: () = assert!(PART_BYTES.is_multiple_of(64 << 10) && abi::TS_METERS.is_multiple_of(PART));

/// A BPF array of `struct ts_meter`. It is mapped part by part, as slots are looked at: the kernel maps all
/// pages of such an array at once, and most processes have few threads.
#[derive(Debug)]
pub struct Meters {
    map: OwnedFd,
    parts: [OnceCell<Mapping>; PARTS],
}

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

    /// The array behind `map`.
    ///
    /// # Errors
    /// It can't be mapped, or there is no descriptor left.
    pub fn map(map: impl AsFd) -> io::Result<Self> {
        let meters = Self {
            map: map.as_fd().try_clone_to_owned()?,
            parts: Default::default(),
        };
        meters.part(0)?;
        Ok(meters)
    }

    fn part(&self, number: usize) -> io::Result<&Mapping> {
        let part = &self.parts[number];
        if let Some(mapped) = part.get() {
            return Ok(mapped);
        }
        let mapped = Mapping::of_part(&self.map, (number * PART_BYTES) as u64, PART_BYTES)?;
        Ok(part.get_or_init(|| mapped))
    }

    fn field(slot: u32, offset: usize) -> usize {
        slot as usize * size_of::<abi::ts_meter>() + offset
    }

    /// Its part, and where in there a field of a slot is.
    fn at(&self, slot: u32, offset: usize) -> io::Result<(&Mapping, usize)> {
        let part = self.part((slot / PART) as usize)?;
        Ok((part, Self::field(slot % PART, offset)))
    }

    /// The thread that the kernel meters in this slot, or 0.
    ///
    /// # Errors
    /// It can't be mapped.
    pub fn kernel_tid(&self, slot: u32) -> io::Result<u32> {
        let (part, at) = self.at(slot, offset_of!(abi::ts_meter, kernel_tid))?;
        Ok(part.u32(at).load(Acquire))
    }

    /// Spans that ended here, kept or not, in any slot.
    #[must_use]
    pub fn spans(&self) -> u64 {
        let parts = (0..PARTS).map_while(|number| self.part(number).ok());
        parts.map(spans_in).fold(0, u64::wrapping_add)
    }

    /// The same where threads claim the first slot that is free, as the SDK's do: parts that no thread has
    /// reached stay unmapped.
    #[must_use]
    pub fn spans_of_sdk(&self) -> u64 {
        let mut sum = 0u64;
        for number in 0..PARTS {
            let Ok(part) = self.part(number) else { break };
            sum = sum.wrapping_add(spans_in(part));
            let next = self.parts.get(number + 1);
            if next.is_none_or(|next| next.get().is_none()) && !was_used(part, PART - 1) {
                break;
            }
        }
        sum
    }
}

fn spans_in(part: &Mapping) -> u64 {
    let at = |slot| Meters::field(slot, offset_of!(abi::ts_meter, spans));
    let all = (0..PART).map(|slot| part.u64(at(slot)).load(Acquire));
    all.fold(0, u64::wrapping_add)
}

/// Whether a thread has this slot of a part, or had it and left a trace: it was switched out or ended a span.
fn was_used(part: &Mapping, slot: u32) -> bool {
    let u32 = |offset| part.u32(Meters::field(slot, offset)).load(Acquire) != 0;
    let u64 = |offset| part.u64(Meters::field(slot, offset)).load(Acquire) != 0;
    u32(offset_of!(abi::ts_meter, tid))
        || u32(offset_of!(abi::ts_meter, seq))
        || u64(offset_of!(abi::ts_meter, since_ns))
        || u64(offset_of!(abi::ts_meter, spans))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn put(meters: &Meters, slot: u32, offset: usize, value: u32) {
        let (part, at) = meters.at(slot, offset).expect("mapped");
        part.u32(at).store(value, Relaxed);
    }

    fn mapped(meters: &Meters) -> usize {
        let parts = meters.parts.iter();
        parts.filter(|part| part.get().is_some()).count()
    }

    #[test]
    fn a_process_with_few_threads_takes_one_part_and_one_with_many_is_counted_whole() {
        let file = memfd_create("meters", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, bytes() as u64).expect("longer");
        let (meters, other) = (Meters::map(&file), Meters::map(&file));
        let (meters, other) = (meters.expect("mapped"), other.expect("mapped"));
        let (seq, spans) = (
            offset_of!(abi::ts_meter, seq),
            offset_of!(abi::ts_meter, spans),
        );
        put(&other, 3, spans, 7);
        assert_eq!((meters.spans_of_sdk(), mapped(&meters)), (7, 1));
        put(&other, PART - 1, seq, 2);
        put(&other, PART + 5, spans, 10);
        assert_eq!((meters.spans_of_sdk(), mapped(&meters)), (17, 2));
        put(
            &other,
            Meters::SLOTS - 1,
            offset_of!(abi::ts_meter, kernel_tid),
            4711,
        );
        assert_eq!(meters.kernel_tid(Meters::SLOTS - 1).expect("mapped"), 4711);
        assert_eq!(mapped(&meters), 3);
        assert_eq!((meters.spans(), mapped(&meters)), (17, PARTS));
    }
}
