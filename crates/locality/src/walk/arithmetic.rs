//! Sums, differences and their flags, in the sizes that operands have.

use super::flags::Flags;

/// The bits of an operand of this many bits.
pub(super) fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// A value of this many bits as a signed number.
pub(super) fn sign_extended(value: u64, bits: u32) -> u64 {
    let unused = 64 - bits;
    ((value << unused) as i64 >> unused) as u64
}

/// A sum with its flags.
pub(super) fn added(a: u64, b: u64, bits: u32) -> (u64, Flags) {
    let (a, b) = (a & mask(bits), b & mask(bits));
    let result = a.wrapping_add(b) & mask(bits);
    let sign = |value: u64| value >> (bits - 1) & 1;
    let overflow = sign(a) == sign(b) && sign(result) != sign(a);
    let flags = Flags::of(result, bits, Some(result < a), Some(overflow));
    (result, flags)
}

/// A difference with its flags.
pub(super) fn subtracted(a: u64, b: u64, bits: u32) -> (u64, Flags) {
    let (a, b) = (a & mask(bits), b & mask(bits));
    let result = a.wrapping_sub(b) & mask(bits);
    let sign = |value: u64| value >> (bits - 1) & 1;
    let overflow = sign(a) != sign(b) && sign(result) != sign(a);
    let flags = Flags::of(result, bits, Some(a < b), Some(overflow));
    (result, flags)
}

/// The result of `and`, `or` or `xor` with its flags.
pub(super) fn logical(result: u64, bits: u32) -> (u64, Flags) {
    let result = result & mask(bits);
    let flags = Flags::of(result, bits, Some(false), Some(false));
    (result, flags)
}
