//! System calls of arm64, as a debugger makes a thread do them.

use super::trace::Registers;

/// The instruction: `svc #0`.
pub(super) const CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
/// Instructions are words.
pub(super) const ALIGNED: usize = 4;
/// In the state of the processor: 32-bit code.
const NARROW: u64 = 1 << 4;
/// In it: what kind of branch came last, which guarded pages look at.
const BRANCHED: u64 = 3 << 10;

/// Registers with which the instruction at an address makes a call.
pub(super) fn prepared(from: &Registers, at: u64, number: u64, arguments: [u64; 6]) -> Registers {
    let mut regs = from.regs;
    regs[..6].copy_from_slice(&arguments);
    regs[8] = number;
    Registers {
        regs,
        pc: at,
        pstate: from.pstate & !BRANCHED,
        ..*from
    }
}

/// What the call returned: an error is negative.
pub(super) fn result(registers: &Registers) -> i64 {
    registers.regs[0] as i64
}

/// The next instruction.
pub(super) fn next(registers: &Registers) -> u64 {
    registers.pc
}

/// It runs 64-bit code.
pub(super) fn is_wide(registers: &Registers) -> bool {
    registers.pstate & NARROW == 0
}
