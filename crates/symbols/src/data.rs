//! Which member of which variable or type has a byte of memory, as compilers describe it (`-g`, DWARF).
//!
//! Variables of a file have addresses. Memory of the heap has none: what is there follows from the
//! pointer that an instruction uses, if that is a variable's value, or was loaded from a member.

mod pointers;
mod types;

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::ops::Range;

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DebuggingInformationEntry, DwAt, Dwarf, Operation,
    Reader as _, Unit, UnitOffset, constants as dw,
};

use crate::dwarf::{self, Reader};

/// Variables of a file, functions, and units of it, at most.
const MOST_VARIABLES: usize = 1 << 20;
const MOST_FUNCTIONS: usize = 1 << 20;
const MOST_UNITS: usize = 1 << 16;
/// Bytes of a name, at most.
const LONGEST_NAME: usize = 256;
/// Entries that are looked at to answer a question: a file may be made to take forever.
const MOST_ENTRIES: u32 = 1 << 18;
/// The same to find how large a variable is, of which there are many.
const MOST_ENTRIES_OF_VARIABLE: u32 = 1 << 8;
/// Entries that refer to each other, at most: what a file says may go round.
const MOST_STEPS: usize = 32;

type Entry = DebuggingInformationEntry<Reader>;

/// An entry of the descriptions: of a type, as a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    unit: u32,
    offset: UnitOffset<usize>,
}

/// Where something points to: a byte of a variable or of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    of: Place,
    /// The byte's distance from the first one.
    bytes: i64,
    /// The variable, where it is one with an address.
    variable: Option<Place>,
}

impl Pointer {
    /// The same, further on by this number of bytes.
    #[must_use]
    pub fn plus(self, bytes: i64) -> Self {
        Self {
            bytes: self.bytes.wrapping_add(bytes),
            ..self
        }
    }
}

/// What has a byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The variable, or the type that a pointer points to.
    pub of: String,
    /// The way from there: `.member[3]`, or nothing.
    pub way: String,
    /// Its type, as the compiler names it.
    pub kind: String,
}

#[derive(Debug)]
struct Variable {
    addresses: Range<u64>,
    kind: Place,
    entry: Place,
}

/// The descriptions of one build.
#[derive(Debug)]
pub struct Data {
    described: Option<Described>,
}

struct Described {
    dwarf: Dwarf<Reader>,
    units: Vec<Unit<Reader>>,
    /// By address.
    variables: Vec<Variable>,
    /// Functions by the addresses of their code.
    functions: Vec<(Range<u64>, Place)>,
    /// Entries that may still be looked at.
    left: Cell<u32>,
}

impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described")
            .field("variables", &self.variables.len())
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

impl Data {
    /// Reads those of a build, of which these are all files: its program, its separate debug file. The first
    /// that has some counts. Those with more than `most` bytes are left alone.
    #[must_use]
    pub fn of_files(files: impl IntoIterator<Item = File>, most: u64) -> Self {
        let read = |file| dwarf::read(&file, most).map(Described::of);
        let mut all = files.into_iter().filter_map(read);
        let described = all.find(|described| !described.units.is_empty());
        Self { described }
    }

    fn described(&self) -> Option<&Described> {
        let described = self.described.as_ref()?;
        described.left.set(MOST_ENTRIES);
        Some(described)
    }

    /// How many bytes they are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let described = self.described.as_ref();
        described.map_or(0, |described| dwarf::bytes(&described.dwarf))
    }

    /// The variable at an address, in the file's own numbering.
    pub fn variable(&self, address: u64) -> Option<Pointer> {
        self.described()?.variable(address)
    }

    /// What a register (by DWARF's number) points to at an instruction, if it holds a variable then.
    pub fn pointer(&self, instruction: u64, register: u16) -> Option<Pointer> {
        self.described()?.pointer(instruction, register)
    }

    /// Whether the code at an address came from a language whose functions call each other as C's do.
    pub fn calls_as_c(&self, instruction: u64) -> bool {
        let described = self.described();
        described.is_some_and(|described| described.calls_as_c(instruction))
    }

    /// Where the pointer points to that is in the memory there.
    pub fn load(&self, from: Pointer) -> Option<Pointer> {
        self.described()?.load(from)
    }

    /// What is there.
    pub fn field(&self, at: Pointer) -> Option<Field> {
        self.described()?.field(at)
    }
}

impl Described {
    fn of(mut dwarf: Dwarf<Reader>) -> Self {
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let mut described = Self {
            units: Vec::new(),
            variables: Vec::new(),
            functions: Vec::new(),
            left: Cell::new(0),
            dwarf,
        };
        let mut headers = described.dwarf.units();
        while let Ok(Some(header)) = headers.next()
            && described.units.len() < MOST_UNITS
            && let Ok(unit) = described.dwarf.unit(header)
        {
            described.units.push(unit);
        }
        for unit in 0..described.units.len() as u32 {
            described.read_unit(unit);
        }
        described.variables.sort_by_key(|v| v.addresses.start);
        described.functions.sort_by_key(|(range, _)| range.start);
        described
    }

    fn unit(&self, unit: u32) -> Option<&Unit<Reader>> {
        self.units.get(unit as usize)
    }

    /// `false`: enough entries were looked at.
    fn may_look(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    fn entry(&self, place: Place) -> Option<Entry> {
        if !self.may_look() {
            return None;
        }
        self.unit(place.unit)?.entry(place.offset).ok()
    }

    fn read_unit(&mut self, unit: u32) {
        let mut variables = Vec::new();
        let mut functions = Vec::new();
        let of = &self.units[unit as usize];
        let mut entries = of.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let offset = entry.offset();
            let place = Place { unit, offset };
            if entry.tag() == dw::DW_TAG_variable
                && self.variables.len() + variables.len() < MOST_VARIABLES
                && let Some(address) = self.address_of(unit, entry)
            {
                variables.push((place, address));
            }
            if entry.tag() == dw::DW_TAG_subprogram
                && let Ok(mut ranges) = self.dwarf.die_ranges(of, entry)
            {
                while self.functions.len() + functions.len() < MOST_FUNCTIONS
                    && let Ok(Some(range)) = ranges.next()
                {
                    functions.push((range.begin..range.end, place));
                }
            }
        }
        self.functions.extend(functions);
        for (entry, address) in variables {
            self.left.set(MOST_ENTRIES_OF_VARIABLE);
            let kind = self.reference(entry, dw::DW_AT_type);
            let end = kind
                .and_then(|kind| self.size(kind, 0))
                .and_then(|size| address.checked_add(size));
            if let (Some(kind), Some(end)) = (kind, end) {
                let addresses = address..end;
                self.variables.push(Variable {
                    addresses,
                    kind,
                    entry,
                });
            }
        }
    }

    /// Where a variable is that has one address. One of each thread has none.
    fn address_of(&self, unit: u32, entry: &Entry) -> Option<u64> {
        let of = self.unit(unit)?;
        let AttributeValue::Exprloc(expression) = entry.attr_value(dw::DW_AT_location)? else {
            return None;
        };
        let mut operations = expression.operations(of.encoding());
        let address = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.dwarf.address(of, index).ok()?,
            _ => return None,
        };
        // What the linker took out has the address 0.
        (address > 0 && operations.next().ok()?.is_none()).then_some(address)
    }

    fn variable(&self, address: u64) -> Option<Pointer> {
        let behind = self
            .variables
            .partition_point(|v| v.addresses.start <= address);
        let variable = self.variables[..behind].last()?;
        let is_there = variable.addresses.contains(&address);
        is_there.then(|| Pointer {
            of: variable.kind,
            bytes: (address - variable.addresses.start) as i64,
            variable: Some(variable.entry),
        })
    }

    /// The entry that an attribute refers to, of this entry or of the one that it completes.
    fn reference(&self, place: Place, attribute: DwAt) -> Option<Place> {
        self.complete(place, |unit, entry| {
            self.refers(unit, entry.attr_value(attribute)?)
        })
    }

    fn refers(&self, unit: u32, value: AttributeValue<Reader>) -> Option<Place> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Place { unit, offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let start = |u: &Unit<Reader>| u.header.debug_info_offset().map_or(0, |o| o.0);
                let behind = self.units.partition_point(|u| start(u) <= offset.0);
                let unit = behind.checked_sub(1)?;
                let offset = offset.to_unit_offset(&self.units[unit].header)?;
                let unit = unit as u32;
                Some(Place { unit, offset })
            }
            _ => None,
        }
    }

    /// What an entry says, or the one that it completes: a declaration, or what was inlined.
    fn complete<T>(&self, mut place: Place, says: impl Fn(u32, &Entry) -> Option<T>) -> Option<T> {
        for _ in 0..MOST_STEPS {
            let entry = self.entry(place)?;
            if let Some(said) = says(place.unit, &entry) {
                return Some(said);
            }
            let origin = entry
                .attr_value(dw::DW_AT_specification)
                .or_else(|| entry.attr_value(dw::DW_AT_abstract_origin))?;
            place = self.refers(place.unit, origin)?;
        }
        None
    }

    fn name(&self, place: Place) -> Option<String> {
        self.complete(place, |unit, entry| {
            let value = entry.attr_value(dw::DW_AT_name)?;
            let mut name = self.dwarf.attr_string(self.unit(unit)?, value).ok()?;
            if name.len() > LONGEST_NAME {
                name.truncate(LONGEST_NAME).ok()?;
            }
            Some(name.to_string_lossy().ok()?.into_owned())
        })
    }

    fn field(&self, at: Pointer) -> Option<Field> {
        let of = match at.variable {
            Some(variable) => self.name(variable)?,
            None => self.type_name(at.of, 0),
        };
        let mut way = String::new();
        let kind = self.member(at.of, self.within(at)?, &mut way)?;
        let kind = self.type_name(kind, 0);
        Some(Field { of, way, kind })
    }

    /// The byte of the type that is there. `None`: it lies beyond. Then the pointer's type is not that of
    /// the memory: the object is of a type that begins with this one, or has more elements.
    fn within(&self, at: Pointer) -> Option<u64> {
        let byte = u64::try_from(at.bytes).ok()?;
        (byte < self.size(at.of, 0)?).then_some(byte)
    }
}

#[cfg(test)]
mod tests;
