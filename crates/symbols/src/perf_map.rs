//! Names of code that a process made at run time, from its perf map: `/tmp/perf-PID.map`, as
//! `node --perf-basic-prof`, `jcmd PID Compiler.perfmap` and `python -X perf` write it.
//!
//! Each line has the start and the length of some code in hex, and its name. Code that is made later
//! replaces what was in its place, so the last line for an address counts.
//!
//! The process writes the file, so nothing in it is trusted. A line that makes no sense is left out.
//! The names serve only for code in no file: a map can't rename a program's own functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tailscope_process::{owner, rooted};

/// Of a longer map, the end is read: its last lines count.
pub const MOST_BYTES: u64 = 64 << 20;
/// Read at once.
const CHUNK: u64 = 64 << 10;
/// A longer line is cut off.
const LONGEST_LINE: usize = 512;
/// Of the names of one process; more are not found.
const MOST_BYTES_OF_NAMES: usize = 8 << 20;
/// No compiler makes functions that are longer than this.
const LONGEST_CODE: u64 = 64 << 20;

/// How many seconds two times may be wrong that are rounded.
const COARSE_S: i64 = 2;

/// Opens the map of a process, as its own mount namespace and PID namespace have it.
///
/// # Errors
/// There is none; it is no regular file; it belongs to another user; it is older than the process.
pub fn open(pid: u32) -> io::Result<File> {
    let refused = |why| io::Error::other(why);
    let user = owner::of(pid).ok_or_else(|| refused("the process is gone"))?;
    let own = owner::innermost_pid(pid).ok_or_else(|| refused("the process is gone"))?;
    let began = owner::start_unix(pid).ok_or_else(|| refused("the process is gone"))?;
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let file = rooted::open(&root, Path::new(&format!("/tmp/perf-{own}.map")))?;
    let about = file.metadata()?;
    if about.uid() != user {
        return Err(refused("the map belongs to another user"));
    }
    // Numbers of processes are used again, and maps stay behind. Both times are coarse.
    if about.mtime() + COARSE_S < began {
        return Err(refused("the map is older than the process"));
    }
    Ok(file)
}

/// The names of the code at some addresses: of all entries for an address, the last.
///
/// The map is read up to `length`, at most its last `room` bytes, from its end, until every address
/// has a name. What this takes is bounded by the addresses, whatever the map has.
///
/// # Errors
/// The map can't be read, or was cut short since.
pub fn names(
    map: &File,
    length: u64,
    room: u64,
    mut addresses: BTreeSet<u64>,
) -> io::Result<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    let mut bytes_of_names = 0;
    each_line_from_the_end(map, length, room.min(MOST_BYTES), CHUNK, |line| {
        let Some((code, name)) = entry(line) else {
            return ControlFlow::Continue(());
        };
        if addresses.range(code.clone()).next().is_none() {
            return ControlFlow::Continue(()); // as most lines
        }
        let Some(name) = plain_name(&String::from_utf8_lossy(name)) else {
            return ControlFlow::Continue(());
        };
        while let Some(&address) = addresses.range(code.clone()).next() {
            addresses.remove(&address);
            bytes_of_names += name.len();
            names.insert(address, name.clone());
        }
        if addresses.is_empty() || bytes_of_names > MOST_BYTES_OF_NAMES {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// Gives each whole line, the last first; `chunk` bytes are read at once. A line that is too long is cut off at its end.
fn each_line_from_the_end(
    file: &File,
    length: u64,
    room: u64,
    chunk: u64,
    mut line: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let from = length.saturating_sub(room);
    let mut at = length;
    // How the line goes on that has its start before `at`. `None`: what is behind the last line's end
    // is still being written.
    let mut rest: Option<Vec<u8>> = None;
    while at > from {
        let size = (at - from).min(chunk);
        at -= size;
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, at)?;
        match rest.take() {
            Some(rest) => bytes.extend(rest),
            None => match bytes.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => bytes.truncate(end),
                None => continue,
            },
        }
        // What is before the first line's end may have its start before `at`.
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let lines = if at == 0 {
            Some(0)
        } else {
            end.map(|end| end + 1)
        };
        if let Some(lines) = lines {
            for whole in bytes[lines..].rsplit(|byte| *byte == b'\n') {
                if line(&whole[..whole.len().min(LONGEST_LINE)]).is_break() {
                    return Ok(());
                }
            }
        }
        bytes.truncate(end.unwrap_or(bytes.len()).min(LONGEST_LINE));
        rest = Some(bytes);
    }
    Ok(())
}

/// The addresses of the code that a line is about, and its name as the process has it.
fn entry(line: &[u8]) -> Option<(Range<u64>, &[u8])> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let mut number = || {
        let field = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
    };
    let (start, length) = (number()?, number()?);
    let name = fields.next()?.trim_ascii();
    if start == 0 || !(1..=LONGEST_CODE).contains(&length) || name.is_empty() {
        return None;
    }
    Some((start..start.checked_add(length)?, name))
}

/// A function's name without what its compiler adds; code of one function from several compilers has
/// one name. `None`: there is none.
///
/// - Node: `JS:*handle file:///srv/app.js:12:3` is `handle app.js:12`.
/// - HotSpot: `int shop.Cart.total(int)` is `shop.Cart.total`.
/// - CPython: `py::handle:/srv/app.py` is `handle app.py`.
fn plain_name(name: &str) -> Option<String> {
    let named = of_node(name).or_else(|| of_python(name));
    let named = named.or_else(|| of_java(name).map(str::to_owned));
    let named = named.unwrap_or_else(|| name.to_owned());
    let shown: String = named.chars().filter(|c| !c.is_control()).collect();
    (!shown.is_empty()).then_some(shown)
}

fn of_node(name: &str) -> Option<String> {
    let (kind, rest) = name.split_once(':')?;
    if !matches!(kind, "JS" | "LazyCompile" | "Function" | "Script" | "Eval") {
        return None;
    }
    let rest = rest.trim_start_matches(['*', '~', '^', '+']);
    let (function, place) = rest.rsplit_once(' ').unwrap_or((rest, ""));
    let function = if function.is_empty() {
        "(anonymous)"
    } else {
        function
    };
    let place = place.rsplit('/').next().unwrap_or(place);
    // The column is left out.
    let place = match place.rsplit_once(':') {
        Some((line, _)) if line.contains(':') => line,
        _ => place,
    };
    Some(format!("{function} {place}").trim().to_owned())
}

fn of_python(name: &str) -> Option<String> {
    let (function, path) = name.strip_prefix("py::")?.split_once(':')?;
    let file = path.rsplit('/').next().unwrap_or(path);
    Some(format!("{function} {file}").trim().to_owned())
}

/// The result's type comes before the name, the parameters' types behind it.
fn of_java(name: &str) -> Option<&str> {
    let (head, rest) = name.split_once('(')?;
    let (kind, method) = head.split_once(' ')?;
    let is_name = |text: &str| {
        let allowed = |c: char| c.is_alphanumeric() || "._$<>[]/+".contains(c);
        !text.is_empty() && text.chars().all(allowed)
    };
    (rest.ends_with(')') && is_name(kind) && is_name(method) && method.contains('.'))
        .then_some(method)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        for (given, name) in [
            ("JS:*handle file:///srv/app.js:12:3", "handle app.js:12"),
            ("LazyCompile:~handle /srv/app.js:12:3", "handle app.js:12"),
            ("JS:^ /srv/app.js:12:3", "(anonymous) app.js:12"),
            ("Builtin:ArrayMap", "Builtin:ArrayMap"),
            (
                "int shop.Cart.total(int, java.lang.String)",
                "shop.Cart.total",
            ),
            ("void Planted.<init>()", "Planted.<init>"),
            ("Interpreter", "Interpreter"),
            ("py::handle:/srv/app.py", "handle app.py"),
            ("some stub (nmethod)", "some stub (nmethod)"),
        ] {
            assert_eq!(plain_name(given).as_deref(), Some(name), "{given}");
        }
    }

    /// What a map with this text says of some addresses; its last `room` bytes are read.
    fn found(text: &[u8], room: u64, addresses: &[u64]) -> Vec<Option<String>> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(text).expect("written");
        let asked = addresses.iter().copied().collect();
        let mut found = names(&file, text.len() as u64, room, asked).expect("read");
        addresses.iter().map(|at| found.remove(at)).collect()
    }

    const ALL: u64 = 1 << 20;

    fn some(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn the_last_line_for_an_address_counts() {
        let text = b"1000 100 first\n1080 100 second\n0x3000 0x10 third\n";
        let found = found(text, ALL, &[0x1000, 0x1080, 0x117f, 0x1180, 0x3008]);
        let second = some("second");
        assert_eq!(
            found,
            [some("first"), second.clone(), second, None, some("third")]
        );
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = b"\n1000\nx 10 a\n0 10 zero\n1000 0 empty\nffffffffffffffff 10 beyond\n\
            1000 ffffffffff all\n2000 10 \n2000 10 right\n3000 10 unfinis";
        let found = found(text, ALL, &[1, 0x1000, 0x2001, 0x3000, u64::MAX]);
        assert_eq!(found, [None, None, some("right"), None, None]);
    }

    #[test]
    fn the_end_of_a_long_map_is_read_and_a_shortened_one_is_refused() {
        let text = b"1000 10 first\n2000 10 second\n3000 10 third\n";
        assert_eq!(
            found(text, 25, &[0x2000, 0x3000]),
            [None, some("third")],
            "the second line is not whole"
        );
        let empty = tempfile::tempfile().expect("a temporary file");
        assert!(names(&empty, 10, ALL, BTreeSet::from([1])).is_err());
    }

    #[test]
    fn lines_longer_than_what_is_read_at_once_are_cut_off() {
        let long = "x".repeat(3 * CHUNK as usize);
        let text = format!("1000 10 first\n2000 10 {long}\n3000 10 third\n{long}");
        let found = found(text.as_bytes(), u64::MAX, &[0x1000, 0x2000, 0x3000]);
        let cut = LONGEST_LINE - "2000 10 ".len();
        assert_eq!(found, [some("first"), some(&long[..cut]), some("third")]);
    }

    /// The same by a map of all lines.
    fn by_all_lines(text: &str, address: u64) -> Option<String> {
        let whole = &text[..text.rfind('\n')?];
        let mut entries = whole.split('\n').filter_map(|line| entry(line.as_bytes()));
        let (_, name) = entries.rfind(|(code, _)| code.contains(&address))?;
        plain_name(&String::from_utf8_lossy(name))
    }

    proptest! {
        #[test]
        fn foreign_maps_never_panic(bytes: Vec<u8>, addresses: Vec<u64>) {
            found(&bytes, ALL, &addresses);
        }

        #[test]
        fn each_name_is_that_of_the_last_line(
            text in "([0-9a-f]{1,3} [0-9a-f]{1,3} [a-z]{1,9}\n){0,20}[a-z]{0,3}",
        ) {
            let addresses: Vec<u64> = (0..0x1200).step_by(0x35).collect();
            let found = found(text.as_bytes(), ALL, &addresses);
            for (address, name) in addresses.iter().zip(found) {
                prop_assert_eq!(by_all_lines(&text, *address), name);
            }
        }

        #[test]
        fn lines_are_whole_however_much_is_read_at_once(text in "[a\n]{0,40}", chunk in 1_u64..9) {
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(text.as_bytes()).expect("written");
            let mut lines = Vec::new();
            each_line_from_the_end(&file, text.len() as u64, ALL, chunk, |line| {
                lines.push(String::from_utf8_lossy(line).into_owned());
                ControlFlow::Continue(())
            }).expect("read");
            let whole = text.rfind('\n').map(|end| &text[..end]);
            let expected: Vec<&str> = whole.into_iter().flat_map(|t| t.rsplit('\n')).collect();
            prop_assert_eq!(lines, expected);
        }
    }
}
