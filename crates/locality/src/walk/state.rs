//! What is known during a walk: registers, flags, and memory.

use iced_x86::Register;

use super::flags::Flags;
use super::{Program, Registers, StackCopy};

/// Stores that are remembered. A walk rarely makes more.
const MOST_STORES: usize = 64;

/// A store of the walk: where, how many bytes, and what if it is known.
#[derive(Debug, Clone, Copy)]
struct Store {
    address: u64,
    size: usize,
    value: Option<u64>,
}

impl Store {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.size as u64)
    }
}

/// What is known.
#[derive(Debug)]
pub(super) struct State<'s> {
    general: [Option<u64>; 16],
    pub(super) ip: u64,
    pub(super) flags: Flags,
    stack: StackCopy<'s>,
    stores: Vec<Store>,
    /// No store to an unknown address has been made, so memory is what it was, and what `stores` say.
    is_memory_known: bool,
}

impl<'s> State<'s> {
    pub(super) fn new(registers: &Registers, stack: StackCopy<'s>) -> Self {
        Self {
            general: registers.general.map(Some),
            ip: registers.ip,
            flags: Flags::known(registers.flags),
            stack,
            stores: Vec::new(),
            is_memory_known: true,
        }
    }

    /// The value of a register, or the base of a segment.
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        match register {
            Register::DS | Register::ES | Register::SS | Register::CS => return Some(0),
            // Addresses that are relative to the instruction come with it already.
            Register::RIP | Register::EIP => return Some(0),
            _ => {}
        }
        if !register.is_gpr() {
            return None;
        }
        let full = self.general[register.full_register().number()]?;
        Some(match register.size() {
            8 => full,
            4 => full & 0xffff_ffff,
            2 => full & 0xffff,
            _ if is_high(register) => full >> 8 & 0xff,
            _ => full & 0xff,
        })
    }

    /// Sets a register as an instruction does: 32 bits clear the upper half, fewer leave the rest.
    pub(super) fn set(&mut self, register: Register, value: Option<u64>) {
        if !register.is_gpr() {
            return;
        }
        let full = &mut self.general[register.full_register().number()];
        let merged = |mask: u64, shift: u32| {
            let (value, old) = (value?, (*full)?);
            Some(old & !(mask << shift) | (value & mask) << shift)
        };
        *full = match register.size() {
            8 => value,
            4 => value.map(|value| value & 0xffff_ffff),
            2 => merged(0xffff, 0),
            _ if is_high(register) => merged(0xff, 8),
            _ => merged(0xff, 0),
        };
    }

    /// What a load returns.
    pub(super) fn load(
        &self,
        address: u64,
        size: usize,
        program: &mut impl Program,
    ) -> Option<u64> {
        if size == 0 || size > 8 {
            return None;
        }
        let end = address.checked_add(size as u64)?;
        if !self.is_memory_known {
            return program.constant(address, size);
        }
        let overlaps = |store: &&Store| store.address < end && address < store.end();
        if let Some(store) = self.stores.iter().rev().find(overlaps) {
            let exact = (store.address, store.size) == (address, size);
            return store.value.filter(|_| exact);
        }
        let within = address.checked_sub(self.stack.from);
        let within = within.and_then(|at| usize::try_from(at).ok());
        let bytes = within.and_then(|at| self.stack.bytes.get(at..at.checked_add(size)?));
        match bytes {
            Some(bytes) => {
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                Some(u64::from_le_bytes(word))
            }
            None => program.constant(address, size),
        }
    }

    /// A store; without an address, it may have changed anything that can be written.
    pub(super) fn store(&mut self, address: Option<u64>, size: usize, value: Option<u64>) {
        let Some(address) = address.filter(|_| self.stores.len() < MOST_STORES) else {
            self.is_memory_known = false;
            self.stores.clear();
            return;
        };
        let unused = 64 - 8 * size.clamp(1, 8) as u32;
        self.stores.push(Store {
            address,
            size,
            value: value.map(|value| value & u64::MAX >> unused),
        });
    }
}

fn is_high(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}
