//! Where the instructions of a function begin, and which of them jumps lead to.
//!
//! A thread that is at an instruction came from the one before it, unless a jump or a return leads
//! there. This is certain only where all jumps of the function are known, with those in parts of it
//! that the compiler moved away: no other code jumps into its middle.

use std::collections::HashSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};

/// A function's first six arguments come in these.
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];
/// Registers that a called function may change beside those.
const CHANGED: [Register; 3] = [Register::RAX, Register::R10, Register::R11];

/// A function.
#[derive(Debug)]
pub(super) struct Outline {
    /// The addresses of the instructions, and whether each leads only to the next one.
    starts: Vec<(u64, bool)>,
    targets: HashSet<u64>,
    /// By register: the instruction that writes it.
    writers: [Writer; 16],
}

#[derive(Debug, Clone, Copy, Default)]
enum Writer {
    #[default]
    None,
    One(u64),
    Several,
}

impl Writer {
    fn add(&mut self, ip: u64) {
        *self = match self {
            Self::None => Self::One(ip),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

impl Outline {
    /// From all code of a function, each part with its first address, its own first. `None` if some of
    /// it is no instruction, if it jumps to an address that it computes, or under a condition to code
    /// of which nothing is known.
    pub(super) fn of(parts: &[(u64, Vec<u8>)]) -> Option<Self> {
        let mut outline = Self {
            starts: Vec::new(),
            targets: HashSet::new(),
            writers: [Writer::None; 16],
        };
        let is_known = |target: u64| {
            let inside = |(start, code): &(u64, Vec<u8>)| {
                target
                    .checked_sub(*start)
                    .is_some_and(|at| at < code.len() as u64)
            };
            parts.iter().any(inside)
        };
        let mut factory = InstructionInfoFactory::new();
        for (number, (start, code)) in parts.iter().enumerate() {
            let mut decoder = Decoder::with_ip(64, code, *start, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    return None;
                }
                let flow = instruction.flow_control();
                let target = instruction.near_branch_target();
                match flow {
                    FlowControl::IndirectBranch => return None,
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
                        if !is_known(target) =>
                    {
                        return None;
                    }
                    FlowControl::UnconditionalBranch
                    | FlowControl::ConditionalBranch
                    | FlowControl::XbeginXabortXend => {
                        outline.targets.insert(target);
                    }
                    _ => {}
                }
                outline.add_writes(&mut factory, &instruction);
                if number == 0 {
                    let is_plain = flow == FlowControl::Next;
                    outline.starts.push((instruction.ip(), is_plain));
                }
            }
        }
        Some(outline)
    }

    fn add_writes(&mut self, factory: &mut InstructionInfoFactory, instruction: &Instruction) {
        let ip = instruction.ip();
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            for register in ARGUMENTS.iter().chain(&CHANGED) {
                self.writers[register.number()].add(ip);
            }
            return;
        }
        let gives_back = |register: &Register| {
            // At the end of a function these get back what its caller had.
            instruction.mnemonic() == Mnemonic::Pop
                && !ARGUMENTS.contains(register)
                && !CHANGED.contains(register)
        };
        for register in written(factory, instruction) {
            if !gives_back(&register) {
                self.writers[register.number()].add(ip);
            }
        }
    }

    /// The instruction that wrote what a register holds at `at`, as the only one of the function that
    /// writes it; `None`: there are several, or the value may be the caller's. By the calling convention
    /// of C.
    pub(super) fn only_writer(&self, register: Register, at: u64) -> Option<u64> {
        let Writer::One(ip) = self.writers.get(register.number()).copied()? else {
            return None;
        };
        if ip >= at
            || self
                .starts
                .binary_search_by_key(&ip, |(at, _)| *at)
                .is_err()
        {
            return None;
        }
        let is_first = || {
            let before = self.starts.iter().take_while(|(at, _)| *at < ip);
            before.clone().all(|(_, is_plain)| *is_plain)
        };
        (!ARGUMENTS.contains(&register) || is_first()).then_some(ip)
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

/// The registers that an instruction writes, as those of 64 bits.
pub(super) fn written(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> impl Iterator<Item = Register> {
    let writes = |access| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
    let used = factory.info(instruction).used_registers().to_vec();
    let used = used.into_iter().filter(move |used| writes(used.access()));
    used.map(|used| used.register().full_register())
        .filter(|register| register.is_gpr64())
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
        let outline = Outline::of(&[(0x1000, code.to_vec())]).expect("all of it is known");
        assert_eq!(outline.before(0x1006), Some(0x1003));
        assert_eq!(outline.before(0x100e), Some(0x100d));
        for unknown in [0x1000, 0x1003, 0x1004, 0x1008, 0x100d, 0x2000] {
            assert_eq!(outline.before(unknown), None, "{unknown:x}");
        }
        let computed = [0x90, 0xff, 0xe0]; // jmp rax
        assert!(Outline::of(&[(0, computed.to_vec())]).is_none());
        assert!(
            Outline::of(&[(0, vec![0x90, 0x06])]).is_none(),
            "no instruction"
        );
    }

    #[test]
    fn the_only_writer_of_a_register_is_known() {
        // 0: lea rdx,[rdi+8]; 4: mov eax,1; 9: lock add [rdx],1; d: sub eax,1; 10: jne 9;
        // 12: mov rbx,rdi; 15: mov rcx,rdi; 18: pop rbx; 19: ret
        let code = [
            0x48, 0x8d, 0x57, 0x08, 0xb8, 1, 0, 0, 0, 0xf0, 0x83, 0x02, 0x01, 0x83, 0xe8, 0x01,
            0x75, 0xf7, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xf9, 0x5b, 0xc3,
        ];
        let outline = Outline::of(&[(0x1000, code.to_vec())]).expect("all of it is known");
        let of = |register| outline.only_writer(register, 0x1019);
        assert_eq!(of(Register::RDX), Some(0x1000));
        assert_eq!(of(Register::RBX), Some(0x1012));
        // Several, none, and one that a jump leads past.
        for unknown in [Register::RAX, Register::RDI, Register::RCX] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
        // Before that, it has another value.
        assert_eq!(outline.only_writer(Register::RBX, 0x1012), None);
        let calls = [0x48, 0x8b, 0x07, 0xe8, 0, 0, 0, 0]; // mov rax,[rdi]; call
        let outline = Outline::of(&[(0, calls.to_vec())]).expect("all of it is known");
        assert_eq!(outline.only_writer(Register::RAX, 8), None);
    }

    #[test]
    fn a_part_that_was_moved_away_jumps_back_into_the_middle() {
        // 0x1000: test eax,eax; 1002: jne 0x2000; 1008: inc rbx; 100b: ret
        let own = [
            0x85, 0xc0, 0x0f, 0x85, 0xf8, 0x0f, 0, 0, 0x48, 0xff, 0xc3, 0xc3,
        ];
        assert!(Outline::of(&[(0x1000, own.to_vec())]).is_none());
        // 0x2000: mov rbx,rax; 2003: jmp 0x100b
        let moved = [0x48, 0x89, 0xc3, 0xe9, 0x03, 0xf0, 0xff, 0xff];
        let parts = [(0x1000, own.to_vec()), (0x2000, moved.to_vec())];
        let outline = Outline::of(&parts).expect("all of it is known");
        assert_eq!(outline.before(0x100b), None);
        assert_eq!(outline.only_writer(Register::RBX, 0x100b), None);
    }

    proptest! {
        #[test]
        fn foreign_code_never_panics(code: Vec<u8>, start: u64, ip: u64) {
            if let Some(outline) = Outline::of(&[(start, code)]) {
                let _ = outline.before(ip);
            }
        }
    }
}
