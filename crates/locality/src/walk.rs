//! The memory accesses that a thread is about to make, from its registers and a copy of its stack.
//!
//! Goal: exact addresses of accesses without hardware that samples them. A timer interrupts a thread
//! between two instructions, so the address of the next access follows from the registers.
//! Rejected: the instruction before the interrupt, because many loads overwrite the register that
//! their address came from. Chosen: a walk forward. It interprets instructions as long as their
//! results follow from what is known, and records each access whose address is known. What a load
//! returns is known only from the copy of the thread's stack and from memory that can't be written.
//!
//! A walk ends at a branch whose direction is not known, at a system call, or after [`MOST_STEPS`].
//! Nothing is guessed: each recorded address is the one that the thread uses, unless another thread
//! writes to this thread's stack or the code changes.

mod arithmetic;
mod execute;
mod flags;
mod state;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};
use serde::Serialize;

use execute::execute;
use state::State;

/// Longer walks add accesses of the same loops, and cost time.
pub const MOST_STEPS: usize = 64;
/// Calls that a walk goes into, at most.
const MOST_CALLS: usize = 16;

/// A thread's registers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// `rax`, `rcx`, `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` to `r15`: the order in which the
    /// processor numbers them.
    pub general: [u64; 16],
    /// The next instruction.
    pub ip: u64,
    /// The flags (`rflags`).
    pub flags: u64,
}

/// Part of a thread's stack at the moment of the sample.
#[derive(Debug, Clone, Copy)]
pub struct StackCopy<'s> {
    /// The address of the first byte.
    pub from: u64,
    /// The bytes.
    pub bytes: &'s [u8],
}

/// The program that the thread runs.
pub trait Program {
    /// The instruction at an address; `None` if there is no code, or none that can be read.
    fn instruction(&mut self, address: u64) -> Option<Instruction>;

    /// What memory that can't be written holds; `None` where it can be written or read no more.
    /// `size` is at most 8 bytes.
    fn constant(&mut self, address: u64, size: usize) -> Option<u64>;
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It loads.
    Read,
    /// It stores.
    Write,
    /// One instruction loads, then stores.
    Update,
}

/// One access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The instruction.
    pub ip: u64,
    /// The first byte.
    pub address: u64,
    /// The number of bytes.
    pub size: u32,
    /// What it does.
    pub kind: Kind,
    /// Instructions between the sample and this one.
    pub step: u32,
}

/// Where the walk is in the calls of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames<'f> {
    /// Frames of the sample that the thread has returned from.
    pub left: usize,
    /// Functions that the thread has called since, the outermost first.
    pub called: &'f [u64],
}

/// Why the address of an access is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// An address register holds a value that an earlier instruction of the walk made.
    Register,
    /// It is relative to `fs` or `gs`: memory of the thread itself (TLS), as a rule.
    Segment,
    /// A string instruction that repeats (`rep movs`).
    Repeat,
    /// Addresses come from a vector register (gather, scatter).
    Gather,
    /// A mask decides whether it happens.
    Masked,
    /// Its size is not fixed, as with `xsave`.
    Size,
}

impl Unresolved {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Register,
        Self::Segment,
        Self::Repeat,
        Self::Gather,
        Self::Masked,
        Self::Size,
    ];
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It was long enough.
    Steps,
    /// The direction of a branch is not known.
    Branch,
    /// The target of a jump, call or return is not known.
    Target,
    /// The kernel goes on from here.
    Kernel,
    /// No instruction that can be read is there.
    Code,
}

impl End {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Steps,
        Self::Branch,
        Self::Target,
        Self::Kernel,
        Self::Code,
    ];
}

/// Walks; keeps memory from one walk to the next.
#[derive(Debug)]
pub struct Walker {
    information: InstructionInfoFactory,
    called: Vec<u64>,
}

impl Default for Walker {
    fn default() -> Self {
        Self {
            information: InstructionInfoFactory::new(),
            called: Vec::new(),
        }
    }
}

impl Walker {
    /// The accesses of the instruction that was executed right before the sample. An access whose
    /// address registers the instruction has changed is not among them.
    pub fn before(
        &mut self,
        registers: &Registers,
        instruction: &Instruction,
        mut resolved: impl FnMut(Access),
    ) {
        let state = State::new(
            registers,
            StackCopy {
                from: 0,
                bytes: &[],
            },
        );
        let information = self.information.info(instruction);
        let is_changed = |register: Register| {
            information.used_registers().iter().any(|used| {
                let is_same = used.register().full_register() == register.full_register();
                is_same && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            })
        };
        for memory in information.used_memory() {
            let of_address = [memory.base(), memory.index()];
            if of_address
                .into_iter()
                .any(|r| r != Register::None && is_changed(r))
            {
                continue;
            }
            if let Some(Ok(access)) = access(&state, instruction, memory) {
                resolved(access);
            }
        }
    }

    /// Walks from a sample. Calls `resolved` for each access with a known address, and `unresolved`
    /// for each other one.
    pub fn walk(
        &mut self,
        registers: &Registers,
        stack: StackCopy<'_>,
        program: &mut impl Program,
        mut resolved: impl FnMut(Access, Frames<'_>),
        mut unresolved: impl FnMut(Unresolved),
    ) -> End {
        let mut state = State::new(registers, stack);
        let mut left = 0;
        self.called.clear();
        for step in 0..MOST_STEPS as u32 {
            let Some(instruction) = program.instruction(state.ip) else {
                return End::Code;
            };
            let information = self.information.info(&instruction);
            for memory in information.used_memory() {
                match access(&state, &instruction, memory) {
                    Some(Ok(access)) => {
                        let called = &self.called;
                        resolved(Access { step, ..access }, Frames { left, called });
                    }
                    Some(Err(why)) => unresolved(why),
                    None => {}
                }
            }
            let from = state.ip;
            if let Err(end) = execute(&mut state, &instruction, information, program) {
                return end;
            }
            match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => {
                    if self.called.len() == MOST_CALLS {
                        return End::Steps;
                    }
                    self.called.push(state.ip);
                }
                FlowControl::Return if self.called.pop().is_none() => left += 1,
                // A jump to itself waits for something that the walk does not see.
                FlowControl::UnconditionalBranch if state.ip == from => return End::Steps,
                _ => {}
            }
        }
        End::Steps
    }
}

/// The access that an instruction makes at one of its memory operands; `None`: it makes none.
fn access(
    state: &State<'_>,
    instruction: &Instruction,
    memory: &UsedMemory,
) -> Option<Result<Access, Unresolved>> {
    let kind = match memory.access() {
        OpAccess::Read => Kind::Read,
        OpAccess::Write => Kind::Write,
        OpAccess::ReadWrite => Kind::Update,
        // The processor writes back the old value where the comparison fails.
        OpAccess::ReadCondWrite => Kind::Update,
        OpAccess::CondRead if is_conditional_move(instruction) => Kind::Read,
        OpAccess::CondRead | OpAccess::CondWrite if repeats(instruction) => {
            return Some(Err(Unresolved::Repeat));
        }
        OpAccess::CondRead | OpAccess::CondWrite => return Some(Err(Unresolved::Masked)),
        OpAccess::None | OpAccess::NoMemAccess => return None,
    };
    Some(address(state, instruction, memory).map(|address| Access {
        ip: instruction.ip(),
        address,
        size: memory.memory_size().size() as u32,
        kind,
        step: 0,
    }))
}

fn address(
    state: &State<'_>,
    instruction: &Instruction,
    memory: &UsedMemory,
) -> Result<u64, Unresolved> {
    if repeats(instruction) {
        return Err(Unresolved::Repeat);
    }
    if memory.vsib_size() != 0 {
        return Err(Unresolved::Gather);
    }
    if matches!(memory.segment(), Register::FS | Register::GS) {
        return Err(Unresolved::Segment);
    }
    if memory.memory_size().size() == 0 {
        return Err(Unresolved::Size);
    }
    let found = memory.virtual_address(0, |register, _, _| state.get(register));
    found.ok_or(Unresolved::Register)
}

/// A string instruction that repeats: it can be interrupted in its middle.
pub(crate) fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    // A conditional move loads in any case.
    flags::is_conditional_move(instruction.mnemonic())
}

/// Instructions that do nothing that a walk looks at.
fn is_idle(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Nop
            | Mnemonic::Endbr64
            | Mnemonic::Endbr32
            | Mnemonic::Pause
            | Mnemonic::Lfence
            | Mnemonic::Mfence
            | Mnemonic::Sfence
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetchw
    )
}
/// Whether an instruction loads or stores by an operand: not what a call, a return, a push or a pop
/// does on the stack, which is at hand.
#[must_use]
pub fn accesses_memory(instruction: &Instruction) -> bool {
    use Mnemonic::{Lea, Nop, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw};
    let waits_for_none = matches!(
        instruction.mnemonic(),
        Lea | Nop | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchw
    );
    let mut kinds = instruction.op_kinds();
    !waits_for_none && kinds.any(|kind| kind == OpKind::Memory)
}
