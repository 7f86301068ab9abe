//! Where the instructions of a function begin, and which of them jumps lead to.
//!
//! A thread that is at an instruction came from the one before it, unless a jump or a return leads
//! there. This is certain only where all jumps of the function are known, and nothing jumps into
//! its middle from elsewhere, which compilers do not do.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

/// A function.
#[derive(Debug)]
pub(super) struct Outline {
    /// The addresses of the instructions, and whether each leads only to the next one.
    starts: Vec<(u64, bool)>,
    targets: HashSet<u64>,
}

impl Outline {
    /// From the code of a whole function; `None` if some of it is no instruction, or if it jumps to
    /// an address that it computes.
    pub(super) fn of(code: &[u8], start: u64) -> Option<Self> {
        let mut outline = Self {
            starts: Vec::new(),
            targets: HashSet::new(),
        };
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return None;
            }
            let flow = instruction.flow_control();
            match flow {
                FlowControl::IndirectBranch => return None,
                FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::XbeginXabortXend => {
                    outline.targets.insert(instruction.near_branch_target());
                }
                _ => {}
            }
            let is_plain = flow == FlowControl::Next;
            outline.starts.push((instruction.ip(), is_plain));
        }
        Some(outline)
    }

    /// The instruction that was executed before the one at `ip`, if that is certain.
    pub(super) fn before(&self, ip: u64) -> Option<u64> {
        if self.targets.contains(&ip) {
            return None;
        }
        let place = self.starts.binary_search_by_key(&ip, |(at, _)| *at).ok()?;
        let (before, leads_to_next) = self.starts[place.checked_sub(1)?];
        leads_to_next.then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_comes_before_a_target_a_return_or_the_start_is_not_certain() {
        // 0: mov rax,[rax]; 3: inc rax; 6: jne 3; 8: call 0xd; 0xd: nop; 0xe: ret
        let code = [
            0x48, 0x8b, 0x00, 0x48, 0xff, 0xc0, 0x75, 0xfb, 0xe8, 0, 0, 0, 0, 0x90, 0xc3,
        ];
        let outline = Outline::of(&code, 0x1000).expect("all of it is known");
        assert_eq!(outline.before(0x1006), Some(0x1003));
        assert_eq!(outline.before(0x100e), Some(0x100d));
        for unknown in [0x1000, 0x1003, 0x1004, 0x1008, 0x100d, 0x2000] {
            assert_eq!(outline.before(unknown), None, "{unknown:x}");
        }
        let computed = [0x90, 0xff, 0xe0]; // jmp rax
        assert!(Outline::of(&computed, 0).is_none());
        assert!(Outline::of(&[0x90, 0x06], 0).is_none(), "no instruction");
    }

    proptest! {
        #[test]
        fn foreign_code_never_panics(code: Vec<u8>, start: u64, ip: u64) {
            if let Some(outline) = Outline::of(&code, start) {
                let _ = outline.before(ip);
            }
        }
    }
}
