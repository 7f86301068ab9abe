//! Parquet's hybrid of run-length and bit-packed integers: dictionary indices and levels.

/// How many bits the numbers up to `largest` take. At least one: a width of zero is legal, but
/// not every reader was tried with it.
pub(super) fn width(largest: u32) -> u8 {
    (u32::BITS - largest.leading_zeros()).max(1) as u8
}

/// An unsigned LEB128.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// `count` times the same value.
pub(super) fn put_run(out: &mut Vec<u8>, width: u8, value: u32, count: usize) {
    if count > 0 {
        put_varint(out, (count as u64) << 1);
        out.extend_from_slice(&value.to_le_bytes()[..usize::from(width.div_ceil(8))]);
    }
}

/// Any values: long runs as runs, all else bit-packed.
pub(super) fn put(out: &mut Vec<u8>, width: u8, values: &[u32]) {
    /// Values of a bit-packed group.
    const GROUP: usize = 8;
    let mut packed_from = 0;
    let mut at = 0;
    while let Some(group) = values.get(at..at + GROUP) {
        let first = group[0];
        if group
            .iter()
            .fold(0, |differ, &value| differ | (value ^ first))
            != 0
        {
            at += GROUP;
            continue;
        }
        let more = values[at + GROUP..]
            .iter()
            .take_while(|&&value| value == first)
            .count();
        // A run breaks the packed groups in two, which costs another header: worth it from two
        // groups on.
        if more < GROUP {
            at += GROUP;
            continue;
        }
        put_packed(out, width, &values[packed_from..at]);
        put_run(out, width, first, GROUP + more);
        at += GROUP + more;
        packed_from = at;
    }
    put_packed(out, width, &values[packed_from..]);
}

/// Bit-packed values, padded to whole groups: only the last of a page may need that.
fn put_packed(out: &mut Vec<u8>, width: u8, values: &[u32]) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(8);
    put_varint(out, (groups as u64) << 1 | 1);
    let end = out.len() + groups * usize::from(width);
    let (mut pending, mut bits) = (0u64, 0u32);
    for &value in values {
        pending |= u64::from(value) << bits;
        bits += u32::from(width);
        if bits >= 32 {
            out.extend_from_slice(&(pending as u32).to_le_bytes());
            pending >>= 32;
            bits -= 32;
        }
    }
    out.extend_from_slice(&pending.to_le_bytes());
    // What was written past the values is zero, and so is what is missing up to whole groups.
    out.resize(end, 0);
}
