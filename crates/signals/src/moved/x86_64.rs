//! System calls of x86-64, as a debugger makes a thread do them.

use super::trace::Registers;

/// The instruction.
pub(super) const CALL: [u8; 2] = [0x0f, 0x05];
/// It may stand anywhere.
pub(super) const ALIGNED: usize = 1;
/// The selector of 64-bit code of user space.
const LONG_MODE: u64 = 0x33;

/// Registers with which the instruction at an address makes a call.
pub(super) fn prepared(from: &Registers, at: u64, number: u64, arguments: [u64; 6]) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    Registers {
        rip: at,
        rax: number,
        // No call is under way: none is begun again when these registers are taken up.
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*from
    }
}

/// What the call returned: an error is negative.
pub(super) fn result(registers: &Registers) -> i64 {
    registers.rax as i64
}

/// The next instruction.
pub(super) fn next(registers: &Registers) -> u64 {
    registers.rip
}

/// It runs 64-bit code.
pub(super) fn is_wide(registers: &Registers) -> bool {
    registers.cs == LONG_MODE
}
