//! Functions to be probed, with a known first instruction. What a probe costs depends on it: the
//! kernel emulates some instructions, and steps through the others with two more exceptions.

use std::arch::global_asm;
use std::io;

use crate::uprobes::place_in_file;

/// How a function begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum First {
    /// With an instruction that the kernel emulates: `push`.
    Emulated,
    /// With one that it steps through.
    Stepped,
    /// With a one-byte no-op, as a USDT probe is.
    Nop,
    /// With a five-byte no-op, which newer kernels replace by a call.
    Nop5,
}

/// Functions of each kind, [`PITCH`] bytes apart.
pub const SLOTS: usize = 8;
const PITCH: usize = 64;

macro_rules! functions {
    ($name:literal, $code:literal) => {
        global_asm!(
            ".pushsection .text.tailscope_cost, \"ax\", @progbits",
            ".p2align 6",
            concat!(".globl ", $name),
            concat!($name, ":"),
            ".rept 8",
            $code,
            "ret",
            ".p2align 6",
            ".endr",
            ".popsection",
        );
    };
}
#[cfg(target_arch = "x86_64")]
mod code {
    use super::global_asm;
    functions!("tailscope_cost_emulated", "push rbp; pop rbp");
    functions!("tailscope_cost_stepped", "mov eax, edi");
    functions!("tailscope_cost_nop", "nop");
    functions!("tailscope_cost_nop5", ".byte 0x0f, 0x1f, 0x44, 0, 0");
}

#[cfg(target_arch = "aarch64")]
mod code {
    use super::global_asm;
    functions!("tailscope_cost_emulated", "nop");
    functions!("tailscope_cost_stepped", "mov w1, w0");
    functions!("tailscope_cost_nop", "nop");
    functions!("tailscope_cost_nop5", "nop");
}

unsafe extern "C" {
    fn tailscope_cost_emulated();
    fn tailscope_cost_stepped();
    fn tailscope_cost_nop();
    fn tailscope_cost_nop5();
}

/// One function of ours. Nothing else calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    address: usize,
}

impl Call {
    /// The function of this kind with this number.
    ///
    /// # Panics
    /// If there are no more than [`SLOTS`].
    #[must_use]
    pub fn new(first: First, slot: usize) -> Self {
        assert!(slot < SLOTS, "no function {slot}");
        let base = match first {
            First::Emulated => tailscope_cost_emulated as *const () as usize,
            First::Stepped => tailscope_cost_stepped as *const () as usize,
            First::Nop => tailscope_cost_nop as *const () as usize,
            First::Nop5 => tailscope_cost_nop5 as *const () as usize,
        };
        Self {
            address: base + slot * PITCH,
        }
    }

    /// Where it is in the file of this program.
    ///
    /// # Errors
    /// If our own mappings can't be read.
    pub fn offset(self) -> io::Result<u64> {
        place_in_file(self.address as u64)
    }

    /// Calls it again and again.
    #[inline(never)]
    pub fn repeat(self, times: u64) {
        // SAFETY: the address of a function above, which takes and returns nothing, keeps the
        // stack, and changes no register that a callee must keep.
        let function: extern "C" fn() = unsafe { std::mem::transmute(self.address) };
        for _ in 0..times {
            function();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_returns_and_has_a_place_of_its_own() {
        let mut places = Vec::new();
        for first in [First::Emulated, First::Stepped, First::Nop, First::Nop5] {
            for slot in 0..SLOTS {
                let call = Call::new(first, slot);
                call.repeat(3);
                places.push(call.offset().expect("it is in our own file"));
            }
        }
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 4 * SLOTS);
    }
}
