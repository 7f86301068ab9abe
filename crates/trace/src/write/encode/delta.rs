//! Parquet's DELTA_BINARY_PACKED: differences, less the least of their block, bit-packed.

use super::hybrid::put_varint;

/// Values of a block and of its parts, each of which has a width of its own. The smallest that
/// the format allows: an outlier widens the fewest neighbours, and every reader knows 128 and 4.
const BLOCK: usize = 128;
const MINI: usize = 32;

/// Appends the values.
pub(super) fn put(out: &mut Vec<u8>, values: &[i64]) {
    put_varint(out, BLOCK as u64);
    put_varint(out, (BLOCK / MINI) as u64);
    put_varint(out, values.len() as u64);
    put_varint(out, zigzag(values.first().copied().unwrap_or(0)));
    let mut deltas = [0i64; BLOCK];
    // Each window holds the value before the block and the block.
    for start in (0..values.len().saturating_sub(1)).step_by(BLOCK) {
        let window = &values[start..values.len().min(start + BLOCK + 1)];
        let count = window.len() - 1;
        for ((delta, before), value) in deltas.iter_mut().zip(window).zip(&window[1..]) {
            *delta = value.wrapping_sub(*before);
        }
        put_block(out, &mut deltas, count);
    }
}

fn put_block(out: &mut Vec<u8>, deltas: &mut [i64; BLOCK], count: usize) {
    let least = deltas[..count].iter().copied().min().unwrap_or(0);
    // What pads the block takes no bits.
    deltas[count..].fill(least);
    put_varint(out, zigzag(least));
    let mut packed = [0u64; BLOCK];
    for (packed, delta) in packed.iter_mut().zip(deltas.iter()) {
        // As unsigned numbers the differences fit even if the signed ones overflow.
        *packed = delta.wrapping_sub(least) as u64;
    }
    let minis = packed.chunks_exact(MINI);
    for mini in minis.clone() {
        let bits = mini.iter().fold(0, |bits, value| bits | value);
        out.push((u64::BITS - bits.leading_zeros()) as u8);
    }
    let widths = out.len() - BLOCK / MINI;
    for (number, mini) in minis.enumerate() {
        let width = u32::from(out[widths + number]);
        put_packed(out, width, mini);
    }
}

/// `MINI` values of `width` bits: a whole number of 32-bit words.
fn put_packed(out: &mut Vec<u8>, width: u32, values: &[u64]) {
    let end = out.len() + width as usize * MINI / 8;
    let (mut pending, mut bits) = (0u64, 0u32);
    for &value in values {
        pending |= value << bits;
        bits += width;
        if bits >= u64::BITS {
            out.extend_from_slice(&pending.to_le_bytes());
            bits -= u64::BITS;
            // The value's bits that did not fit; shifting by all of them would overflow.
            pending = if bits == 0 {
                0
            } else {
                value >> (width - bits)
            };
        }
    }
    out.extend_from_slice(&pending.to_le_bytes());
    out.truncate(end);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}
