//! Rows on their way from where a span ended to the recorder: `struct ts_row` and its shares.
//!
//! They come out of memory that a measured process can write, so nothing in them is trusted: a
//! row that makes no sense is an error, never a panic or a read past its end.

use std::mem::{offset_of, size_of};

use crate::abi;
use crate::keeping::Kept;

/// How many causes the kernel meters.
pub const CAUSES: usize = abi::TS_CAUSES as usize;

/// How many hardware counters are read at a time.
pub const COUNTERS: usize = abi::TS_COUNTERS as usize;

/// What the hardware counted in a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Which group of events it was: the recorder's own number.
    pub group: u16,
    /// For each event of it: how many, where that is known.
    pub values: [Option<u64>; COUNTERS],
}

/// One span as it was measured, times still in the unit of its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// When it began: cycles (SDK) or `CLOCK_MONOTONIC` ns (kernel).
    pub begin: u64,
    /// How long it took, in the same unit.
    pub wall: u64,
    /// The request it was part of.
    pub id: Option<u64>,
    /// Thread group; 0 in rows of the SDK, which are their region's.
    pub pid: u32,
    /// Thread, as the initial namespace numbers it.
    pub tid: u32,
    /// Where it ended; `u16::MAX` if not known.
    pub cpu: u16,
    /// Index into the region's names (SDK).
    pub name: u8,
    /// Number of the name that an argument of a probe gave (kernel); 0: none.
    pub text: u16,
    /// How long the request was ready while its thread did other work.
    pub queue_ns: u64,
    /// The probability with which this row is here.
    pub kept: Kept,
    /// For each cause: ns.
    pub ns: [u64; CAUSES],
    /// For each cause: how many times.
    pub n: [u32; CAUSES],
    /// For each cause: who is to blame for the largest, as a number that the kernel's programs
    /// gave out; 0: nobody is known.
    pub who: [u16; CAUSES],
    /// What was counted, where something was (SDK).
    pub counts: Option<Counts>,
}

/// The bytes are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of {have} bytes that should have {want}, or with causes that don't exist")]
pub struct Malformed {
    have: usize,
    want: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Row {
    /// Reads the row at the front of `bytes`; returns it with its length.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut row = Self::default();
        let len = row.read(bytes)?;
        Ok((row, len))
    }

    /// Becomes the row at the front of `bytes`; returns its length. Where there is none, it stays
    /// as it was, or lacks its counts. For many rows, one after the other: a row is large to move.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        const HEAD: usize = size_of::<abi::ts_row>();
        const SHARE: usize = size_of::<abi::ts_share>();
        let have = bytes.len();
        if have < HEAD {
            return Err(Malformed { have, want: HEAD });
        }
        let causes = u16_at(bytes, offset_of!(abi::ts_row, causes));
        let want = HEAD + causes.count_ones() as usize * SHARE;
        if have < want || causes >> CAUSES != 0 {
            return Err(Malformed { have, want });
        }
        let flags = u32::from(bytes[offset_of!(abi::ts_row, flags)]);
        self.begin = u64_at(bytes, offset_of!(abi::ts_row, begin));
        self.wall = u64_at(bytes, offset_of!(abi::ts_row, wall));
        self.id =
            (flags & abi::TS_ROW_HAS_ID != 0).then(|| u64_at(bytes, offset_of!(abi::ts_row, id)));
        self.pid = u32_at(bytes, offset_of!(abi::ts_row, pid));
        self.tid = u32_at(bytes, offset_of!(abi::ts_row, tid));
        self.cpu = u16_at(bytes, offset_of!(abi::ts_row, cpu));
        self.name = bytes[offset_of!(abi::ts_row, name)];
        self.text = u16_at(bytes, offset_of!(abi::ts_row, text));
        self.queue_ns = u64_at(bytes, offset_of!(abi::ts_row, queue_ns));
        self.kept = Kept::from_code(u16_at(bytes, offset_of!(abi::ts_row, kept)));
        (self.ns, self.n, self.who) = ([0; CAUSES], [0; CAUSES], [0; CAUSES]);
        self.counts = None;
        let mut left = causes;
        let mut at = HEAD;
        while left != 0 {
            let cause = left.trailing_zeros() as usize;
            self.ns[cause] = u64_at(bytes, at + offset_of!(abi::ts_share, ns));
            self.n[cause] = u32_at(bytes, at + offset_of!(abi::ts_share, n));
            self.who[cause] = u16_at(bytes, at + offset_of!(abi::ts_share, who));
            at += SHARE;
            left &= left - 1;
        }
        if flags & abi::TS_ROW_HAS_COUNTS == 0 {
            return Ok(want);
        }
        let (counts, len) = Counts::parse(&bytes[want..])?;
        self.counts = Some(counts);
        Ok(want + len)
    }
}

impl Counts {
    /// Reads those at the front of `bytes`; returns them with their length.
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        const HEAD: usize = size_of::<abi::ts_counts>();
        let have = bytes.len();
        if have < HEAD {
            return Err(Malformed { have, want: HEAD });
        }
        let known = u16_at(bytes, offset_of!(abi::ts_counts, known));
        let want = HEAD + known.count_ones() as usize * size_of::<u64>();
        if have < want || known >> COUNTERS != 0 {
            return Err(Malformed { have, want });
        }
        let mut counts = Self {
            group: u16_at(bytes, offset_of!(abi::ts_counts, group)),
            values: [None; COUNTERS],
        };
        let known = (0..COUNTERS).filter(|i| known & 1 << i != 0);
        for (place, i) in known.enumerate() {
            counts.values[i] = Some(u64_at(bytes, HEAD + place * size_of::<u64>()));
        }
        Ok((counts, want))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(row: &Row) -> Vec<u8> {
        let causes = (0..CAUSES).filter(|&c| row.ns[c] != 0 || row.n[c] != 0);
        let mut bytes = Vec::new();
        bytes.extend(row.begin.to_le_bytes());
        bytes.extend(row.wall.to_le_bytes());
        bytes.extend(row.id.unwrap_or(0).to_le_bytes());
        bytes.extend(row.pid.to_le_bytes());
        bytes.extend(row.tid.to_le_bytes());
        bytes.extend(causes.clone().fold(0u16, |m, c| m | 1 << c).to_le_bytes());
        bytes.extend(row.cpu.to_le_bytes());
        let counted = u8::from(row.counts.is_some()) * abi::TS_ROW_HAS_COUNTS as u8;
        bytes.extend([row.name, u8::from(row.id.is_some()) | counted]);
        bytes.extend(row.text.to_le_bytes());
        bytes.extend(row.queue_ns.to_le_bytes());
        bytes.extend(row.kept.code().to_le_bytes());
        bytes.extend([0; 6]);
        for c in causes {
            bytes.extend(row.ns[c].to_le_bytes());
            bytes.extend(row.n[c].to_le_bytes());
            bytes.extend(row.who[c].to_le_bytes());
            bytes.extend([0; 2]);
        }
        if let Some(counts) = row.counts {
            let known = (0..COUNTERS).filter(|i| counts.values[*i].is_some());
            bytes.extend(counts.group.to_le_bytes());
            bytes.extend(known.fold(0u16, |m, i| m | 1 << i).to_le_bytes());
            bytes.extend([0; 4]);
            let values = counts.values.iter().flatten();
            values.for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        bytes
    }

    prop_compose! {
        fn rows()(begin: u64, wall: u64, id: Option<u64>, pid: u32, tid: u32, cpu: u16, name: u8, text: u16,
                  queue_ns: u64, kept: u16, ns: [u64; CAUSES], n: [u32; CAUSES], who: [u16; CAUSES], mask: u16, group: u16,
                  values: Option<[Option<u64>; COUNTERS]>) -> Row {
            let counts = values.map(|values| Counts { group, values });
            let mut row = Row { begin, wall, id, pid, tid, cpu, name, text, queue_ns, kept: Kept::from_code(kept), ns, n, who, counts };
            for c in (0..CAUSES).filter(|c| mask & 1 << c == 0) {
                row.ns[c] = 0;
                row.n[c] = 0;
                row.who[c] = 0;
            }
            row
        }
    }

    proptest! {
        #[test]
        fn a_row_comes_back_as_it_went(row in rows(), tail: Vec<u8>) {
            let mut bytes = encode(&row);
            let len = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(Row::parse(&bytes), Ok((row, len)));
        }

        #[test]
        fn nothing_is_left_of_the_row_before(row in rows(), mut before in rows()) {
            let bytes = encode(&row);
            prop_assert_eq!(before.read(&bytes), Ok(bytes.len()));
            prop_assert_eq!(before, row);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Row::parse(&bytes);
        }

        #[test]
        fn a_row_cut_short_is_an_error(row in rows(), cut in 0usize..1000) {
            let bytes = encode(&row);
            let cut = cut % bytes.len();
            prop_assert!(Row::parse(&bytes[..cut]).is_err());
        }
    }
}
