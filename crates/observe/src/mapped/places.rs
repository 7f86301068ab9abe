//! Which method or loop a number of a process's table of places stands for.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;

use tailscope_process::maps;
use tailscope_signals::abi;

/// The table. It is looked into when a name is wanted, as the process goes on writing it, and stays
/// readable when the process has ended.
#[derive(Debug)]
pub struct Places(File);

impl Places {
    /// The process's; `None`: it has none.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Self>> {
        let maps = maps::read(pid)?;
        let table = maps
            .iter()
            .find(|m| m.shared && m.is_memory_file(abi::TS_PLACES_FILE));
        let Some(table) = table else { return Ok(None) };
        let places = Self(table.open(pid)?);
        let magic = places.word(offset_of!(abi::ts_places, magic));
        Ok((magic == Some(abi::TS_PLACES_MAGIC)).then_some(places))
    }

    fn word(&self, at: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at as u64).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// `package.Class.method` or `package.Class.method:LINE`, if a line of the table begins there.
    #[must_use]
    pub fn find(&self, number: u64) -> Option<String> {
        let used = self.word(offset_of!(abi::ts_places, used))?;
        // Before a line there is the end of another.
        let before = number.checked_sub(1).filter(|_| number < used)?;
        let mut bytes = vec![0; 1 + abi::TS_PLACE_NAME as usize];
        let at = (size_of::<abi::ts_places>() as u64).checked_add(before)?;
        let read = self.0.read_at(&mut bytes, at).ok()?;
        let (b'\n', line) = bytes[..read].split_first()? else {
            return None;
        };
        let end = line.iter().position(|byte| *byte == b'\n')?;
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }
}

/// The method that a place is in: what is before a loop's line.
pub(crate) fn method(place: &str) -> &str {
    match place.rsplit_once(':') {
        Some((method, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => method,
        _ => place,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn table(used: u64, text: &[u8]) -> Places {
        let mut file = tempfile::tempfile().expect("a temporary file");
        for part in [
            &abi::TS_PLACES_MAGIC.to_le_bytes()[..],
            &used.to_le_bytes(),
            text,
        ] {
            file.write_all(part).expect("written");
        }
        Places(file)
    }

    #[test]
    fn a_number_is_where_its_line_begins() {
        let places = table(16, b"\nA.run\nA.run:12\nunfinished");
        let found = |number| places.find(number);
        assert_eq!(found(1).as_deref(), Some("A.run"));
        assert_eq!(found(7).as_deref(), Some("A.run:12"));
        assert_eq!(found(0), None);
        assert_eq!((found(2), found(16), found(u64::MAX)), (None, None, None));
    }

    #[test]
    fn a_loop_belongs_to_its_method() {
        assert_eq!(method("a.B.run:12"), "a.B.run");
        assert_eq!(method("a.B.run"), "a.B.run");
        assert_eq!(method("a.B.<init>"), "a.B.<init>");
        assert_eq!(method("a.B.odd:name"), "a.B.odd:name");
    }

    proptest! {
        #[test]
        fn foreign_tables_never_panic(used: u64, text: Vec<u8>, number: u64, near in 0u64..64) {
            let places = table(used, &text);
            let _ = (places.find(number), places.find(near));
        }
    }
}
