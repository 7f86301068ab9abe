//! Types: how large they are, how they are called, and which of their members has a byte.

use std::ops::Range;

use gimli::{AttributeValue, DwAt, DwLang, DwTag, constants as dw};

use super::{Described, Entry, MOST_STEPS, Place};

/// Members of a type that are looked at.
const MOST_MEMBERS: usize = 1 << 12;
/// Members that share a byte and are named: a union's, or bits.
const MOST_NAMED: usize = 4;
/// Types that are a number to their users, whatever is in them, if they have no more bytes than that.
const MOST_WHOLE: u64 = 16;
const WHOLE: &[&str] = &["Atomic", "atomic<"];

const C: &[DwLang] = &[
    dw::DW_LANG_C,
    dw::DW_LANG_C89,
    dw::DW_LANG_C99,
    dw::DW_LANG_C11,
    dw::DW_LANG_C17,
];

struct Member {
    bytes: Range<u64>,
    kind: Place,
    /// `None`: its own members count as those of its type.
    name: Option<String>,
}

impl Described {
    /// A type without other names and qualifiers of it.
    fn plain(&self, mut place: Place) -> Option<(Place, Entry)> {
        for _ in 0..MOST_STEPS {
            let entry = self.entry(place)?;
            if !is_other_name(entry.tag()) {
                return Some((place, entry));
            }
            place = self.reference(place, dw::DW_AT_type)?;
        }
        None
    }

    pub(super) fn pointee(&self, kind: Place) -> Option<Place> {
        let (place, entry) = self.plain(kind)?;
        let points = is_pointer(entry.tag());
        points
            .then(|| self.reference(place, dw::DW_AT_type))
            .flatten()
    }

    /// Bytes of a type.
    pub(super) fn size(&self, kind: Place, depth: usize) -> Option<u64> {
        let (place, entry) = self.plain(kind).filter(|_| depth < MOST_STEPS)?;
        if let Some(bytes) = self.number(place, dw::DW_AT_byte_size) {
            return Some(bytes);
        }
        if is_pointer(entry.tag()) {
            return Some(u64::from(self.unit(place.unit)?.encoding().address_size));
        }
        let of =
            (entry.tag() == dw::DW_TAG_array_type).then(|| self.reference(place, dw::DW_AT_type));
        let of = self.size(of??, depth + 1)?;
        self.counts(place)
            .into_iter()
            .try_fold(of, u64::checked_mul)
    }

    fn number(&self, place: Place, attribute: DwAt) -> Option<u64> {
        let value = |_, entry: &Entry| entry.attr_value(attribute)?.udata_value();
        self.complete(place, value)
    }

    /// Elements of an array, in each of its dimensions.
    fn counts(&self, array: Place) -> Vec<u64> {
        let mut counts = Vec::new();
        self.each_child(array, |entry| {
            if entry.tag() == dw::DW_TAG_subrange_type {
                let number = |name| entry.attr_value(name).and_then(|v| v.udata_value());
                let count = number(dw::DW_AT_count);
                let last = number(dw::DW_AT_upper_bound);
                counts.push(count.or_else(|| last?.checked_add(1)).unwrap_or(0));
            }
        });
        counts
    }

    fn each_child(&self, place: Place, mut each: impl FnMut(&Entry)) {
        let tree = self
            .unit(place.unit)
            .and_then(|unit| unit.entries_tree(Some(place.offset)).ok());
        let Some(mut tree) = tree else { return };
        let Ok(root) = tree.root() else { return };
        let mut children = root.children();
        for _ in 0..MOST_MEMBERS {
            match children.next() {
                Ok(Some(child)) if self.may_look() => each(child.entry()),
                _ => return,
            }
        }
    }

    /// The innermost type that has a byte of `kind`. The way there is added to `name`.
    pub(super) fn member(
        &self,
        mut kind: Place,
        mut byte: u64,
        name: &mut String,
    ) -> Option<Place> {
        for _ in 0..MOST_STEPS {
            let (place, entry) = self.plain(kind)?;
            match entry.tag() {
                dw::DW_TAG_array_type => {
                    let of = self.reference(place, dw::DW_AT_type)?;
                    let size = self.size(of, 0).filter(|size| *size > 0)?;
                    add_indices(name, byte / size, &self.counts(place));
                    (kind, byte) = (of, byte % size);
                }
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                    if self.is_whole(place) {
                        return Some(kind);
                    }
                    let members = self.members_at(place, byte);
                    match &members[..] {
                        [] => return Some(kind), // padding
                        [one] => {
                            if let Some(of) = &one.name {
                                name.push('.');
                                name.push_str(of);
                            }
                            (kind, byte) = (one.kind, byte - one.bytes.start);
                        }
                        [first, ..] => {
                            let Some(names) = names_of(&members) else {
                                return Some(kind);
                            };
                            name.push('.');
                            name.push_str(&names);
                            let is_union = entry.tag() == dw::DW_TAG_union_type;
                            return Some(if is_union { kind } else { first.kind });
                        }
                    }
                }
                _ => return Some(kind),
            }
        }
        None
    }

    /// Whether a byte of `outer` is the first one of an `inner` in it.
    pub(super) fn holds(&self, outer: Place, byte: u64, inner: Place) -> bool {
        let Some((inner, _)) = self.plain(inner) else {
            return false;
        };
        let (mut kind, mut byte) = (outer, byte);
        for _ in 0..MOST_STEPS {
            let Some((place, entry)) = self.plain(kind) else {
                return false;
            };
            if place == inner && byte == 0 {
                return true;
            }
            let members = match entry.tag() {
                dw::DW_TAG_array_type => {
                    let of = self.reference(place, dw::DW_AT_type);
                    let size = of.and_then(|of| self.size(of, 0)).filter(|size| *size > 0);
                    let (Some(of), Some(size)) = (of, size) else {
                        return false;
                    };
                    (kind, byte) = (of, byte % size);
                    continue;
                }
                _ => self.members_at(place, byte),
            };
            let [one] = &members[..] else {
                return false;
            };
            (kind, byte) = (one.kind, byte - one.bytes.start);
        }
        false
    }

    fn is_whole(&self, kind: Place) -> bool {
        if self.size(kind, 0).is_none_or(|size| size > MOST_WHOLE) {
            return false;
        }
        let name = self.name(kind).unwrap_or_default();
        WHOLE.iter().any(|whole| name.starts_with(whole))
    }

    /// The members that have a byte. One that has no members itself, such as a base of C++, has none.
    fn members_at(&self, of: Place, byte: u64) -> Vec<Member> {
        let mut members = Vec::new();
        let is_union = self
            .entry(of)
            .is_some_and(|of| of.tag() == dw::DW_TAG_union_type);
        self.each_child(of, |entry| {
            let place = Place {
                offset: entry.offset(),
                ..of
            };
            let member = self.member_of(place, entry, is_union);
            members.extend(member.filter(|member| member.bytes.contains(&byte)));
        });
        members
    }

    fn member_of(&self, place: Place, entry: &Entry, of_union: bool) -> Option<Member> {
        let is_base = entry.tag() == dw::DW_TAG_inheritance;
        if entry.tag() != dw::DW_TAG_member && !is_base {
            return None;
        }
        // Of the class, and not of an object of it.
        if entry.has_attr(dw::DW_AT_external) || entry.has_attr(dw::DW_AT_declaration) {
            return None;
        }
        let number = |name| entry.attr_value(name).map(|value| value.udata_value());
        let kind = self.reference(place, dw::DW_AT_type)?;
        let bits = (
            number(dw::DW_AT_data_bit_offset),
            number(dw::DW_AT_bit_size),
        );
        let bytes = match bits {
            (Some(Some(first)), Some(Some(bits))) => {
                first / 8..first.checked_add(bits)?.div_ceil(8)
            }
            _ => {
                // Where it is computed at run time it is not known.
                let start = match number(dw::DW_AT_data_member_location) {
                    Some(start) => start?,
                    None if of_union => 0,
                    None => return None,
                };
                start..start.checked_add(self.size(kind, 0)?)?
            }
        };
        if is_base && self.is_empty(kind) {
            return None;
        }
        let name = (!is_base).then(|| self.name(place)).flatten();
        Some(Member { bytes, kind, name })
    }

    /// Whether a class has nothing in it: it has a byte then, which others may have, too.
    fn is_empty(&self, kind: Place) -> bool {
        let Some((place, _)) = self.plain(kind) else {
            return false;
        };
        let mut is_empty = self.size(place, 0) == Some(1);
        self.each_child(place, |entry| {
            is_empty &= entry.tag() != dw::DW_TAG_member;
        });
        is_empty
    }

    /// How the compiler names a type.
    pub(super) fn type_name(&self, kind: Place, depth: usize) -> String {
        let Some(entry) = self.entry(kind).filter(|_| depth < MOST_STEPS) else {
            return "?".to_owned();
        };
        let of = || match self.reference(kind, dw::DW_AT_type) {
            Some(of) => self.type_name(of, depth + 1),
            None => "void".to_owned(),
        };
        let named = || self.name(kind);
        let in_c = |word: &str| {
            let name = named().unwrap_or_else(|| "(anonymous)".to_owned());
            match self.is_c(kind.unit) {
                true => format!("{word} {name}"),
                false => name,
            }
        };
        match entry.tag() {
            dw::DW_TAG_pointer_type => named().unwrap_or_else(|| format!("{} *", of())),
            dw::DW_TAG_reference_type => format!("{} &", of()),
            dw::DW_TAG_rvalue_reference_type => format!("{} &&", of()),
            dw::DW_TAG_structure_type => in_c("struct"),
            dw::DW_TAG_union_type => in_c("union"),
            dw::DW_TAG_enumeration_type => in_c("enum"),
            dw::DW_TAG_array_type => {
                let counts = self.counts(kind).into_iter();
                let counts: String = counts.map(|count| format!("[{count}]")).collect();
                of() + &counts
            }
            dw::DW_TAG_subroutine_type => "function".to_owned(),
            dw::DW_TAG_typedef => named().unwrap_or_else(of),
            tag if is_other_name(tag) => of(),
            _ => named().unwrap_or_else(|| "?".to_owned()),
        }
    }

    fn is_c(&self, unit: u32) -> bool {
        let language = self.language(unit);
        language.is_some_and(|language| C.contains(&language))
    }

    pub(super) fn language(&self, unit: u32) -> Option<DwLang> {
        let unit = self.unit(unit)?;
        let root = unit.entry(unit.header.root_offset()).ok()?;
        match root.attr_value(dw::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }
}

/// `a|b`; `None`: one has no name, so that what is in it is not known.
fn names_of(members: &[Member]) -> Option<String> {
    let names: Vec<&str> = members
        .iter()
        .map(|member| member.name.as_deref())
        .collect::<Option<_>>()?;
    let first = names[..names.len().min(MOST_NAMED)].join("|");
    let more = if names.len() > MOST_NAMED { "|…" } else { "" };
    Some(first + more)
}

/// `[2][3]`, of the element with this number.
fn add_indices(name: &mut String, element: u64, counts: &[u64]) {
    let mut rest = element;
    let mut indices = Vec::new();
    for count in counts.iter().skip(1).rev() {
        indices.push(rest % (*count).max(1));
        rest /= (*count).max(1);
    }
    indices.push(rest);
    for index in indices.iter().rev() {
        name.push_str(&format!("[{index}]"));
    }
}

fn is_other_name(tag: DwTag) -> bool {
    [
        dw::DW_TAG_typedef,
        dw::DW_TAG_const_type,
        dw::DW_TAG_volatile_type,
        dw::DW_TAG_restrict_type,
        dw::DW_TAG_atomic_type,
    ]
    .contains(&tag)
}

fn is_pointer(tag: DwTag) -> bool {
    [
        dw::DW_TAG_pointer_type,
        dw::DW_TAG_reference_type,
        dw::DW_TAG_rvalue_reference_type,
    ]
    .contains(&tag)
}
