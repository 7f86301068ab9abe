//! The kernel's own functions, as `/proc/kallsyms` lists them.

use std::io::{BufRead, BufReader, Read};

/// Bytes that are read of the list; a large kernel's has some 20 MB.
const MOST_BYTES: u64 = 128 << 20;

/// The kernel's functions by address.
#[derive(Debug, Default)]
pub struct Kallsyms {
    starts: Vec<(u64, u32)>,
    names: String,
}

impl Kallsyms {
    /// Reads the list. It is empty where the kernel keeps its addresses to itself: they are all 0.
    #[must_use]
    pub fn read(list: impl Read) -> Self {
        let mut found = Self::default();
        let mut lines = BufReader::with_capacity(1 << 16, list.take(MOST_BYTES));
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            found.add(&String::from_utf8_lossy(&line));
            line.clear();
        }
        found.starts.sort_by_key(|(start, _)| *start);
        found
    }

    /// `ffffffff81000000 T _stext`, and a module's name in brackets behind that of its functions.
    fn add(&mut self, line: &str) {
        let mut fields = line.split_whitespace();
        let address = fields
            .next()
            .and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let (Some(address @ 1..), Some(kind), Some(name)) = (address, fields.next(), fields.next())
        else {
            return;
        };
        if matches!(kind, "T" | "t" | "W" | "w") {
            self.starts.push((address, self.names.len() as u32));
            self.names.push_str(name);
            self.names.push('\n');
        }
    }

    /// The function at an address; the list has no lengths, so each reaches to the next.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&str> {
        let behind = self.starts.partition_point(|(start, _)| *start <= address);
        // Behind the last one there may be anything.
        if behind == self.starts.len() {
            return None;
        }
        let (_, at) = self.starts[..behind].last()?;
        self.names[*at as usize..].lines().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let list = "\
            ffffffff81000000 T _stext\n\
            ffffffff81000200 t do_work\t[module]\n\
            ffffffff81000300 D data\n\
            ffffffff81000400 T _etext\nbroken\n";
        let found = Kallsyms::read(list.as_bytes());
        assert_eq!(found.find(0xffff_ffff_8100_0001), Some("_stext"));
        assert_eq!(found.find(0xffff_ffff_8100_0301), Some("do_work"));
        assert_eq!(found.find(0xffff_ffff_8100_0400), None);
        assert_eq!(found.find(1), None);
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let found = Kallsyms::read("0000000000000000 T _stext\n0000000000000000 T a\n".as_bytes());
        assert_eq!(found.find(0), None);
    }
}
