//! Which function the code at an address belongs to, with the functions that a compiler put into it
//! (inlined).
//!
//! A name is given only where the file says so: inside of a symbol's own bytes. Code between two
//! symbols, as of a stripped library's local functions, has none; the nearest symbol before it would
//! be a wrong name.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;

use crate::cxx;
use crate::lines::Lines;
use crate::table;

/// How many symbols before the nearest one are looked at: some lie inside of others.
const NESTED: usize = 8;
/// What compilers put behind the name of a function of which they split a part off.
const SPLIT: &[&str] = &[
    "cold",
    "part",
    "constprop",
    "isra",
    "lto_priv",
    "llvm",
    "clone",
];

/// What compilers put behind the name of a function's part that is seldom executed. Jumps lead there and
/// back.
const MOVED: &str = ".cold";

#[derive(Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    name: String,
}

/// The functions of one file.
#[derive(Debug, Default)]
pub struct Functions {
    by_start: Vec<Function>,
    /// By the function's name: parts that are elsewhere.
    moved: HashMap<String, Vec<Range<u64>>>,
    lines: Option<Lines>,
}

impl Functions {
    /// Of a program's file, and of the separate file with its debug symbols. A file that can't be
    /// read has none.
    #[must_use]
    pub fn of(file: File, debug: Option<File>) -> Self {
        Self::of_files([file].into_iter().chain(debug))
    }

    /// The same of all files of one build that there are. The last one that has lines says what was inlined.
    #[must_use]
    pub fn of_files(files: impl IntoIterator<Item = File>) -> Self {
        let mut by_start = Vec::new();
        let mut lines = None;
        for file in files {
            let Ok(symbols) = table::functions(&file) else {
                continue;
            };
            let sized = symbols
                .all
                .into_iter()
                .filter(|s| s.size > 0 && s.address > 0);
            by_start.extend(sized.filter_map(|symbol| {
                Some(Function {
                    start: symbol.address,
                    end: symbol.address.checked_add(symbol.size)?,
                    name: symbol.name,
                })
            }));
            if symbols.has_lines {
                lines = Some(Lines::of(file));
            }
        }
        // Of several names for one address the plainest comes last, and is found first.
        by_start.sort_by(|a, b| {
            let plain = |f: &Function| {
                let underscores = f.name.bytes().take_while(|b| *b == b'_').count();
                std::cmp::Reverse((underscores, f.name.len(), f.name.clone()))
            };
            (a.start, plain(a)).cmp(&(b.start, plain(b)))
        });
        by_start.dedup();
        Self::of_symbols_and_lines(by_start, lines)
    }

    fn of_symbols_and_lines(by_start: Vec<Function>, lines: Option<Lines>) -> Self {
        let mut moved: HashMap<String, Vec<Range<u64>>> = HashMap::new();
        for part in &by_start {
            if let Some((name, _)) = part.name.split_once(MOVED) {
                let parts = moved.entry(name.to_owned()).or_default();
                parts.push(part.start..part.end);
            }
        }
        Self {
            by_start,
            moved,
            lines,
        }
    }

    /// The same by the tables of symbols alone: a function that was put into another one has that one's
    /// name. What compilers say of lines can take seconds to read.
    #[must_use]
    pub fn of_symbols(file: File, debug: Option<File>) -> Self {
        Self {
            lines: None,
            ..Self::of(file, debug)
        }
    }

    /// How many functions are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_start.len()
    }

    fn symbol(&self, address: u64) -> Option<&Function> {
        let behind = self.by_start.partition_point(|f| f.start <= address);
        let candidates = self.by_start[..behind].iter().rev().take(NESTED);
        candidates.into_iter().find(|f| address < f.end)
    }

    /// All code of the function that has the code at an address: its own, then the parts that the compiler
    /// moved away (`NAME.cold`), with which it is one. `None` for code in such a part.
    #[must_use]
    pub fn body(&self, address: u64) -> Option<Vec<Range<u64>>> {
        let function = self.symbol(address)?;
        if function.name.contains(MOVED) {
            return None;
        }
        let parts = self.moved.get(&function.name).into_iter().flatten();
        let own = function.start..function.end;
        Some(std::iter::once(own).chain(parts.cloned()).collect())
    }

    /// The functions at an address (in the file's own numbering), the innermost inlined one first;
    /// the last is the one that has the code. Empty: the file does not say.
    #[must_use]
    pub fn find(&self, address: u64) -> Vec<String> {
        let symbol = self.symbol(address);
        let inlined = self.lines.as_ref().map(|lines| lines.functions(address));
        let mut found: Vec<String> = inlined
            .unwrap_or_default()
            .iter()
            .map(|name| plain_name(name))
            .collect();
        match symbol {
            // The symbol decides: debug information may call it by a short name.
            Some(symbol) if found.len() > 1 => {
                found.pop();
                found.push(plain_name(&symbol.name));
            }
            Some(symbol) => found = vec![plain_name(&symbol.name)],
            None => {}
        }
        found
    }
}

/// A function's name as its author wrote it.
#[must_use]
pub fn plain_name(symbol: &str) -> String {
    let whole = without_split(symbol);
    if is_rust(whole)
        && let Ok(name) = rustc_demangle::try_demangle(whole)
    {
        return format!("{name:#}");
    }
    cxx::plain_name(whole).unwrap_or_else(|| whole.to_owned())
}

/// `_R…`, or `_ZN…17h` with a hash at its end.
fn is_rust(symbol: &str) -> bool {
    let hash = symbol.strip_suffix('E').and_then(|rest| {
        let at = rest.len().checked_sub(19)?;
        rest.get(at..)?.strip_prefix("17h")
    });
    symbol.starts_with("_R") || hash.is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The function that a part was split off from: `f` of `f.part.0`.
fn without_split(symbol: &str) -> &str {
    let mut at = 0;
    while let Some(next) = symbol[at..].find('.').map(|n| at + n) {
        let rest = &symbol[next + 1..];
        let word = rest.split('.').next().unwrap_or(rest);
        if next > 0 && SPLIT.contains(&word) {
            return &symbol[..next];
        }
        at = next + 1;
    }
    symbol
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        for (symbol, name) in [
            ("main", "main"),
            ("main.handler", "main.handler"),
            ("parse.part.0", "parse"),
            ("parse.constprop.0.cold", "parse"),
            ("_ZN3THD5queryEv", "THD::query"),
            ("_ZN3THD5queryEv.cold", "THD::query"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ] {
            assert_eq!(plain_name(symbol), name, "{symbol}");
        }
    }

    fn functions(all: &[(u64, u64, &str)]) -> Functions {
        let function = |&(start, end, name): &(u64, u64, &str)| Function {
            start,
            end,
            name: name.to_owned(),
        };
        Functions::of_symbols_and_lines(all.iter().map(function).collect(), None)
    }

    #[test]
    fn a_function_has_the_parts_that_were_moved_away() {
        let found = functions(&[
            (10, 20, "f"),
            (20, 30, "g"),
            (50, 60, "f.cold"),
            (60, 62, "f.cold.1"),
        ]);
        assert_eq!(found.body(15), Some(vec![10..20, 50..60, 60..62]));
        assert_eq!(found.body(25).map(|body| body.len()), Some(1));
        assert_eq!((found.body(55), found.body(35)), (None, None));
    }

    #[test]
    fn code_between_symbols_has_no_name() {
        let found = functions(&[(10, 20, "outer"), (12, 14, "inner"), (30, 40, "last")]);
        assert_eq!(found.find(13), ["inner"]);
        assert_eq!(found.find(15), ["outer"]);
        assert_eq!(found.find(25), Vec::<String>::new());
        assert_eq!(found.find(9), Vec::<String>::new());
        assert_eq!(found.find(40), Vec::<String>::new());
    }

    #[test]
    fn our_own_function_is_found_where_it_is() {
        let file = || File::open("/proc/self/exe").expect("our own file");
        let main = table::functions(&file()).expect("read").all;
        let main = main
            .iter()
            .find(|f| f.name == "main")
            .expect("a program has main");
        let found = Functions::of(file(), None).find(main.address);
        assert_eq!(found.last().map(String::as_str), Some("main"));
    }

    proptest! {
        #[test]
        fn foreign_names_never_panic(name: String) {
            let _ = plain_name(&name);
        }
    }
}
