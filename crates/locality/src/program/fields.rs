//! Which member of which type an access meets.
//!
//! A variable of a file has its address. On the heap the type follows from the instruction's address
//! register: it holds a pointer of the source's, or an instruction made its value from one. That
//! instruction is looked for backward, as long as it is certain what the thread executed. Then it is the
//! only one of the function that writes the register, if there is one. (`perf annotate --data-type` has the same aim.)

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use tailscope_process::rooted::FileKey;
use tailscope_symbols::data::{Field, Pointer};

use super::Program;
use super::outline::written;
use crate::walk;

/// Instructions before an access that are looked at, for each register on the way.
const MOST_BEFORE: usize = 24;
/// Registers on the way to a pointer of the source's.
const MOST_STEPS: usize = 6;

/// DWARF's numbers of registers, by the processor's.
const NUMBERS: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// A pointer, and the file whose types it is of.
#[derive(Debug, Clone, Copy)]
struct Typed {
    file: FileKey,
    at: Pointer,
}

impl Typed {
    fn plus(self, bytes: i64) -> Self {
        Self {
            at: self.at.plus(bytes),
            ..self
        }
    }
}

impl Program {
    /// What an instruction accesses at an address, which lies `before` bytes behind the first one that
    /// it accesses; `None`: the files do not say.
    pub fn field(&mut self, ip: u64, address: u64, before: u16) -> Option<Field> {
        let (at, is_any) = match self.variable(address) {
            Some(at) => (at, false),
            None => {
                let instruction = walk::Program::instruction(self, ip)?;
                let operands = 0..instruction.op_count();
                let mut kinds = operands.map(|i| instruction.op_kind(i));
                // Others access the stack, too, or memory that no operand describes.
                if instruction.is_stack_instruction() || !kinds.any(|kind| kind == OpKind::Memory) {
                    return None;
                }
                let at = self.operand(&instruction, 0)?;
                let is_any = instruction.memory_index() != Register::None;
                (at.plus(before.into()), is_any)
            }
        };
        let mut field = self.modules.data(at.file)?.field(at.at)?;
        if is_any {
            // The index may lead from what the pointer points to into any member, but from the first
            // element of an array to another one.
            field.way = any_element(&field.way)?;
        }
        Some(field)
    }

    fn variable(&mut self, address: u64) -> Option<Typed> {
        let (file, at) = self.modules.variable_in_source(address)?;
        Some(Typed { file, at })
    }

    /// Where the memory operand of an instruction is.
    fn operand(&mut self, instruction: &Instruction, step: usize) -> Option<Typed> {
        if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
            return None; // memory of the thread itself
        }
        if instruction.is_ip_rel_memory_operand() {
            return self.variable(instruction.ip_rel_memory_address());
        }
        let base = instruction.memory_base();
        let displacement = instruction.memory_displacement64();
        if base == Register::None {
            return self.variable(displacement);
        }
        let base = self.pointer(instruction.ip(), base, step)?;
        Some(base.plus(displacement as i64))
    }

    /// What a register points to when the instruction at `ip` is executed.
    fn pointer(&mut self, ip: u64, register: Register, step: usize) -> Option<Typed> {
        if step >= MOST_STEPS || !register.is_gpr64() {
            return None;
        }
        let number = NUMBERS[register.number()];
        let mut at = ip;
        for _ in 0..MOST_BEFORE {
            if let Some(found) = self.held(at, number) {
                return Some(found);
            }
            let Some(before) = self.previous(at) else {
                break;
            };
            let mut factory = InstructionInfoFactory::new();
            if written(&mut factory, &before).any(|written| written == register) {
                return self.made_by(&before, register, step + 1);
            }
            at = before.ip();
        }
        if !self.calls_as_c(ip)? {
            return None;
        }
        let writer = self.outline_at(ip)?.only_writer(register, ip)?;
        let writer = walk::Program::instruction(self, writer)?;
        self.made_by(&writer, register, step + 1)
    }

    /// Whether the function at an address takes and keeps registers as those of C do.
    fn calls_as_c(&mut self, ip: u64) -> Option<bool> {
        let mapping = self.mapping(ip)?.clone();
        self.modules.calls_as_c(&mapping, ip)
    }

    /// What the variable points to that a register holds.
    fn held(&mut self, ip: u64, number: u16) -> Option<Typed> {
        let mapping = self.mapping(ip)?.clone();
        let (file, at) = self.modules.pointer(&mapping, ip, number)?;
        Some(Typed { file, at })
    }

    /// What an instruction writes into a register points there.
    fn made_by(&mut self, by: &Instruction, register: Register, step: usize) -> Option<Typed> {
        let is_first = by.op0_kind() == OpKind::Register && by.op0_register() == register;
        match (by.mnemonic(), by.op1_kind()) {
            _ if !is_first => None,
            (Mnemonic::Mov, OpKind::Register) => self.pointer(by.ip(), by.op1_register(), step),
            // Which element it is depends on another register.
            (_, OpKind::Memory) if by.memory_index() != Register::None => None,
            (Mnemonic::Mov, OpKind::Memory) => {
                let from = self.operand(by, step)?;
                let at = self.modules.data(from.file)?.load(from.at)?;
                Some(Typed { at, ..from })
            }
            (Mnemonic::Lea, OpKind::Memory) => self.operand(by, step),
            (Mnemonic::Add, _) => {
                let bytes = i64::try_from(by.try_immediate(1).ok()?).ok()?;
                Some(self.pointer(by.ip(), register, step)?.plus(bytes))
            }
            _ => None,
        }
    }
}

/// The way with `[]` in place of each `[0]`; `None`: it leads to no element, or to another one already,
/// as where the compiler added what is before the array to the index.
fn any_element(way: &str) -> Option<String> {
    let any = way.replace("[0]", "[]");
    let is_first = way.matches('[').count() == any.matches("[]").count();
    (is_first && any != way).then_some(any)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_index_that_is_not_known_is_left_out() {
        let of = |way| super::any_element(way);
        assert_eq!(
            of("[0][0].parts[0].tag").as_deref(),
            Some("[][].parts[].tag")
        );
        for other in [".first", ".parts[0].values[3]", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
