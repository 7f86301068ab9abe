//! What a statement of SQL is called: the statement itself, without its values.
//!
//! Literals become `?`, a list of them one `?`, and white space one space. Comments are left out.

/// Which text is a literal, and which is a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `"…"` is a name. A backslash is one more character, but in `E'…'`.
    Postgres,
    /// `"…"` is a literal, a backslash takes the next character's meaning, `#` begins a comment.
    MySql,
}

/// What a statement begins with.
const VERBS: &[&str] = &[
    "ABORT",
    "ALTER",
    "ANALYZE",
    "BEGIN",
    "CALL",
    "CHECK",
    "CHECKPOINT",
    "CLOSE",
    "CLUSTER",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISCARD",
    "DO",
    "DROP",
    "END",
    "EXECUTE",
    "EXPLAIN",
    "FETCH",
    "FLUSH",
    "GRANT",
    "HANDLER",
    "INSERT",
    "KILL",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "MOVE",
    "NOTIFY",
    "OPTIMIZE",
    "PREPARE",
    "REFRESH",
    "REINDEX",
    "RELEASE",
    "REPAIR",
    "REPLACE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "TABLE",
    "TRUNCATE",
    "UNLISTEN",
    "UNLOCK",
    "UPDATE",
    "USE",
    "VACUUM",
    "VALUES",
    "WITH",
    "XA",
];

/// The statement without its values; `cut`: it goes on behind what is known of it. Then its name ends
/// with the first literal: how much is known behind it depends on the literal's length. `None`: this is
/// no statement.
pub(super) fn fingerprint(sql: &[u8], cut: bool, dialect: Dialect) -> Option<String> {
    let text = String::from_utf8_lossy(sql);
    let mut tokens = Tokens {
        rest: &text,
        dialect,
        after_operand: false,
    };
    let mut name = Fingerprint::default();
    let mut steady = None;
    while let Some(token) = tokens.next_token() {
        if name.text.is_empty() && token != Token::Space && !is_opening(token) {
            return None;
        }
        name.push(token);
        if token == Token::Literal {
            steady = steady.or(Some(name.text.len()));
        }
    }
    if name.text.is_empty() {
        return None;
    }
    if cut {
        name.text.truncate(steady.unwrap_or(name.text.len()));
        name.text.push('…');
    }
    Some(name.text)
}

fn is_opening(token: Token<'_>) -> bool {
    match token {
        Token::Word(word) => VERBS.iter().any(|verb| verb.eq_ignore_ascii_case(word)),
        Token::Other(other) => other == '(',
        Token::Space | Token::Literal | Token::Parameter => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    /// White space or a comment.
    Space,
    Literal,
    /// What stands for a value: `$1`, `?`.
    Parameter,
    /// A keyword or a name.
    Word(&'t str),
    Other(char),
}

struct Tokens<'t> {
    rest: &'t str,
    dialect: Dialect,
    /// What comes before is a value or a name: a sign that follows is an operator.
    after_operand: bool,
}

impl<'t> Tokens<'t> {
    fn next_token(&mut self) -> Option<Token<'t>> {
        let rest = self.rest;
        let first = rest.chars().next()?;
        let (token, length) = match first {
            _ if first.is_whitespace() || first == ';' => (Token::Space, first.len_utf8()),
            '-' if rest.starts_with("--") => (Token::Space, line(rest)),
            '#' if self.dialect == Dialect::MySql => (Token::Space, line(rest)),
            '/' if rest.starts_with("/*") => (
                Token::Space,
                rest.find("*/").map_or(rest.len(), |end| end + 2),
            ),
            '\'' => (
                Token::Literal,
                quoted(rest, '\'', self.dialect == Dialect::MySql),
            ),
            '"' if self.dialect == Dialect::MySql => (Token::Literal, quoted(rest, '"', true)),
            '"' | '`' => {
                let length = quoted(rest, first, false);
                (Token::Word(&rest[..length]), length)
            }
            '$' => dollar(rest),
            '?' => (Token::Parameter, 1),
            '0'..='9' => (Token::Literal, number(rest)),
            '-' | '+' if !self.after_operand && starts_with_digit(&rest[1..]) => {
                (Token::Literal, 1 + number(&rest[1..]))
            }
            '.' if starts_with_digit(&rest[1..]) => (Token::Literal, number(rest)),
            _ if is_of_name(first) => self.word(),
            _ => (Token::Other(first), first.len_utf8()),
        };
        self.rest = &rest[length..];
        match token {
            Token::Space => (),
            Token::Other(other) => self.after_operand = other == ')',
            _ => self.after_operand = true,
        }
        Some(token)
    }

    /// A word, or a literal with its prefix: `E'…'`, `N'…'`, `_utf8'…'`.
    fn word(&self) -> (Token<'t>, usize) {
        let length = self
            .rest
            .find(|c| !is_of_name(c))
            .unwrap_or(self.rest.len());
        let (word, behind) = self.rest.split_at(length);
        let is_prefix = word.len() == 1 || word.starts_with('_');
        if is_prefix && behind.starts_with('\'') {
            let escapes = self.dialect == Dialect::MySql || word.eq_ignore_ascii_case("e");
            return (Token::Literal, length + quoted(behind, '\'', escapes));
        }
        (Token::Word(word), length)
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '@'
}

/// The length of what goes to the end of the line.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a text in quotes. A quote that comes twice stands for itself.
fn quoted(text: &str, quote: char, escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && escapes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + quote.len_utf8();
        }
    }
    text.len()
}

/// `$1`, or `$tag$…$tag$`, with its length.
fn dollar(text: &str) -> (Token<'_>, usize) {
    let behind = &text[1..];
    let length = 1 + behind.find(|c| !is_of_name(c)).unwrap_or(behind.len());
    if !text[length..].starts_with('$') || starts_with_digit(behind) {
        return (Token::Parameter, length);
    }
    let tag = &text[..=length];
    let body = &text[tag.len()..];
    let length = body.find(tag).map(|end| tag.len() + end + tag.len());
    (Token::Literal, length.unwrap_or(text.len()))
}

/// The length of a number: `12`, `0x1f`, `1.5e-3`.
fn number(text: &str) -> usize {
    let mut before = ' ';
    let hex = text.starts_with("0x") || text.starts_with("0X");
    text.find(|c: char| {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E') && !hex;
        before = c;
        !(c.is_alphanumeric() || matches!(c, '.' | '_') || sign)
    })
    .unwrap_or(text.len())
}

#[derive(Debug, Default)]
struct Fingerprint {
    text: String,
    /// Space is to come before the next token.
    spaced: bool,
}

impl Fingerprint {
    fn push(&mut self, token: Token<'_>) {
        match token {
            Token::Space => self.spaced = !self.text.is_empty(),
            Token::Literal | Token::Parameter => self.value(),
            Token::Word(word) => {
                self.space();
                self.text.extend(word.chars().filter(|c| !c.is_control()));
            }
            Token::Other(c) => {
                self.space();
                self.text.extend(Some(c).filter(|c| !c.is_control()));
            }
        }
    }

    /// A list of values is one value, and a list of rows one row.
    fn value(&mut self) {
        self.space();
        let begun = ["(?), (", "(?),(", "?, ", "?,"];
        match begun.iter().find(|begun| self.text.ends_with(**begun)) {
            Some(begun) => {
                let value = begun.find('?').map_or(0, |at| at + 1);
                self.text.truncate(self.text.len() - begun.len() + value);
            }
            None => self.text.push('?'),
        }
    }

    fn space(&mut self) {
        if std::mem::take(&mut self.spaced) {
            self.text.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(sql: &str, dialect: Dialect) -> Option<String> {
        fingerprint(sql.as_bytes(), false, dialect)
    }

    #[test]
    fn a_statement_is_called_by_itself_without_its_values() {
        for (sql, expected) in [
            (
                "SELECT abalance FROM accounts WHERE aid = 4711;",
                "SELECT abalance FROM accounts WHERE aid = ?",
            ),
            ("select  *\n\tfrom t", "select * from t"),
            ("/* who */ SELECT 1 -- why", "SELECT ?"),
            ("SELECT 'it''s a secret', x", "SELECT ?, x"),
            ("SELECT E'it\\'s a secret', x", "SELECT ?, x"),
            ("SELECT $1, $2 FROM \"t 1\"", "SELECT ? FROM \"t 1\""),
            ("SELECT $a$se'cret$a$ x", "SELECT ? x"),
            (
                "SELECT x FROM t WHERE id IN (1,2, 3)",
                "SELECT x FROM t WHERE id IN (?)",
            ),
            ("SELECT 0x1f, 1.5e-3, .5, a1", "SELECT ?, a1"),
            (
                "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
                "INSERT INTO t VALUES (?)",
            ),
            ("(SELECT 1)", "(SELECT ?)"),
            ("BEGIN", "BEGIN"),
            ("UPDATE t SET a = a + -5", "UPDATE t SET a = a + ?"),
            ("SELECT (a)-5, b-2, a -1", "SELECT (a)-?, b-?, a -?"),
        ] {
            assert_eq!(
                of(sql, Dialect::Postgres).as_deref(),
                Some(expected),
                "{sql}"
            );
        }
        for (sql, expected) in [
            ("SELECT \"it\\\"s a secret\", x", "SELECT ?, x"),
            ("SELECT 'it\\'s', `a b` # why", "SELECT ?, `a b`"),
            ("SELECT _utf8'a' , ?", "SELECT ? , ?"),
        ] {
            assert_eq!(of(sql, Dialect::MySql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_is_no_statement_has_no_name() {
        for text in ["", "  ", "hello world", "'SELECT'", "1 SELECT", "-- SELECT"] {
            assert_eq!(of(text, Dialect::Postgres), None, "{text:?}");
        }
    }

    #[test]
    fn values_that_are_cut_off_stay_unknown() {
        let name = |sql: &str| fingerprint(sql.as_bytes(), true, Dialect::Postgres);
        assert_eq!(name("SELECT 'secr").as_deref(), Some("SELECT ?…"));
        assert_eq!(name("SELECT $q$secr").as_deref(), Some("SELECT ?…"));
        assert_eq!(name("SELECT a /* secr").as_deref(), Some("SELECT a…"));
    }

    #[test]
    fn the_name_of_a_cut_statement_does_not_depend_on_its_values_lengths() {
        for number in [1_u32, 4711, 1 << 30] {
            let sql = format!("UPDATE t SET a = a + {number} WHERE b = $1 AND c");
            let name = fingerprint(&sql.as_bytes()[..36], true, Dialect::Postgres);
            assert_eq!(name.as_deref(), Some("UPDATE t SET a = a + ?…"), "{sql}");
        }
        let name = fingerprint(b"SELECT $1 FROM t W", true, Dialect::Postgres);
        assert_eq!(name.as_deref(), Some("SELECT ? FROM t W…"));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(text: Vec<u8>) {
            let _ = fingerprint(&text, true, Dialect::Postgres);
            let _ = fingerprint(&text, true, Dialect::MySql);
        }

        #[test]
        fn no_value_is_in_a_name(value in "[a-z ]{3,9}", count in 1_usize..5, number: u32) {
            let values = vec![format!("'{value}qq', {number}"); count].join(", ");
            let sql = format!("SELECT x FROM t WHERE y IN ({values})");
            for dialect in [Dialect::Postgres, Dialect::MySql] {
                let name = of(&sql, dialect);
                prop_assert_eq!(name.as_deref(), Some("SELECT x FROM t WHERE y IN (?)"));
            }
        }
    }
}
