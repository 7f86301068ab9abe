use std::fs;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::table;

/// Variables, and functions whose registers point to something.
const SOURCE: &str = r"
struct inner { char tag; union { long number; double real; } value; };
struct outer { int first; struct inner parts[3]; unsigned low : 3, high : 5; struct outer *next; };
typedef struct outer named;
named table[2][4];
static volatile long counter;
long sum(struct outer *of, long *other)
{
	counter++;
	return of->parts[2].value.number + of->next->first + *other;
}
int main(void) { return sum(&table[1][2], (long *)&counter); }
";

struct Program {
    folder: tempfile::TempDir,
    data: Data,
}

fn program(options: &[&str]) -> Program {
    compiled("cc", "program.c", SOURCE, options)
}

fn compiled(compiler: &str, file: &str, source: &str, options: &[&str]) -> Program {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path(file), source).expect("written");
    let mut compiler = Command::new(compiler);
    compiler.args(["-g", "-O1", "-fno-inline", "-o"]);
    compiler.args([path("program"), path(file)]).args(options);
    assert!(compiler.status().expect("a compiler").success());
    let data = Data::of_files([File::open(path("program")).expect("built")], 1 << 30);
    Program { folder, data }
}

impl Program {
    fn open(&self) -> File {
        File::open(self.folder.path().join("program")).expect("built")
    }

    fn address(&self, name: &str) -> u64 {
        let variables = table::variables(&self.open()).expect("symbols").all;
        let functions = table::functions(&self.open()).expect("symbols").all;
        let mut all = variables.iter().chain(&functions);
        let symbol = all.find(|symbol| symbol.name == name);
        symbol.expect("it is there").address
    }

    fn at(&self, variable: &str, bytes: u64) -> Option<(String, String)> {
        let at = self.data.variable(self.address(variable) + bytes)?;
        let field = self.data.field(at)?;
        Some((field.of + &field.way, field.kind))
    }
}

fn is(name: &str, kind: &str) -> Option<(String, String)> {
    Some((name.to_owned(), kind.to_owned()))
}

#[test]
fn each_byte_of_a_variable_has_its_member_and_type() {
    for options in [&["-gdwarf-4"][..], &["-gdwarf-5"], &["-gdwarf-5", "-gz"]] {
        let program = program(options);
        let (outer, row) = (72, 4 * 72);
        assert_eq!(program.at("counter", 7), is("counter", "long int"));
        assert_eq!(program.at("counter", 8), None);
        assert_eq!(program.at("table", 0), is("table[0][0].first", "int"));
        let at = program.at("table", row + 2 * outer + 8);
        assert_eq!(at, is("table[1][2].parts[0].tag", "char"));
        // Of padding and of unions nobody knows more.
        let at = program.at("table", outer + 4);
        assert_eq!(at, is("table[0][1]", "named"));
        let at = program.at("table", 16);
        assert_eq!(
            at.map(|at| at.0),
            Some("table[0][0].parts[0].value.number|real".into())
        );
        let at = program.at("table", 56);
        assert_eq!(at, is("table[0][0].low|high", "unsigned int"));
        assert_eq!(
            program.at("table", 64),
            is("table[0][0].next", "struct outer *")
        );
    }
}

#[test]
fn a_register_points_to_what_its_variable_does() {
    let program = program(&[]);
    let (rdi, rsi, rdx) = (5, 4, 1);
    let entry = program.address("sum");
    let of = program.data.pointer(entry, rdi).expect("a parameter");
    let field = |at| {
        let field = program.data.field(at)?;
        Some((field.of + &field.way, field.kind))
    };
    assert_eq!(field(of.plus(8)), is("struct outer.parts[0].tag", "char"));
    // What lies beyond is of another type than the pointer says.
    assert_eq!(
        (field(of.plus(72)), program.data.load(of.plus(136))),
        (None, None)
    );
    let next = program.data.load(of.plus(64)).expect("a pointer");
    assert_eq!(field(next), is("struct outer.first", "int"));
    assert_eq!(program.data.load(of), None);
    let other = program.data.pointer(entry, rsi).expect("a parameter");
    assert_eq!(field(other), is("long int", "long int"));
    assert_eq!(program.data.pointer(entry, rdx), None);
    assert_eq!(program.data.pointer(1, rdi), None);
    assert_eq!(field(of.plus(-1)), None);
}

/// What of a type's byte is not certain, in C++.
const CLASSES: &str = r"
struct Empty {};
struct Several : Empty { static const int kMost = 5; long hits; union { struct { int low, high; }; long both; }; };
struct Derived : Several { long more; };
struct Other { long first; long second; };
Several several;
Derived derived;
long of_two(void *any, int which) {
    Derived *one = (Derived *)any;
    Other *two = (Other *)any;
    return which ? one->more : two->second;
}
long of_one(Several *base) { return ((Derived *)base)->more; }
int main() { return of_two(&derived, 1) + of_one(&derived) + several.hits; }
";

#[test]
fn where_several_types_are_possible_none_is_said() {
    let program = compiled("c++", "program.cc", CLASSES, &[]);
    assert_eq!(program.at("several", 0), is("several.hits", "long int"));
    assert_eq!(program.at("derived", 0), is("derived.hits", "long int"));
    assert_eq!(program.at("derived", 16), is("derived.more", "long int"));
    let (either, _) = program.at("several", 8).expect("it is in the variable");
    assert_eq!(either, "several");
    let rdi = 5;
    let functions = table::functions(&program.open()).expect("symbols").all;
    let address = |name: &str| {
        let mut all = functions.iter();
        all.find(|f| f.name.contains(name))
            .expect("it is there")
            .address
    };
    assert_eq!(program.data.pointer(address("of_two"), rdi), None);
    let base = program
        .data
        .pointer(address("of_one"), rdi)
        .expect("a parameter");
    assert_eq!(program.data.field(base.plus(16)), None);
}

#[test]
fn a_program_without_descriptions_has_none() {
    let program = program(&["-g0"]);
    assert_eq!(program.at("counter", 0), None);
    assert_eq!(program.data.pointer(program.address("sum"), 5), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn foreign_sections_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        thread_local!(static SECTIONS: Vec<(&'static str, Vec<u8>)> = sections());
        SECTIONS.with(|sections| {
            let mut changed = sections.clone();
            for (place, byte) in changes {
                let all: usize = changed.iter().map(|(_, bytes)| bytes.len()).sum();
                let mut place = place.index(all);
                for (_, bytes) in &mut changed {
                    if place < bytes.len() {
                        bytes[place] = byte;
                        break;
                    }
                    place -= bytes.len();
                }
            }
            let described = dwarf::of_sections(|name| {
                let of = changed.iter().find(|(known, _)| *known == name);
                of.map_or(&[][..], |(_, bytes)| bytes).into()
            });
            let described = Described::of(described.expect("sections"));
            for variable in &described.variables {
                described.left.set(MOST_ENTRIES);
                let at = described.variable(variable.addresses.start);
                at.map(|at| (described.field(at), described.load(at)));
            }
            for (code, _) in &described.functions {
                described.left.set(MOST_ENTRIES);
                for register in 0..16 {
                    let at = described.pointer(code.start, register);
                    at.map(|at| described.field(at.plus(i64::MAX)));
                    at.map(|at| described.field(at));
                }
            }
        });
    }
}

/// The descriptions of the program, without what the C library says of itself.
fn sections() -> Vec<(&'static str, Vec<u8>)> {
    use object::{Object, ObjectSection};
    let program = program(&["-gdwarf-5"]);
    let bytes = fs::read(program.folder.path().join("program")).expect("built");
    let elf = object::File::parse(&*bytes).expect("a program");
    let names = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_str",
        ".debug_line_str",
        ".debug_loclists",
        ".debug_rnglists",
        ".debug_addr",
    ];
    let section = |name| {
        let data = elf
            .section_by_name(name)
            .and_then(|section| section.data().ok());
        (name, data.unwrap_or_default().to_vec())
    };
    names.map(section).to_vec()
}
