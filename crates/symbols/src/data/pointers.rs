//! What registers point to at an instruction: variables that the compiler keeps in them.

use gimli::{AttributeValue, EntriesTreeNode, Expression, Operation, Register, constants as dw};

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

impl Described {
    pub(super) fn pointer(&self, instruction: u64, register: u16) -> Option<Pointer> {
        let behind = self
            .code
            .partition_point(|(range, _)| range.start <= instruction);
        let (range, unit) = self.code[..behind].last()?;
        let wanted = Wanted {
            unit: *unit,
            instruction,
            register: Register(register),
        };
        let of = range.contains(&instruction).then(|| self.unit(*unit));
        let mut tree = of??.entries_tree(None).ok()?;
        let mut found = None;
        self.look_into(tree.root().ok()?, wanted, 0, &mut found);
        found
    }

    /// Looks into a scope. Of several variables in the register, of which an inner one can be that of a
    /// function that was inlined, the one that points to the largest type says most.
    fn look_into(
        &self,
        scope: EntriesTreeNode<'_, '_, Reader>,
        wanted: Wanted,
        depth: usize,
        found: &mut Option<Pointer>,
    ) {
        let mut children = scope.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            match entry.tag() {
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                    let size = |of: Pointer| self.size(of.of, 0).unwrap_or(0);
                    let held = self.held(entry, wanted);
                    let is_larger = |held: &Pointer| found.is_none_or(|f| size(*held) > size(f));
                    *found = held.filter(is_larger).or(*found);
                }
                _ if depth < MOST_NESTED && self.has_code(entry, wanted) => {
                    self.look_into(child, wanted, depth + 1, found);
                }
                _ => {}
            }
        }
    }

    fn has_code(&self, scope: &Entry, wanted: Wanted) -> bool {
        match scope.tag() {
            // Their functions have the code.
            dw::DW_TAG_compile_unit
            | dw::DW_TAG_namespace
            | dw::DW_TAG_class_type
            | dw::DW_TAG_structure_type => true,
            dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine | dw::DW_TAG_lexical_block => {
                let unit = self.unit(wanted.unit);
                let ranges = unit.and_then(|unit| self.dwarf.die_ranges(unit, scope).ok());
                let Some(mut ranges) = ranges else {
                    return false;
                };
                while let Ok(Some(range)) = ranges.next() {
                    if (range.begin..range.end).contains(&wanted.instruction) {
                        return true;
                    }
                }
                false
            }
            _ => false,
        }
    }

    /// What the register points to, if it holds this variable or has it as its base.
    fn held(&self, variable: &Entry, wanted: Wanted) -> Option<Pointer> {
        let unit = self.unit(wanted.unit)?;
        let location = match variable.attr_value(dw::DW_AT_location)? {
            AttributeValue::Exprloc(expression) => expression,
            other => {
                let mut list = self.dwarf.attr_locations(unit, other).ok()??;
                loop {
                    let entry = list.next().ok()??;
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
        let size = self.size(from.of, 0).filter(|size| *size > 0)?;
        let bytes = u64::try_from(from.bytes).ok()? % size;
        let member = self.member(from.of, bytes, &mut String::new())?;
        let of = self.pointee(member)?;
        Some(Pointer {
            of,
            bytes: 0,
            variable: None,
        })
    }
}
