//! What a request over HTTP/2 says of itself in its compressed headers (HPACK, RFC 7541).
//!
//! Only the method, the path and the trace are kept; of all other fields nothing but their place in
//! the table. Nothing is known of what a connection put into its table before it was followed, nor of
//! headers that were cut off. A field that refers to that is left out: it is never guessed.

use std::collections::VecDeque;

use httlib_huffman::DecoderSpeed;

/// Fields of the standard's own table come before those of the connection.
const STATIC_FIELDS: usize = 61;
/// What RFC 7541 adds to each field's length (section 4.1).
const FIELD_BYTES: usize = 32;
/// The most that a table holds: what a connection begins with. Of a larger one, the oldest fields are
/// not known.
const TABLE_BYTES: usize = 4096;

/// What of a field matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Method(Vec<u8>),
    Path(Vec<u8>),
    Trace(Vec<u8>),
    Other,
}

/// A field that the connection's table has.
#[derive(Debug)]
struct Entry {
    field: Field,
    /// At most what it counts for at the other end, so that nothing is forgotten too early.
    bytes: usize,
}

/// The table of one direction of a connection, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// What the headers of a request say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) method: Option<Vec<u8>>,
    pub(super) path: Option<Vec<u8>>,
    /// The value of `traceparent`.
    pub(super) trace: Option<Vec<u8>>,
}

impl Headers {
    fn take(&mut self, field: Field) {
        match field {
            Field::Method(value) => self.method = Some(value),
            Field::Path(value) => self.path = Some(value),
            Field::Trace(value) => self.trace = Some(value),
            Field::Other => {}
        }
    }
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// An integer that begins in the lowest bits of a byte (section 5.1).
    fn integer(&mut self, bits: u32) -> Option<usize> {
        let most = (1usize << bits) - 1;
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        let mut value = usize::from(*first) & most;
        if value < most {
            return Some(value);
        }
        for shift in [0, 7, 14, 21] {
            let (next, rest) = self.0.split_first()?;
            self.0 = rest;
            value += usize::from(next & 0x7f) << shift;
            if next & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A string (section 5.2), and whether it is coded.
    fn string(&mut self) -> Option<(&'a [u8], bool)> {
        let coded = self.0.first()? & 0x80 != 0;
        let length = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((string, coded))
    }
}

fn decoded((string, coded): (&[u8], bool)) -> Option<Vec<u8>> {
    if !coded {
        return Some(string.to_owned());
    }
    let mut text = Vec::new();
    httlib_huffman::decode(string, &mut text, DecoderSpeed::FourBits).ok()?;
    Some(text)
}

impl Table {
    /// Nothing is known of it any more.
    pub(super) fn forget(&mut self) {
        self.entries = VecDeque::new();
        self.bytes = 0;
    }

    /// Reads a block of headers. `cut`: it goes on, and nobody knows how.
    pub(super) fn read(&mut self, block: &[u8], cut: bool) -> Headers {
        let mut headers = Headers::default();
        let mut rest = Reader(block);
        while !rest.0.is_empty() {
            if self.read_field(&mut rest, &mut headers).is_none() {
                self.forget();
                return headers;
            }
        }
        if cut {
            self.forget();
        }
        headers
    }

    /// `None`: the block is cut off here, or is not one.
    fn read_field(&mut self, rest: &mut Reader<'_>, headers: &mut Headers) -> Option<()> {
        let first = *rest.0.first()?;
        if first & 0x80 != 0 {
            let index = rest.integer(7)?;
            if let Some(field) = self.field(index) {
                headers.take(field);
            }
            return Some(());
        }
        if first & 0xe0 == 0x20 {
            let size = rest.integer(5)?;
            self.shrink(size.min(TABLE_BYTES));
            return Some(());
        }
        let is_added = first & 0x40 != 0;
        let index = rest.integer(if is_added { 6 } else { 4 })?;
        let (name, name_bytes) = match index {
            0 => {
                let name = rest.string()?;
                (named(&decoded(name)?), name.0.len())
            }
            index => (self.field(index), 0),
        };
        let value = rest.string()?;
        let field = match name {
            Some(Field::Method(_)) => decoded(value).map(Field::Method),
            Some(Field::Path(_)) => decoded(value).map(Field::Path),
            Some(Field::Trace(_)) => decoded(value).map(Field::Trace),
            _ => None,
        };
        let field = field.unwrap_or(Field::Other);
        if is_added {
            let bytes = FIELD_BYTES + name_bytes + value.0.len();
            self.add(field.clone(), bytes);
        }
        headers.take(field);
        Some(())
    }

    /// The field of this number; `None`: it is not known.
    fn field(&self, index: usize) -> Option<Field> {
        match index {
            2 => Some(Field::Method(b"GET".to_vec())),
            3 => Some(Field::Method(b"POST".to_vec())),
            4 => Some(Field::Path(b"/".to_vec())),
            5 => Some(Field::Path(b"/index.html".to_vec())),
            0..=STATIC_FIELDS => None,
            _ => {
                let entry = self.entries.get(index - STATIC_FIELDS - 1)?;
                Some(entry.field.clone())
            }
        }
    }

    fn add(&mut self, field: Field, bytes: usize) {
        self.entries.push_front(Entry { field, bytes });
        self.bytes += bytes;
        self.shrink(TABLE_BYTES);
    }

    fn shrink(&mut self, size: usize) {
        while self.bytes > size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.bytes;
        }
    }
}

/// Which field has this name.
fn named(name: &[u8]) -> Option<Field> {
    match name {
        b":method" => Some(Field::Method(Vec::new())),
        b":path" => Some(Field::Path(Vec::new())),
        b"traceparent" => Some(Field::Trace(Vec::new())),
        _ => None,
    }
}

/// Blocks of one connection: the length of each and whether it is cut off, then its bytes.
#[cfg(fuzzing)]
pub(super) fn fuzz(mut bytes: &[u8]) {
    let mut table = Table::default();
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let (block, rest) = rest.split_at(usize::from(head[0]).min(rest.len()));
        let headers = table.read(block, head[1] & 1 != 0);
        if let (Some(method), Some(path)) = (headers.method, headers.path) {
            super::Naming::Auto.name_of_stream(&method, &path);
        }
        assert!(table.bytes <= TABLE_BYTES && table.entries.len() <= TABLE_BYTES / FIELD_BYTES);
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.split_whitespace().collect();
        let digits = digits.concat();
        let pairs = (0..digits.len()).step_by(2);
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex");
        pairs.map(byte).collect()
    }

    /// The method and the path; `-`: not known.
    fn said(headers: &Headers) -> String {
        let text = |field: &Option<Vec<u8>>| match field {
            Some(text) => String::from_utf8(text.clone()).expect("text"),
            None => "-".to_owned(),
        };
        format!("{} {}", text(&headers.method), text(&headers.path))
    }

    /// RFC 7541, appendix C.4: three requests on one connection, coded.
    const EXAMPLES: [&str; 3] = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];

    #[test]
    fn the_examples_of_the_standard() {
        let mut table = Table::default();
        let paths = EXAMPLES.map(|block| said(&table.read(&bytes(block), false)));
        assert_eq!(paths, ["GET /", "GET /", "GET /index.html"]);
        assert_eq!(table.entries.len(), 3);
    }

    /// A path that the connection's table then has, and a request that only refers to it.
    fn add_path(table: &mut Table, path: &[u8]) -> Headers {
        let mut block = vec![0x83, 0x44, path.len() as u8];
        block.extend(path);
        table.read(&block, false)
    }

    #[test]
    fn a_path_is_known_again_by_its_place_in_the_table() {
        let mut table = Table::default();
        let first = add_path(&mut table, b"/shop.Cart/Add");
        assert_eq!(said(&first), "POST /shop.Cart/Add");
        add_path(&mut table, b"/shop.Cart/Get");
        assert_eq!(
            said(&table.read(&[0x83, 0xbf], false)),
            "POST /shop.Cart/Add"
        );
        assert_eq!(
            said(&table.read(&[0x83, 0xbe], false)),
            "POST /shop.Cart/Get"
        );
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let mut table = Table::default();
        assert_eq!(said(&table.read(&[0x83, 0xbe], false)), "POST -");
        add_path(&mut table, b"/a");
        table.read(&[0x82], true); // it went on, perhaps with another field for the table
        assert_eq!(said(&table.read(&[0x83, 0xbe], false)), "POST -");
        add_path(&mut table, b"/a");
        table.read(&[0x44, 0x7f], false); // not a block
        assert_eq!(said(&table.read(&[0x83, 0xbe], false)), "POST -");
    }

    #[test]
    fn a_table_made_smaller_forgets() {
        let mut table = Table::default();
        add_path(&mut table, b"/a");
        table.read(&[0x20], false);
        assert_eq!(said(&table.read(&[0x83, 0xbe], false)), "POST -");
    }

    #[test]
    fn a_trace_is_found_by_its_name() {
        let mut block = vec![0x00, 11];
        block.extend(b"traceparent");
        block.extend([3, b'0', b'0', b'-']);
        let headers = Table::default().read(&block, false);
        assert_eq!(headers.trace.as_deref(), Some(&b"00-"[..]));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(blocks: Vec<(Vec<u8>, bool)>) {
            let mut table = Table::default();
            for (block, cut) in blocks {
                table.read(&block, cut);
                prop_assert!(table.bytes <= TABLE_BYTES);
                prop_assert!(table.entries.len() <= TABLE_BYTES / FIELD_BYTES);
            }
        }
    }
}
