//! One instruction: what it changes, as far as it follows from what is known.

use iced_x86::{FlowControl, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

use super::arithmetic::{added, logical, mask, sign_extended, subtracted};
use super::flags::{Flags, is_conditional_move, is_conditional_set};
use super::state::State;
use super::{End, Program, is_idle, repeats};

/// Executes an instruction. Afterwards, the state is that before the next one.
pub(super) fn execute(
    state: &mut State<'_>,
    instruction: &Instruction,
    information: &InstructionInfo,
    program: &mut impl Program,
) -> Result<(), End> {
    let next = instruction.next_ip();
    match instruction.flow_control() {
        FlowControl::Next => {
            let mut step = Step {
                state,
                instruction,
                program,
            };
            if !is_idle(instruction.mnemonic()) && step.interpret() == Interpreted::No {
                step.forget(information);
            }
            state.ip = next;
        }
        FlowControl::UnconditionalBranch if is_near(instruction) => {
            state.ip = instruction.near_branch_target();
        }
        FlowControl::ConditionalBranch => {
            // Others (`loop`, `jrcxz`) have no condition of flags.
            let condition = instruction.condition_code();
            let is_taken = state.flags.holds(condition).ok_or(End::Branch)?;
            state.ip = match is_taken {
                true => instruction.near_branch_target(),
                false => next,
            };
        }
        FlowControl::Call if is_near(instruction) => {
            push(state, 8, Some(next));
            state.ip = instruction.near_branch_target();
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            let mut step = Step {
                state,
                instruction,
                program,
            };
            let target = step.operand(0).ok_or(End::Target)?;
            if instruction.flow_control() == FlowControl::IndirectCall {
                push(state, 8, Some(next));
            }
            state.ip = target;
        }
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            let target = pop(state, 8, program).ok_or(End::Target)?;
            if instruction.op_count() == 1 {
                let sp = state.get(Register::RSP);
                let more = instruction.immediate(0);
                state.set(Register::RSP, sp.map(|sp| sp.wrapping_add(more)));
            }
            state.ip = target;
        }
        FlowControl::Call | FlowControl::Interrupt | FlowControl::Return => {
            return Err(End::Kernel);
        }
        FlowControl::UnconditionalBranch => return Err(End::Target),
        FlowControl::XbeginXabortXend | FlowControl::Exception => return Err(End::Code),
    }
    Ok(())
}

/// A far jump or call has another kind of target. `syscall` is a call without one.
fn is_near(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64
}

fn push(state: &mut State<'_>, size: usize, value: Option<u64>) {
    let sp = state.get(Register::RSP);
    let sp = sp.map(|sp| sp.wrapping_sub(size as u64));
    state.set(Register::RSP, sp);
    state.store(sp, size, value);
}

fn pop(state: &mut State<'_>, size: usize, program: &mut impl Program) -> Option<u64> {
    let sp = state.get(Register::RSP);
    let value = sp.and_then(|sp| state.load(sp, size, program));
    state.set(Register::RSP, sp.map(|sp| sp.wrapping_add(size as u64)));
    value
}

#[derive(Debug, PartialEq, Eq)]
enum Interpreted {
    Yes,
    /// All that the instruction changes is unknown.
    No,
}

struct Step<'i, 's, P> {
    state: &'i mut State<'s>,
    instruction: &'i Instruction,
    program: &'i mut P,
}

impl<P: Program> Step<'_, '_, P> {
    fn interpret(&mut self) -> Interpreted {
        use Mnemonic as M;
        let mnemonic = self.instruction.mnemonic();
        if is_conditional_move(mnemonic) {
            return self.conditional_move();
        }
        if is_conditional_set(mnemonic) {
            let condition = self.instruction.condition_code();
            let value = self.state.flags.holds(condition).map(u64::from);
            return self.write(value);
        }
        match mnemonic {
            M::Mov | M::Movzx => {
                if !self.is_general(0) {
                    return Interpreted::No; // a segment, control or debug register
                }
                let value = self.operand(1);
                self.write(value)
            }
            M::Movsx | M::Movsxd => {
                let value = self.operand(1);
                let bits = self.bits(1);
                self.write(value.map(|value| sign_extended(value, bits)))
            }
            M::Lea => {
                let value = self.address(1);
                self.write(value)
            }
            M::Add | M::Sub | M::Cmp | M::And | M::Or | M::Xor | M::Test => self.arithmetic(),
            M::Inc | M::Dec | M::Neg | M::Not => self.unary(),
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(),
            M::Imul if self.instruction.op_count() > 1 => self.multiply(),
            M::Cdqe => self.extend(Register::EAX, Register::RAX),
            M::Cwde => self.extend(Register::AX, Register::EAX),
            M::Cdq => self.spread_sign(Register::EAX, Register::EDX),
            M::Cqo => self.spread_sign(Register::RAX, Register::RDX),
            M::Push => {
                let value = self.operand(0);
                push(self.state, self.pushed(), value);
                Interpreted::Yes
            }
            M::Pop => {
                let size = self.pushed();
                let value = pop(self.state, size, self.program);
                self.write(value)
            }
            M::Leave => {
                let fp = self.state.get(Register::RBP);
                self.state.set(Register::RSP, fp);
                let value = pop(self.state, 8, self.program);
                self.state.set(Register::RBP, value);
                Interpreted::Yes
            }
            _ => Interpreted::No,
        }
    }

    /// All that it changes is unknown from here on.
    fn forget(&mut self, information: &InstructionInfo) {
        for used in information.used_registers() {
            let is_written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if is_written {
                self.state.set(used.register(), None);
            }
        }
        self.state.flags.forget(self.instruction.rflags_modified());
        for memory in information.used_memory() {
            let is_written = matches!(
                memory.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if !is_written {
                continue;
            }
            let size = memory.memory_size().size();
            let is_one = size > 0 && memory.vsib_size() == 0 && !repeats(self.instruction);
            let address = match memory.segment() {
                Register::FS | Register::GS => None,
                _ => memory.virtual_address(0, |register, _, _| self.state.get(register)),
            };
            self.state.store(address.filter(|_| is_one), size, None);
        }
    }

    fn conditional_move(&mut self) -> Interpreted {
        let condition = self.instruction.condition_code();
        let value = match self.state.flags.holds(condition) {
            Some(true) => self.operand(1),
            // A move of 32 bits clears the upper half in any case.
            Some(false) => self.operand(0),
            None => None,
        };
        self.write(value)
    }

    fn arithmetic(&mut self) -> Interpreted {
        use Mnemonic as M;
        let mnemonic = self.instruction.mnemonic();
        let is_same = self.instruction.op1_kind() == OpKind::Register
            && self.instruction.op0_kind() == OpKind::Register
            && self.instruction.op0_register() == self.instruction.op1_register();
        let (a, b) = match mnemonic {
            M::Xor | M::Sub if is_same => (Some(0), Some(0)),
            _ => (self.operand(0), self.operand(1)),
        };
        let bits = self.bits(0);
        let result = a.zip(b).map(|(a, b)| match mnemonic {
            M::Add => added(a, b, bits),
            M::Sub | M::Cmp => subtracted(a, b, bits),
            M::And | M::Test => logical(a & b, bits),
            M::Or => logical(a | b, bits),
            _ => logical(a ^ b, bits),
        });
        self.state.flags = result.map_or_else(Flags::default, |(_, flags)| flags);
        match mnemonic {
            M::Cmp | M::Test => Interpreted::Yes,
            _ => self.write(result.map(|(value, _)| value)),
        }
    }

    fn unary(&mut self) -> Interpreted {
        let value = self.operand(0);
        let bits = self.bits(0);
        let carry = self.state.flags.carry;
        let keep_carry = |(value, flags): (u64, Flags)| (value, Flags { carry, ..flags });
        let result = match self.instruction.mnemonic() {
            Mnemonic::Not => return self.write(value.map(|value| !value)),
            Mnemonic::Inc => value.map(|value| keep_carry(added(value, 1, bits))),
            Mnemonic::Dec => value.map(|value| keep_carry(subtracted(value, 1, bits))),
            _ => value.map(|value| subtracted(0, value, bits)),
        };
        let keeps = self.instruction.mnemonic() != Mnemonic::Neg;
        let unknown = Flags {
            carry: carry.filter(|_| keeps),
            ..Flags::default()
        };
        self.state.flags = result.map_or(unknown, |(_, flags)| flags);
        self.write(result.map(|(value, _)| value))
    }

    fn shift(&mut self) -> Interpreted {
        let bits = self.bits(0);
        let count = self
            .operand(1)
            .map(|n| n & if bits == 64 { 63 } else { 31 });
        let (Some(value), Some(count)) = (self.operand(0), count) else {
            self.state.flags = Flags::default();
            return self.write(None);
        };
        if count == 0 {
            return self.write(Some(value)); // no flag changes, but the upper half may
        }
        let shift = |value: u64| match self.instruction.mnemonic() {
            Mnemonic::Shr => value.checked_shr(count as u32).unwrap_or(0),
            Mnemonic::Sar => (sign_extended(value, bits) as i64 >> count) as u64,
            _ => value << count,
        };
        let result = shift(value) & mask(bits);
        self.state.flags = Flags::of(result, bits, None, None);
        self.write(Some(result))
    }

    fn multiply(&mut self) -> Interpreted {
        let (a, b) = match self.instruction.op_count() {
            2 => (self.operand(0), self.operand(1)),
            _ => (self.operand(1), self.operand(2)),
        };
        self.state.flags = Flags::default();
        let bits = self.bits(0);
        self.write(a.zip(b).map(|(a, b)| a.wrapping_mul(b) & mask(bits)))
    }

    fn extend(&mut self, from: Register, to: Register) -> Interpreted {
        let bits = from.size() as u32 * 8;
        let value = self.state.get(from);
        let value = value.map(|value| sign_extended(value, bits));
        self.state.set(to, value);
        Interpreted::Yes
    }

    fn spread_sign(&mut self, from: Register, to: Register) -> Interpreted {
        let bits = from.size() as u32 * 8;
        let value = self.state.get(from);
        let sign = value.map(|value| (sign_extended(value, bits) as i64 >> 63) as u64);
        self.state.set(to, sign);
        Interpreted::Yes
    }

    /// Bytes of a push or pop.
    fn pushed(&self) -> usize {
        self.instruction.stack_pointer_increment().unsigned_abs() as usize
    }

    fn is_general(&self, operand: u32) -> bool {
        self.instruction.op_kind(operand) != OpKind::Register
            || self.instruction.op_register(operand).is_gpr()
    }

    fn bits(&self, operand: u32) -> u32 {
        let bytes = match self.instruction.op_kind(operand) {
            OpKind::Register => self.instruction.op_register(operand).size(),
            OpKind::Memory => self.instruction.memory_size().size(),
            _ => 8,
        };
        (bytes as u32 * 8).clamp(8, 64)
    }

    fn address(&self, operand: u32) -> Option<u64> {
        let get = |register, _, _| self.state.get(register);
        self.instruction.virtual_address(operand, 0, get)
    }

    /// The value of an operand, without the bits beyond its size.
    fn operand(&mut self, operand: u32) -> Option<u64> {
        match self.instruction.op_kind(operand) {
            OpKind::Register => self.state.get(self.instruction.op_register(operand)),
            OpKind::Memory => {
                let address = self.address(operand)?;
                let size = self.instruction.memory_size().size();
                self.state.load(address, size, self.program)
            }
            kind if is_immediate(kind) => {
                let bits = self.bits(0);
                Some(self.instruction.immediate(operand) & mask(bits))
            }
            _ => None,
        }
    }

    /// Sets the first operand.
    fn write(&mut self, value: Option<u64>) -> Interpreted {
        match self.instruction.op0_kind() {
            OpKind::Register => self.state.set(self.instruction.op0_register(), value),
            OpKind::Memory => {
                let size = self.instruction.memory_size().size();
                let address = self.address(0);
                self.state.store(address, size, value);
            }
            _ => {}
        }
        Interpreted::Yes
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}
