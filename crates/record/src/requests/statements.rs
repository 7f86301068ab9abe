//! Names of the statements that a connection to PostgreSQL or MySQL brings.
//!
//! A statement that was prepared is executed by its number or name alone, so the connection remembers
//! what it prepared: of PostgreSQL, `Parse` gives the name; MySQL counts them.

use std::collections::VecDeque;

use super::sql::{Dialect, fingerprint};

/// Statements that a connection remembers, the last that were prepared.
const MOST_PREPARED: usize = 16;
/// Of a statement's name; a longer one is not remembered.
const LONGEST_KEY: usize = 40;
/// What begins a transaction says less than the statement that comes with it.
const BEGINS: &[&str] = &["BEGIN", "START"];
/// Statements by which clients prepare and forget other statements.
const PREPARES: &[&str] = &["PREPARE", "DEALLOCATE", "DISCARD"];
/// What a prepared statement is called that was not seen.
const EXECUTE: &str = "EXECUTE";
/// The header of a packet of MySQL: three bytes of its length, and its number.
const HEADER: usize = 4;

/// What a connection has prepared.
#[derive(Debug, Default)]
pub(super) struct Statements {
    prepared: VecDeque<(Vec<u8>, String)>,
    /// A header of MySQL that came by itself.
    header: Option<[u8; HEADER]>,
    /// How many statements of MySQL were prepared. `None`: it is not known.
    count: Option<u32>,
}

impl Statements {
    fn remember(&mut self, key: &[u8], name: &str) {
        self.prepared.retain(|(known, _)| known != key);
        if key.len() <= LONGEST_KEY {
            if self.prepared.len() >= MOST_PREPARED {
                self.prepared.pop_front();
            }
            self.prepared.push_back((key.to_vec(), name.to_owned()));
        }
    }

    fn executed(&self, key: &[u8]) -> String {
        let known = self.prepared.iter().find(|(known, _)| known == key);
        known.map_or(EXECUTE, |(_, name)| name).to_owned()
    }

    /// The name of the request that begins with these messages of PostgreSQL ("Frontend/Backend
    /// Protocol" of its documentation).
    pub(super) fn postgres(&mut self, mut text: &[u8]) -> Option<String> {
        let mut begin = None;
        while let Some(message) = Message::parse(text) {
            let name = match message.kind {
                b'Q' => return self.postgres_query(&message),
                b'P' => self.postgres_parse(&message),
                b'B' => self.postgres_bind(&message),
                // Close, Describe, Execute, Flush, Sync: what is asked comes behind them.
                b'C' | b'D' | b'E' | b'H' | b'S' => None,
                _ => break,
            };
            match name {
                // Some clients send it together with the first statement (pgJDBC).
                Some(name) if is_one_of(BEGINS, &name) => begin = Some(name),
                Some(name) => return Some(name),
                None if matches!(message.kind, b'P' | b'B') => break,
                None => (),
            }
            match message.behind {
                Some(behind) => text = behind,
                None => break,
            }
        }
        begin
    }

    fn postgres_query(&mut self, message: &Message<'_>) -> Option<String> {
        let (sql, cut) = until_zero(message.body);
        let name = fingerprint(sql, cut, Dialect::Postgres)?;
        if is_one_of(PREPARES, &name) {
            self.prepared.clear(); // these statements have the same names
        }
        Some(name)
    }

    fn postgres_parse(&mut self, message: &Message<'_>) -> Option<String> {
        let (key, rest) = whole(message.body)?;
        let (sql, cut) = until_zero(rest);
        let name = fingerprint(sql, cut, Dialect::Postgres)?;
        self.remember(key, &name);
        Some(name)
    }

    fn postgres_bind(&self, message: &Message<'_>) -> Option<String> {
        let (_, rest) = whole(message.body)?;
        let (key, formats) = whole(rest)?;
        // The number of the parameters' formats comes next, which is 0 or small.
        (formats.first().is_none_or(|high| *high == 0)).then(|| self.executed(key))
    }

    /// The same of what came behind the request's first bytes.
    pub(super) fn mysql_rest(&mut self, text: &[u8]) -> Option<String> {
        let header = self.header.take()?;
        self.mysql(&[&header, text].concat())
    }

    /// The name of the request that begins with this packet of MySQL ("Client/Server Protocol" of its
    /// documentation). Its header may come by itself.
    pub(super) fn mysql(&mut self, text: &[u8]) -> Option<String> {
        self.header = None;
        let (header, body) = text.split_first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if body.is_empty() {
            self.header = (header[3] <= 1).then_some(*header);
            return None;
        }
        if header[3] == 1 {
            self.count = Some(0); // it answers the greeting: nothing was prepared
        }
        if header[3] != 0 || length < body.len() {
            return None;
        }
        let (command, rest) = body.split_first()?;
        let cut = length > body.len();
        match command {
            0x03 => self.mysql_query(rest, cut),
            0x16 => {
                let number = self.count.map(|count| count.wrapping_add(1));
                self.count = number;
                let name = fingerprint(rest, cut, Dialect::MySql)?;
                if let Some(number) = number {
                    self.remember(&number.to_le_bytes(), &name);
                }
                Some(name)
            }
            0x17 => self.mysql_execute(rest),
            0x0e if length == 1 => Some("PING".to_owned()),
            0x11 | 0x1f => {
                self.count = None; // another user, or all is forgotten
                None
            }
            _ => None,
        }
    }

    fn mysql_query(&mut self, rest: &[u8], cut: bool) -> Option<String> {
        // Clients that may send attributes begin with how many: none, in one set.
        let sql = rest.strip_prefix(&[0, 1]).unwrap_or(rest);
        let name = fingerprint(sql, cut, Dialect::MySql)?;
        let verb = name.split(|c: char| !c.is_alphabetic()).next()?;
        let prepares = ["CALL", "EXECUTE", "PREPARE", "BEGIN"];
        if prepares
            .iter()
            .any(|other| other.eq_ignore_ascii_case(verb))
            && name.contains(' ')
        {
            self.count = None; // it may prepare statements that have numbers too
        }
        Some(name)
    }

    fn mysql_execute(&self, rest: &[u8]) -> Option<String> {
        let (number, rest) = rest.split_first_chunk::<4>()?;
        // Flags, and how many times: always once.
        if rest.len() < 5 || rest[1..5] != [1, 0, 0, 0] {
            return None;
        }
        Some(match self.count {
            Some(_) => self.executed(number),
            None => EXECUTE.to_owned(),
        })
    }
}

/// A message of PostgreSQL: its kind, its length and its body.
struct Message<'t> {
    kind: u8,
    /// What is known of it.
    body: &'t [u8],
    /// What comes after it; `None`: not known.
    behind: Option<&'t [u8]>,
}

impl<'t> Message<'t> {
    fn parse(text: &'t [u8]) -> Option<Self> {
        let (kind, rest) = text.split_first()?;
        let (length, body) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        // Longer ones are no statements, but text that is no such message.
        if !(4..1 << 24).contains(&length) {
            return None;
        }
        Some(Self {
            kind: *kind,
            body: &body[..body.len().min(length - 4)],
            behind: body.get(length - 4..),
        })
    }
}

/// Whether a statement begins with one of these words.
fn is_one_of(verbs: &[&str], name: &str) -> bool {
    let verb = name.split(|c: char| !c.is_alphabetic()).next();
    verb.is_some_and(|verb| verbs.iter().any(|one| one.eq_ignore_ascii_case(verb)))
}

/// What comes before the zero byte, and whether there is none.
fn until_zero(text: &[u8]) -> (&[u8], bool) {
    match text.iter().position(|byte| *byte == 0) {
        Some(end) => (&text[..end], false),
        None => (text, true),
    }
}

/// A printable text that ends with a zero byte, and what comes behind it.
fn whole(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == 0)?;
    let printable = text[..end].iter().all(|b| (b' '..0x7f).contains(b));
    printable.then(|| (&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message of PostgreSQL.
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// A packet of MySQL.
    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = (body.len() as u32).to_le_bytes().to_vec();
        packet[3] = number;
        packet.extend(body);
        packet
    }

    /// A prepared statement is executed once, without parameters.
    fn execute(number: u8) -> Vec<u8> {
        packet(0, &[0x17, number, 0, 0, 0, 0, 1, 0, 0, 0])
    }

    #[test]
    fn postgres_names_a_query_and_what_was_prepared() {
        let mut statements = Statements::default();
        let query = message(b'Q', b"SELECT 1\0");
        assert_eq!(statements.postgres(&query).as_deref(), Some("SELECT ?"));

        let bind = message(b'B', b"\0s1\0\0\0\0\0\0\0");
        assert_eq!(statements.postgres(&bind).as_deref(), Some("EXECUTE"));
        let parse = message(b'P', b"s1\0SELECT x FROM t WHERE y = $1\0\0\0");
        let name = Some("SELECT x FROM t WHERE y = ?");
        assert_eq!(statements.postgres(&parse).as_deref(), name);
        assert_eq!(statements.postgres(&bind).as_deref(), name);
        let behind_close = [message(b'C', b"Ss2\0"), bind].concat();
        assert_eq!(statements.postgres(&behind_close).as_deref(), name);
    }

    #[test]
    fn a_statement_that_comes_with_the_begin_of_its_transaction_gives_the_name() {
        let begin = [message(b'P', b"\0BEGIN\0\0\0"), message(b'B', &[0; 8])].concat();
        let begin = [begin, message(b'E', &[0; 5])].concat();
        let name = |text: &[u8]| Statements::default().postgres(text);
        assert_eq!(name(&begin).as_deref(), Some("BEGIN"));
        let both = [&begin[..], &message(b'P', b"\0SELECT x FROM t\0\0\0")].concat();
        assert_eq!(name(&both).as_deref(), Some("SELECT x FROM t"));
        assert_eq!(name(&both[..52]).as_deref(), Some("SELECT x…"));
    }

    #[test]
    fn a_name_that_was_given_to_another_statement_is_not_known_any_more() {
        let mut statements = Statements::default();
        statements.postgres(&message(b'P', b"s1\0SELECT 1\0\0\0"));
        statements.postgres(&message(b'Q', b"DEALLOCATE s1\0"));
        let bind = message(b'B', b"\0s1\0\0\0\0\0\0\0");
        assert_eq!(statements.postgres(&bind).as_deref(), Some("EXECUTE"));
    }

    #[test]
    fn a_statement_of_which_the_end_is_not_known_is_cut() {
        let query = message(b'Q', b"SELECT 'a secret' FROM t\0");
        let name = Statements::default().postgres(&query[..16]);
        assert_eq!(name.as_deref(), Some("SELECT ?…"));
    }

    #[test]
    fn mysql_names_a_query_and_what_was_prepared() {
        let mut statements = Statements::default();
        let mut name = |text: &[u8]| statements.mysql(text);
        assert_eq!(name(&execute(1)).as_deref(), Some("EXECUTE"));
        assert_eq!(name(&packet(1, b"\x8d\xa6\xff\x19")), None);
        let prepare = packet(0, b"\x16SELECT x FROM t WHERE y = ?");
        let prepared = Some("SELECT x FROM t WHERE y = ?");
        assert_eq!(name(&prepare).as_deref(), prepared);
        assert_eq!(name(&packet(0, b"\x16COMMIT")).as_deref(), Some("COMMIT"));
        assert_eq!(name(&execute(1)).as_deref(), prepared);
        assert_eq!(name(&execute(2)).as_deref(), Some("COMMIT"));
        let query = packet(0, b"\x03\0\x01SELECT 1");
        assert_eq!(name(&query).as_deref(), Some("SELECT ?"));
        assert_eq!(name(&packet(0, b"\x0e")).as_deref(), Some("PING"));
        // What a procedure prepares has numbers too.
        assert_eq!(
            name(&packet(0, b"\x03CALL p()")).as_deref(),
            Some("CALL p()")
        );
        assert_eq!(name(&execute(1)).as_deref(), Some("EXECUTE"));
    }

    #[test]
    fn a_header_of_mysql_may_come_by_itself() {
        let mut statements = Statements::default();
        let query = packet(0, b"\x03SELECT 1");
        assert_eq!(statements.mysql(&query[..HEADER]), None);
        let name = statements.mysql_rest(&query[HEADER..]);
        assert_eq!(name.as_deref(), Some("SELECT ?"));
        assert_eq!(statements.mysql_rest(&query[HEADER..]), None);
    }

    #[test]
    fn other_protocols_have_no_names() {
        for text in [
            &b"GET / HTTP/1.1"[..],
            b"*1\r\n$4\r\nPING\r\n",
            b"B\0\0\0\x09\xff\xff\0",
        ] {
            assert_eq!(Statements::default().postgres(text), None, "{text:?}");
            assert_eq!(Statements::default().mysql(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(texts: Vec<Vec<u8>>) {
            let mut statements = Statements::default();
            for text in texts {
                let _ = (statements.postgres(&text), statements.mysql(&text));
                let _ = statements.mysql_rest(&text);
                prop_assert!(statements.prepared.len() <= MOST_PREPARED);
            }
        }

        #[test]
        fn messages_that_are_cut_never_panic(
            kinds in "[QPBCDHSX]{1,4}", sql in "SELECT [a-z0-9', ]{0,9}", cut in 0_usize..64,
        ) {
            let mut statements = Statements::default();
            let body = [b"s\0", sql.as_bytes(), b"\0\0\0"].concat();
            let text: Vec<u8> = kinds.bytes().flat_map(|kind| message(kind, &body)).collect();
            let _ = statements.postgres(&text[..text.len().min(cut)]);
        }
    }
}
