//! Names of code that a process made at run time, from its perf map: `/tmp/perf-PID.map`, as
//! `node --perf-basic-prof`, `jcmd PID Compiler.perfmap` and `python -X perf` write it.
//!
//! Each line has the start and the length of some code in hex, and its name. Code that is made later
//! replaces what was in its place, so the last line for an address counts.
//!
//! The process writes the file, so nothing in it is trusted. A line that makes no sense is left out.
//! The names serve only for code in no file: a map can't rename a program's own functions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tailscope_process::{owner, rooted};

/// Of a longer map, the end is read: its last lines count.
const MOST_BYTES: u64 = 64 << 20;
/// A longer name is cut off.
const LONGEST_NAME: usize = 512;
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

/// Code by its address.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PerfMap {
    /// By start: the end and the name. No two overlap.
    code: BTreeMap<u64, (u64, String)>,
}

impl PerfMap {
    /// Reads a map up to `length`, at most its last `room` bytes.
    ///
    /// # Errors
    /// It can't be read, or was cut short since.
    pub fn read(file: &File, length: u64, room: u64) -> io::Result<Self> {
        let size = length.min(MOST_BYTES).min(room);
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, length - size)?;
        let from = match bytes.iter().position(|byte| *byte == b'\n') {
            // The first line is not whole.
            Some(end) if size < length => end + 1,
            _ => 0,
        };
        Ok(Self::parse(&bytes[from..]))
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        // What is behind the last line's end is still being written.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            let _ = found.add(line);
        }
        found
    }

    fn add(&mut self, line: &[u8]) -> Option<()> {
        let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_NAME)]);
        let mut fields = line.splitn(3, ' ');
        let mut number = || {
            let field = fields.next()?;
            u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
        };
        let (start, length) = (number()?, number()?);
        let name = plain_name(fields.next()?.trim())?;
        if start == 0 || !(1..=LONGEST_CODE).contains(&length) {
            return None;
        }
        let end = start.checked_add(length)?;
        while let Some((&old, _)) = self.code.range(..end).next_back().filter(|o| o.1.0 > start) {
            self.code.remove(&old);
        }
        self.code.insert(start, (end, name));
        Some(())
    }

    /// The name of the code at an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.code.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
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

    #[test]
    fn the_last_line_for_an_address_counts_and_what_it_overwrites_is_gone() {
        let map = PerfMap::parse(b"1000 100 first\n1080 100 second\n0x3000 0x10 third\n");
        assert_eq!(map.find(0x1000), None);
        assert_eq!(map.find(0x1080), Some("second"));
        assert_eq!(map.find(0x117f), Some("second"));
        assert_eq!(map.find(0x1180), None);
        assert_eq!(map.find(0x3008), Some("third"));
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = b"\n1000\nx 10 a\n0 10 zero\n1000 0 empty\nffffffffffffffff 10 beyond\n\
            1000 ffffffffff all\n2000 10 \n2000 10 right\n3000 10 unfinis";
        let map = PerfMap::parse(text);
        assert_eq!(map.code.len(), 1);
        assert_eq!(map.find(0x2001), Some("right"));
    }

    #[test]
    fn the_end_of_a_long_map_is_read_and_a_shortened_one_is_refused() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let text = b"1000 10 first\n2000 10 second\n3000 10 third\n";
        file.write_all(text).expect("written");
        let length = text.len() as u64;
        let map = PerfMap::read(&file, length, 25).expect("read");
        assert_eq!((map.find(0x2000), map.find(0x3000)), (None, Some("third")));
        assert!(PerfMap::read(&file, length + 1, 1 << 20).is_err());
    }

    proptest! {
        #[test]
        fn foreign_maps_never_panic(bytes: Vec<u8>, text in "([0-9a-f]{0,5} [0-9a-f]{0,4} .{0,9}\n){0,9}") {
            PerfMap::parse(&bytes);
            let map = PerfMap::parse(text.as_bytes());
            let mut last = 0;
            for (start, (end, _)) in &map.code {
                prop_assert!(*start >= last && end > start);
                last = *end;
            }
        }
    }
}
