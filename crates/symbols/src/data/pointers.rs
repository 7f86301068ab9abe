//! What registers point to at an instruction: variables that the compiler keeps in them.

use gimli::{
    AttributeValue, DwLang, EntriesTreeNode, Expression, Operation, Register, constants as dw,
};

use super::{Described, Entry, Place, Pointer};
use crate::dwarf::Reader;

/// No compiler nests scopes deeper.
const MOST_NESTED: usize = 64;

/// What is looked for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    unit: u32,
    instruction: u64,
    register: Register,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
enum Held {
    Nothing,
    One(Pointer),
    /// Variables of types that have nothing to do with each other.
    Several,
}

/// Languages whose functions take arguments in the registers of C, and keep those that C's do.
const AS_C: &[DwLang] = &[
    dw::DW_LANG_C,
    dw::DW_LANG_C89,
    dw::DW_LANG_C99,
    dw::DW_LANG_C11,
    dw::DW_LANG_C17,
    dw::DW_LANG_C_plus_plus,
    dw::DW_LANG_C_plus_plus_03,
    dw::DW_LANG_C_plus_plus_11,
    dw::DW_LANG_C_plus_plus_14,
    dw::DW_LANG_C_plus_plus_17,
    dw::DW_LANG_C_plus_plus_20,
    dw::DW_LANG_Rust,
];

impl Described {
    fn function(&self, instruction: u64) -> Option<Place> {
        let behind = self
            .functions
            .partition_point(|(range, _)| range.start <= instruction);
        let (range, function) = self.functions[..behind].last()?;
        range.contains(&instruction).then_some(*function)
    }

    pub(super) fn calls_as_c(&self, instruction: u64) -> bool {
        let unit = self.function(instruction).map(|function| function.unit);
        let language = unit.and_then(|unit| self.language(unit));
        language.is_some_and(|language| AS_C.contains(&language))
    }

    pub(super) fn pointer(&self, instruction: u64, register: u16) -> Option<Pointer> {
        let function = self.function(instruction)?;
        let wanted = Wanted {
            unit: function.unit,
            instruction,
            register: Register(register),
        };
        let unit = self.unit(function.unit)?;
        let mut tree = unit.entries_tree(Some(function.offset)).ok()?;
        let mut held = Held::Nothing;
        self.look_into(tree.root().ok()?, wanted, 0, &mut held);
        match held {
            Held::One(pointer) => Some(pointer),
            Held::Nothing | Held::Several => None,
        }
    }

    /// Looks into a scope. Of several variables in the register, of which an inner one can be that of a
    /// function that was inlined, the one that points to what has the others' says most.
    fn look_into(
        &self,
        scope: EntriesTreeNode<'_, '_, Reader>,
        wanted: Wanted,
        depth: usize,
        held: &mut Held,
    ) {
        let mut children = scope.children();
        while self.may_look()
            && let Ok(Some(child)) = children.next()
        {
            let entry = child.entry();
            match entry.tag() {
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                    if let Some(found) = self.held(entry, wanted) {
                        *held = self.joined(*held, found);
                    }
                }
                _ if depth < MOST_NESTED && self.has_code(entry, wanted) => {
                    self.look_into(child, wanted, depth + 1, held);
                }
                _ => {}
            }
        }
    }

    fn joined(&self, held: Held, found: Pointer) -> Held {
        let known = match held {
            Held::Nothing => return Held::One(found),
            Held::One(known) => known,
            Held::Several => return held,
        };
        // Where the inner one begins is where the register points, less what that is beyond it.
        let has = |outer: Pointer, inner: Pointer| {
            let byte = outer.bytes.checked_sub(inner.bytes);
            let byte = byte.and_then(|byte| u64::try_from(byte).ok());
            byte.is_some_and(|byte| self.holds(outer.of, byte, inner.of))
        };
        match (has(known, found), has(found, known)) {
            (true, _) => Held::One(known),
            (false, true) => Held::One(found),
            (false, false) => Held::Several,
        }
    }

    fn has_code(&self, scope: &Entry, wanted: Wanted) -> bool {
        if ![dw::DW_TAG_inlined_subroutine, dw::DW_TAG_lexical_block].contains(&scope.tag()) {
            return false;
        }
        let unit = self.unit(wanted.unit);
        let ranges = unit.and_then(|unit| self.dwarf.die_ranges(unit, scope).ok());
        let Some(mut ranges) = ranges else {
            return false;
        };
        while self.may_look()
            && let Ok(Some(range)) = ranges.next()
        {
            if (range.begin..range.end).contains(&wanted.instruction) {
                return true;
            }
        }
        false
    }

    /// What the register points to, if it holds this variable or has it as its base.
    fn held(&self, variable: &Entry, wanted: Wanted) -> Option<Pointer> {
        let unit = self.unit(wanted.unit)?;
        let location = match variable.attr_value(dw::DW_AT_location)? {
            AttributeValue::Exprloc(expression) => expression,
            other => {
                let mut list = self.dwarf.attr_locations(unit, other).ok()??;
                loop {
                    let entry = list.next().ok()?.filter(|_| self.may_look())?;
                    if (entry.range.begin..entry.range.end).contains(&wanted.instruction) {
                        break entry.data;
                    }
                }
            }
        };
        let beyond = self.beyond(location, wanted)?;
        let place = Place {
            unit: wanted.unit,
            offset: variable.offset(),
        };
        let of = self.pointee(self.reference(place, dw::DW_AT_type)?)?;
        Some(Pointer {
            of,
            bytes: beyond.checked_neg()?,
            variable: None,
        })
    }

    /// How much larger the variable's value is than the register's.
    fn beyond(&self, location: Expression<Reader>, wanted: Wanted) -> Option<i64> {
        let unit = self.unit(wanted.unit)?;
        let mut operations = location.operations(unit.encoding());
        let first = operations.next().ok()??;
        let second = operations.next().ok()?;
        let ends = operations.next().ok()?.is_none();
        match (first, second) {
            (Operation::Register { register }, None) if register == wanted.register => Some(0),
            (
                Operation::RegisterOffset {
                    register, offset, ..
                },
                Some(Operation::StackValue),
            ) if register == wanted.register && ends => Some(offset),
            _ => None,
        }
    }

    pub(super) fn load(&self, from: Pointer) -> Option<Pointer> {
        let member = self.member(from.of, self.within(from)?, &mut String::new())?;
        let of = self.pointee(member)?;
        Some(Pointer {
            of,
            bytes: 0,
            variable: None,
        })
    }
}
