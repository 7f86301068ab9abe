//! The flags, and the conditions that jumps and moves ask for.

use iced_x86::{ConditionCode, Mnemonic, RflagsBits};

/// Each flag, if it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) carry: Option<bool>,
    pub(super) parity: Option<bool>,
    pub(super) zero: Option<bool>,
    pub(super) sign: Option<bool>,
    pub(super) overflow: Option<bool>,
}

impl Flags {
    /// All of them, from `rflags`.
    pub(super) fn known(register: u64) -> Self {
        let bit = |number: u32| Some(register >> number & 1 == 1);
        Self {
            carry: bit(0),
            parity: bit(2),
            zero: bit(6),
            sign: bit(7),
            overflow: bit(11),
        }
    }

    /// Zero, sign and parity of a result; the others as given.
    pub(super) fn of(result: u64, bits: u32, carry: Option<bool>, overflow: Option<bool>) -> Self {
        Self {
            carry,
            parity: Some((result as u8).count_ones().is_multiple_of(2)),
            zero: Some(result == 0),
            sign: Some(result >> (bits - 1) & 1 == 1),
            overflow,
        }
    }

    /// Forgets those that an instruction changes (`RflagsBits`).
    pub(super) fn forget(&mut self, changed: u32) {
        let flags = [
            (RflagsBits::CF, &mut self.carry),
            (RflagsBits::PF, &mut self.parity),
            (RflagsBits::ZF, &mut self.zero),
            (RflagsBits::SF, &mut self.sign),
            (RflagsBits::OF, &mut self.overflow),
        ];
        for (bit, flag) in flags {
            if changed & bit != 0 {
                *flag = None;
            }
        }
    }

    /// Whether a condition holds.
    pub(super) fn holds(&self, condition: ConditionCode) -> Option<bool> {
        let less = || Some(self.sign? != self.overflow?);
        Some(match condition {
            ConditionCode::None => return None,
            ConditionCode::o => self.overflow?,
            ConditionCode::no => !self.overflow?,
            ConditionCode::b => self.carry?,
            ConditionCode::ae => !self.carry?,
            ConditionCode::e => self.zero?,
            ConditionCode::ne => !self.zero?,
            ConditionCode::be => either(self.carry, self.zero)?,
            ConditionCode::a => !either(self.carry, self.zero)?,
            ConditionCode::s => self.sign?,
            ConditionCode::ns => !self.sign?,
            ConditionCode::p => self.parity?,
            ConditionCode::np => !self.parity?,
            ConditionCode::l => less()?,
            ConditionCode::ge => !less()?,
            ConditionCode::le => either(self.zero, less())?,
            ConditionCode::g => !either(self.zero, less())?,
        })
    }
}

/// `or` of what may be unknown: one that is true is enough.
fn either(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// `cmovcc`.
pub(super) fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmove
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovne
            | M::Cmovno
            | M::Cmovnp
            | M::Cmovns
            | M::Cmovo
            | M::Cmovp
            | M::Cmovs
    )
}

/// `setcc`.
pub(super) fn is_conditional_set(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Seta
            | M::Setae
            | M::Setb
            | M::Setbe
            | M::Sete
            | M::Setg
            | M::Setge
            | M::Setl
            | M::Setle
            | M::Setne
            | M::Setno
            | M::Setnp
            | M::Setns
            | M::Seto
            | M::Setp
            | M::Sets
    )
}
