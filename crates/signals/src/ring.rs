//! The rings in which the kernel's programs leave rows: one a CPU, in one mapped BPF array.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::abi;
use crate::mapping::Mapping;
use crate::row::{Malformed, Row};

/// TS_KERNEL_ROW_MAX.
const ROW_MAX: u64 = (size_of::<abi::ts_row>()
    + abi::TS_CAUSES as usize * size_of::<abi::ts_share>()
    + size_of::<abi::ts_request>()) as u64;

/// Rows are copied out of a ring in blocks of so many bytes: a few pages' worth of a stream that the
/// CPU fetches ahead, and never past what the producer has finished.
const BLOCK: usize = 4096;

/// What lies in a ring, one after the other. The largest takes no more than TS_KERNEL_ROW_MAX.
pub trait Entry: Default {
    /// Becomes the one at the front of `bytes`; returns its length.
    ///
    /// # Errors
    /// There is none.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed>;
}

impl Entry for Row {
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        Row::read(self, bytes)
    }
}

/// The consumer's side of all CPUs' rings.
#[derive(Debug)]
pub struct Rings {
    memory: Mapping,
    cpus: usize,
    bytes: u64,
}

impl Rings {
    /// The size of a BPF array's value that holds a ring of `bytes` bytes, a power of two.
    #[must_use]
    pub const fn value_size(bytes: u32) -> u32 {
        abi::TS_RING_HEAD + bytes + abi::TS_RING_SLACK
    }

    /// Maps the rings of `cpus` CPUs, of `bytes` bytes each.
    pub fn map(array: impl AsFd, cpus: usize, bytes: u32) -> io::Result<Self> {
        assert!(bytes.is_power_of_two(), "positions are masked");
        let memory = Mapping::new(array, cpus * Self::value_size(bytes) as usize)?;
        Ok(Self {
            memory,
            cpus,
            bytes: bytes.into(),
        })
    }

    /// Takes the rows that are there, CPU by CPU. What is no row ends that CPU's turn: the rest of
    /// its ring is passed over.
    pub fn drain<E: Entry>(&mut self, mut each: impl FnMut(&E)) {
        let (mut block, mut row) = ([0; BLOCK], E::default());
        for cpu in 0..self.cpus {
            let base = cpu * Self::value_size(self.bytes as u32) as usize;
            let head = self
                .memory
                .u64(base + offset_of!(abi::ts_ring, head))
                .load(Acquire);
            let tail = self.memory.u64(base + offset_of!(abi::ts_ring, tail));
            let mut at = tail.load(Acquire);
            while at < head {
                let offset = at & (self.bytes - 1);
                let room = self.bytes - offset;
                if room < ROW_MAX {
                    at += room; // a row never wraps
                    continue;
                }
                let block = &mut block[..BLOCK.min((head - at).min(room) as usize)];
                self.memory
                    .copy(base + abi::TS_RING_HEAD as usize + offset as usize, block);
                // The last row of a block may be cut, save where nothing follows.
                let ends = at + block.len() as u64 == head;
                let mut taken = 0;
                while taken < block.len() && (ends || block.len() - taken >= ROW_MAX as usize) {
                    match row.read(&block[taken..]) {
                        Ok(len) => {
                            each(&row);
                            taken += len;
                        }
                        Err(_) => {
                            at = head;
                            break;
                        }
                    }
                }
                at = head.min(at + taken as u64);
            }
            tail.store(at, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const BYTES: u32 = 4 * BLOCK as u32; // rows are cut by blocks, and by the ring's end

    /// What the programs do (crates/kernel/src/bpf/rings.h), in Rust.
    fn produce(memory: &Mapping, begin: u64, causes: u16) -> bool {
        let mask = u64::from(BYTES) - 1;
        let head_at = offset_of!(abi::ts_ring, head);
        let mut head = memory.u64(head_at).load(Relaxed);
        let mut at = head & mask;
        if mask + 1 - at < ROW_MAX {
            head += mask + 1 - at;
            at = 0;
        }
        let tail = memory.u64(offset_of!(abi::ts_ring, tail)).load(Relaxed);
        if head + ROW_MAX - tail > mask + 1 {
            return false;
        }
        let row = abi::TS_RING_HEAD as usize + at as usize;
        memory.u64(row).store(begin, Relaxed);
        let causes_at = row + offset_of!(abi::ts_row, causes);
        memory.u32(causes_at).store(causes.into(), Relaxed);
        let len =
            size_of::<abi::ts_row>() + causes.count_ones() as usize * size_of::<abi::ts_share>();
        memory.u64(head_at).store(head + len as u64, Relaxed);
        true
    }

    proptest! {
        #[test]
        fn every_row_comes_out_once_and_in_order(
            rounds in proptest::collection::vec((0u16..1 << 12, 0usize..60), 1..60)
        ) {
            let file = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a memfd");
            let len = u64::from(Rings::value_size(BYTES));
            ftruncate(&file, len).expect("sized");
            let memory = Mapping::new(&file, len as usize).expect("mapped");
            let mut rings = Rings::map(&file, 1, BYTES).expect("mapped again");
            let (mut made, mut taken) = (0u64, Vec::new());
            for (causes, burst) in rounds {
                for _ in 0..burst {
                    made += u64::from(produce(&memory, made, causes));
                }
                rings.drain(|row: &Row| taken.push(row.begin));
            }
            prop_assert_eq!(taken, (0..made).collect::<Vec<_>>());
        }
    }
}
