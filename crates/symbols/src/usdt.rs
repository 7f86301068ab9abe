//! The USDT probes of a program file: notes in its section `.note.stapsdt`.

use std::io;

use tailscope_signals::little_endian::u64_at;

use crate::elf::{self, Elf, SHT_NOTE};

/// A note takes some 80 bytes, and the program with the most probes, a JVM, has some thousand.
const MOST_BYTES: u64 = 16 << 20;

/// A place in the code that carries a probe, by addresses in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Who made it.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Where its arguments are, as the assembler wrote it: `-8@%rax 4@$3`.
    pub arguments: String,
    /// Of its instruction, as the linker wrote it.
    pub address: u64,
    /// Of the section `.stapsdt.base` when it did: a tool that moved the file's code since (prelink)
    /// moved that too, and leaves notes as they are.
    pub base: u64,
    /// Of the word that counts who listens; 0: it has none.
    pub semaphore: u64,
}

/// Where the first argument of a probe is when its instruction runs, for the kernel's programs
/// (`sdk_slot.h`): from the lowest bit on its kind in 8 bits, how far to shift it up and back down
/// for its width in 8 (with 128 for a signed one), the register's place in `pt_regs` in 16, and in
/// 32 a constant or what is added to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Argument(pub u64);

const CONSTANT: u64 = 0;
const REGISTER: u64 = 1;
const MEMORY: u64 = 2;
const SIGNED: u64 = 128;

impl Argument {
    /// From a note: `-8@%rax`, `8@-16(%rbp)` or `-8@$5`; for arm64 `-8@x0`, `-8@[sp, 16]` or `8@5`.
    /// `None`: it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (width, place) = text.split_once('@')?;
        let width: i64 = width.parse().ok()?;
        let shift = match width.unsigned_abs() {
            bytes @ (1 | 2 | 4 | 8) => 64 - 8 * bytes,
            _ => return None,
        };
        let shift = shift | if width < 0 { SIGNED } else { 0 };
        let (kind, register, value) = place_of(place)?;
        let value = u64::from(i32::try_from(value).ok()? as u32);
        Some(Self(kind | shift << 8 | register << 16 | value << 32))
    }
}

/// The kind, the register's place and the number of the first argument of a text.
#[cfg(target_arch = "x86_64")]
fn place_of(text: &str) -> Option<(u64, u64, i64)> {
    let text = text.split_whitespace().next()?;
    if let Some(number) = text.strip_prefix('$') {
        return Some((CONSTANT, 0, number_of(number)?));
    }
    if let Some(name) = text.strip_prefix('%') {
        return Some((REGISTER, register(name)?, 0));
    }
    let (number, name) = text.strip_suffix(')')?.split_once("(%")?;
    let number = if number.is_empty() {
        0
    } else {
        number_of(number)?
    };
    Some((MEMORY, register(name)?, number))
}

/// As above, for arm64: with a space within its brackets.
#[cfg(target_arch = "aarch64")]
fn place_of(text: &str) -> Option<(u64, u64, i64)> {
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.split(']').next()?;
        let (name, number) = inside.split_once(',').unwrap_or((inside, "0"));
        return Some((MEMORY, register(name.trim())?, number_of(number.trim())?));
    }
    let text = text.split_whitespace().next()?;
    match register(text) {
        Some(place) => Some((REGISTER, place, 0)),
        None => Some((CONSTANT, 0, number_of(text.trim_start_matches('#'))?)),
    }
}

/// A number as assemblers write them: `5`, `-16`, `0x10`.
fn number_of(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(sign * value)
}

/// The place of a register in `struct pt_regs`, in bytes. Parts of one have its place.
#[cfg(target_arch = "x86_64")]
fn register(name: &str) -> Option<u64> {
    /// In the order of the structure, each with the names of its parts.
    const ALL: [&[&str]; 20] = [
        &["r15", "r15d", "r15w", "r15b"],
        &["r14", "r14d", "r14w", "r14b"],
        &["r13", "r13d", "r13w", "r13b"],
        &["r12", "r12d", "r12w", "r12b"],
        &["rbp", "ebp", "bp", "bpl"],
        &["rbx", "ebx", "bx", "bl"],
        &["r11", "r11d", "r11w", "r11b"],
        &["r10", "r10d", "r10w", "r10b"],
        &["r9", "r9d", "r9w", "r9b"],
        &["r8", "r8d", "r8w", "r8b"],
        &["rax", "eax", "ax", "al"],
        &["rcx", "ecx", "cx", "cl"],
        &["rdx", "edx", "dx", "dl"],
        &["rsi", "esi", "si", "sil"],
        &["rdi", "edi", "di", "dil"],
        &[],
        &["rip", "eip"],
        &[],
        &[],
        &["rsp", "esp", "sp", "spl"],
    ];
    let place = ALL.iter().position(|names| names.contains(&name))?;
    Some(place as u64 * 8)
}

/// As above, for arm64: 31 registers, then the stack pointer.
#[cfg(target_arch = "aarch64")]
fn register(name: &str) -> Option<u64> {
    let number = match name {
        "sp" => 31,
        _ => name.strip_prefix(['x', 'w'])?.parse::<u64>().ok()?,
    };
    (number <= 31).then_some(number * 8)
}

/// Where a probe is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// Of its instruction.
    pub offset: u64,
    /// Of its semaphore; 0: it has none.
    pub semaphore: u64,
}

/// All of them, each place of each.
pub fn notes(elf: &Elf<'_>) -> io::Result<Vec<Note>> {
    let Some(section) = elf.section(".note.stapsdt").filter(|s| s.kind == SHT_NOTE) else {
        return Ok(Vec::new());
    };
    Ok(notes_in(&elf.data(section, MOST_BYTES)?))
}

fn notes_in(section: &[u8]) -> Vec<Note> {
    elf::notes_in(section)
        .filter(|note| note.name() == b"stapsdt")
        .filter_map(|note| described(note.desc()))
        .collect()
}

/// Where in the file a note's probe is. `None`: it is not loaded from the file.
#[must_use]
pub fn spot(elf: &Elf<'_>, note: &Note) -> Option<Spot> {
    let base = elf.section(".stapsdt.base").map(|section| section.address);
    let moved = match base {
        Some(base) if note.base != 0 => base.wrapping_sub(note.base),
        _ => 0,
    };
    Some(Spot {
        offset: elf.offset_of(note.address.wrapping_add(moved))?,
        semaphore: match note.semaphore {
            0 => 0,
            address => elf.offset_of(address)?,
        },
    })
}

/// What a probe's note says: three addresses, then three strings.
fn described(bytes: &[u8]) -> Option<Note> {
    let mut strings = bytes.get(24..)?.split(|byte| *byte == 0);
    let mut text = || Some(String::from_utf8_lossy(strings.next()?).into_owned());
    Some(Note {
        provider: text()?,
        name: text()?,
        arguments: text().unwrap_or_default(),
        address: u64_at(bytes, 0),
        base: u64_at(bytes, 8),
        semaphore: u64_at(bytes, 16),
    })
}

/// Where in the file those notes' instructions are, each with where its semaphore is (0: it has none).
/// `None`: one of them is not loaded from it.
#[must_use]
pub fn places(elf: &Elf<'_>, notes: &[&Note]) -> Option<Vec<(u64, u64)>> {
    let place = |note: &&Note| spot(elf, note).map(|spot| (spot.offset, spot.semaphore));
    notes.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;
    use crate::elf::STT_FUNC;

    fn note(provider: &str, name: &str) -> Vec<u8> {
        let described = [
            &[0; 24],
            format!("{provider}\0{name}\0-8@%rax\0").as_bytes(),
        ]
        .concat();
        let mut bytes = Vec::new();
        for word in [8, described.len() as u32, 3] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"stapsdt\0");
        bytes.extend(&described);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// The instruction at the beginning of a function of ours, and the word that a semaphore could be.
    #[test]
    fn a_note_is_where_its_instruction_is_loaded_from() {
        let file = File::open("/proc/self/exe").expect("our own file");
        let elf = Elf::of(&file).expect("it is one");
        let mut main = 0;
        elf.symbols(&[STT_FUNC], |symbol| {
            if symbol.name == "main" {
                main = symbol.address;
            }
        })
        .expect("read");
        let offset = elf.offset_of(main).expect("loaded");
        let spot = |address, semaphore| {
            spot(
                &elf,
                &Note {
                    provider: "p".into(),
                    name: "n".into(),
                    arguments: String::new(),
                    address,
                    base: 0,
                    semaphore,
                },
            )
        };
        let found = |semaphore| Some(Spot { offset, semaphore });
        assert_eq!(spot(main, 0), found(0));
        assert_eq!(spot(main, main + 8), found(offset + 8));
        assert_eq!(spot(u64::MAX, 0), None, "in no segment");
        assert_eq!(spot(main, u64::MAX), None, "in no segment");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_are_found_as_compilers_write_them() {
        let argument = |kind: u64, shift: u64, register: u64, value: i32| {
            let value = u64::from(value as u32);
            Some(Argument(kind | shift << 8 | register << 16 | value << 32))
        };
        for (text, expected) in [
            ("-8@%rax", argument(REGISTER, SIGNED, 80, 0)),
            ("-4@%edi 8@%rsi", argument(REGISTER, SIGNED | 32, 112, 0)),
            ("8@-16(%rbp)", argument(MEMORY, 0, 32, -16)),
            ("8@(%rsp)", argument(MEMORY, 0, 152, 0)),
            ("-8@$-5", argument(CONSTANT, SIGNED, 0, -5)),
            ("-8@%xmm0", None),
            ("-8@8(%rax,%rbx,8)", None),
            ("3@%rax", None),
            ("", None),
        ] {
            assert_eq!(Argument::parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn foreign_arguments_never_panic(text: String) {
            let _ = Argument::parse(&text);
        }

        #[test]
        fn notes_come_back_as_they_went(
            names in proptest::collection::vec(("[a-z]{1,9}", "[a-z_]{1,20}"), 1..5),
        ) {
            let bytes: Vec<u8> = names.iter().flat_map(|(p, n)| note(p, n)).collect();
            let found: Vec<_> =
                notes_in(&bytes).into_iter().map(|n| (n.provider, n.name, n.arguments)).collect();
            let names: Vec<_> =
                names.into_iter().map(|(p, n)| (p, n, "-8@%rax".to_owned())).collect();
            prop_assert_eq!(found, names);
        }

        #[test]
        fn notes_that_are_cut_short_are_left_out(cut in 4usize..=64) {
            let mut bytes = [note("p", "first"), note("p", "second")].concat();
            bytes.truncate(bytes.len() - cut);
            let names: Vec<_> = notes_in(&bytes).into_iter().map(|n| n.name).collect();
            prop_assert_eq!(names, ["first"]);
        }

        #[test]
        fn foreign_notes_never_panic(bytes: Vec<u8>, from in 0usize..64) {
            let _ = notes_in(bytes.get(from..).unwrap_or_default());
            let mut changed = [note("p", "first"), note("p", "second")].concat();
            changed.splice(from..from + bytes.len().min(8), bytes.into_iter().take(8));
            let _ = notes_in(&changed);
        }
    }
}
