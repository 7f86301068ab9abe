//! What requests are called, by the first bytes that came in.
//!
//! Only fields that say which kind of request it is: of HTTP the method and the path, in which
//! numbers and ids are folded, without its query; of Redis and memcached the command; of PostgreSQL and
//! MySQL the statement without its values. Of a protocol that is not known there is no name.

use std::str::FromStr;

use super::statements::Statements;

/// What the first bytes of a connection show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/2.
    Http2,
    /// Encrypted.
    Tls,
    /// Anything else.
    Other,
}

/// A path's parts beyond these are left out.
const MOST_PARTS: usize = 6;

const METHODS: &[&str] = &[
    "GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE",
];

const MEMCACHED: &[&str] = &[
    "get",
    "gets",
    "set",
    "add",
    "cas",
    "gat",
    "gats",
    "incr",
    "decr",
    "delete",
    "touch",
    "append",
    "prepend",
    "replace",
    "mg",
    "ms",
    "md",
    "ma",
    "stats",
    "version",
    "flush_all",
];

pub(super) fn protocol(text: &[u8]) -> Protocol {
    match text {
        [b'P', b'R', b'I', b' ', ..] => Protocol::Http2,
        [0x14..=0x17, 3, 0..=4, ..] => Protocol::Tls,
        _ => Protocol::Other,
    }
}

/// Whether it begins with a record of TLS that has no data of a program.
pub(super) fn is_handshake(text: &[u8]) -> bool {
    matches!(text, [0x14..=0x16, ..])
}

/// Whether a client confirms with it what was pushed to it, in MQTT, AMQP 0-9-1 or STOMP.
pub(super) fn is_confirmation(text: &[u8]) -> bool {
    match text {
        // PUBACK and PUBCOMP: the number of the message, and in MQTT 5 a reason. Servers read the first byte
        // by itself; `p`, as PUBCOMP begins, may then be a word of another protocol.
        [0x40] | [0x40 | 0x70, 2..=4, ..] => true,
        // A frame with the method basic.ack, .reject or .nack.
        [1, _, _, 0, 0, 0, _, 0, 60, 0, 80 | 90 | 120, ..] => true,
        _ => text.starts_with(b"ACK\n") || text.starts_with(b"NACK\n"),
    }
}

/// By which protocol requests are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Naming {
    /// By the one that their first bytes show.
    #[default]
    Auto,
    /// HTTP: method and path.
    Http,
    /// Redis: the command.
    Redis,
    /// Memcached: the command.
    Memcached,
    /// PostgreSQL: the statement without its values.
    Postgres,
    /// MySQL and MariaDB: the same.
    MySql,
    /// Not at all: of their bytes only four are looked at, which say whether the connection can be
    /// followed.
    None,
}

/// No protocol by which requests are named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' gives no names: use auto, http, redis, memcached, postgresql, mysql or none")]
pub struct UnknownNaming(String);

impl FromStr for Naming {
    type Err = UnknownNaming;

    fn from_str(text: &str) -> Result<Self, UnknownNaming> {
        match text {
            "auto" => Ok(Self::Auto),
            "http" => Ok(Self::Http),
            "redis" => Ok(Self::Redis),
            "memcached" => Ok(Self::Memcached),
            "postgresql" => Ok(Self::Postgres),
            "mysql" => Ok(Self::MySql),
            "none" => Ok(Self::None),
            _ => Err(UnknownNaming(text.to_owned())),
        }
    }
}

impl Naming {
    /// The name of the request that begins with these bytes. `statements`: what its connection has
    /// prepared.
    pub(super) fn name(self, text: &[u8], statements: &mut Statements) -> Option<String> {
        match self {
            Self::Auto => http(text)
                .or_else(|| redis(text))
                .or_else(|| memcached(text))
                .or_else(|| statements.postgres(text))
                .or_else(|| statements.mysql(text)),
            Self::Http => http(text),
            Self::Redis => redis(text),
            Self::Memcached => memcached(text),
            Self::Postgres => statements.postgres(text),
            Self::MySql => statements.mysql(text),
            Self::None => None,
        }
    }

    /// The name of a request over HTTP/2, by its headers.
    pub(super) fn name_of_stream(self, method: &[u8], path: &[u8]) -> Option<String> {
        if !matches!(self, Self::Auto | Self::Http) {
            return None;
        }
        let method = std::str::from_utf8(method).ok()?;
        if !METHODS.contains(&method) {
            return None;
        }
        let path = path.split(|b| matches!(b, b'?' | b'#')).next()?;
        Some(match method_of_rpc(path) {
            Some(call) if method == "POST" => format!("POST {call}"),
            _ if path.first() != Some(&b'/') => method.to_owned(),
            _ => format!("{method} {}", template(path, false)),
        })
    }

    /// The name of a request whose first bytes did not have it, by those that came behind them.
    pub(super) fn name_of_rest(self, text: &[u8], statements: &mut Statements) -> Option<String> {
        match self {
            Self::Auto | Self::MySql => statements.mysql_rest(text),
            _ => None,
        }
    }
}

fn http(text: &[u8]) -> Option<String> {
    let mut words = text.split(|b| *b == b' ');
    let method = std::str::from_utf8(words.next()?).ok()?;
    if !METHODS.contains(&method) {
        return None;
    }
    let rest = text.get(method.len() + 1..)?;
    let end = rest
        .iter()
        .position(|b| matches!(b, b' ' | b'?' | b'#' | b'\r' | b'\n'));
    let path = &rest[..end.unwrap_or(rest.len())];
    let path = path.strip_prefix(b"http://").map_or(path, |rest| {
        let slash = rest.iter().position(|b| *b == b'/');
        slash.map_or(&rest[..0], |at| &rest[at..])
    });
    if method == "CONNECT" || path.first() != Some(&b'/') {
        return Some(method.to_owned());
    }
    Some(format!("{method} {}", template(path, end.is_none())))
}

/// The path of a call of gRPC, `/package.Service/Method`, which has no ids but may have long words.
fn method_of_rpc(path: &[u8]) -> Option<&str> {
    const LONGEST: usize = 160;
    let text = std::str::from_utf8(path).ok()?;
    let (service, method) = text.strip_prefix('/')?.split_once('/')?;
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let is_call = service.contains('.') && service.split('.').all(is_word) && is_word(method);
    (is_call && path.len() <= LONGEST).then_some(text)
}

/// A path with its numbers and ids folded. `cut`: its last part goes on.
fn template(path: &[u8], cut: bool) -> String {
    let mut name = String::new();
    let parts: Vec<_> = path[1..].split(|b| *b == b'/').collect();
    for (at, part) in parts.iter().enumerate() {
        name.push('/');
        if at >= MOST_PARTS || (cut && at + 1 == parts.len()) {
            name.push('…');
            break;
        }
        match std::str::from_utf8(part) {
            Ok(part) if !is_id(part) => name.push_str(part),
            _ => name.push_str("{id}"),
        }
    }
    name
}

/// Whether a part of a path says which thing, rather than which kind: a number, a hash, an address,
/// or what is escaped.
fn is_id(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    let hex = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    let is_version = part.len() <= 3 && part.starts_with('v');
    !part.bytes().all(plain)
        || (digits > 0 && !is_version && (digits * 2 >= part.len() || part.bytes().all(hex)))
        || digits >= 4
        || part.len() > 24
}

fn word_of(text: &[u8]) -> Option<&str> {
    let end = text
        .iter()
        .position(|b| matches!(b, b' ' | b'\r' | b'\n'))?;
    std::str::from_utf8(&text[..end]).ok()
}

/// An array of bulk strings: `*2\r\n$3\r\nGET\r\n…`.
fn redis(text: &[u8]) -> Option<String> {
    let text = text.strip_prefix(b"*")?;
    let dollar = text.iter().position(|b| *b == b'$')?;
    let line = dollar + text[dollar..].iter().position(|b| *b == b'\n')? + 1;
    let command = word_of(&text[line..])?;
    let is_command =
        (2..=20).contains(&command.len()) && command.bytes().all(|b| b.is_ascii_alphabetic());
    is_command.then(|| command.to_ascii_uppercase())
}

fn memcached(text: &[u8]) -> Option<String> {
    let command = word_of(text)?;
    MEMCACHED.contains(&command).then(|| command.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_of(naming: Naming, text: &[u8]) -> Option<String> {
        naming.name(text, &mut Statements::default())
    }

    #[test]
    fn a_name_says_which_kind_of_request_it_is() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n", Some("GET /")),
            ("GET /search?q=secret HTTP/1.1\r\n", Some("GET /search")),
            (
                "POST /users/4711/orders HTTP/1.1",
                Some("POST /users/{id}/orders"),
            ),
            (
                "GET /api/v2/items/9f86d081884c7d65 HTTP/1.1",
                Some("GET /api/v2/items/{id}"),
            ),
            ("GET /a%20b/c HTTP/1.1", Some("GET /{id}/c")),
            ("GET http://host/x HTTP/1.1", Some("GET /x")),
            ("GET /a/b/c/d/e/f/g/h HTTP/1.1", Some("GET /a/b/c/d/e/f/…")),
            ("GET /search/something-that-goes-on", Some("GET /search/…")),
            ("CONNECT host:443 HTTP/1.1", Some("CONNECT")),
            ("*2\r\n$3\r\nget\r\n$1\r\nk\r\n", Some("GET")),
            ("get secret\r\n", Some("get")),
            ("set k 0 0 1\r\n1\r\n", Some("set")),
            ("gettysburg address\r\n", None),
            ("\x16\x03\x01", None),
            ("", None),
        ] {
            let name = name_of(Naming::Auto, text.as_bytes());
            assert_eq!(name.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_request_over_http2_is_named_by_its_headers() {
        for (method, path, expected) in [
            ("GET", "/users/4711?q=secret", Some("GET /users/{id}")),
            (
                "POST",
                "/shop.v1.ShoppingCartService/Add",
                Some("POST /shop.v1.ShoppingCartService/Add"),
            ),
            (
                "POST",
                "/shop.v1.ShoppingCartService/4711",
                Some("POST /{id}/{id}"),
            ),
            ("CONNECT", "", Some("CONNECT")),
            ("OPTIONS", "*", Some("OPTIONS")),
            ("MAKE", "/", None),
        ] {
            let name = Naming::Auto.name_of_stream(method.as_bytes(), path.as_bytes());
            assert_eq!(name.as_deref(), expected, "{method} {path}");
            assert_eq!(
                Naming::Redis.name_of_stream(method.as_bytes(), path.as_bytes()),
                None
            );
        }
    }

    #[test]
    fn only_the_chosen_protocol_gives_names() {
        let texts: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"get k\r\n",
            b"Q\0\0\0\x0bCOMMIT\0",
            b"\x01\0\0\0\x0e",
        ];
        for (naming, expected) in [
            ("http", [Some("GET /"), None, None, None, None]),
            ("redis", [None, Some("PING"), None, None, None]),
            ("memcached", [None, None, Some("get"), None, None]),
            ("postgresql", [None, None, None, Some("COMMIT"), None]),
            ("mysql", [None, None, None, None, Some("PING")]),
            ("none", [None; 5]),
        ] {
            let naming: Naming = naming.parse().expect("it is known");
            assert_eq!(
                texts
                    .map(|text| name_of(naming, text))
                    .each_ref()
                    .map(Option::as_deref),
                expected
            );
        }
        let error = "http2".parse::<Naming>().expect_err("it is unknown");
        assert!(error.to_string().contains("memcached"), "{error}");
    }

    #[test]
    fn protocols_that_can_not_be_followed_are_known() {
        assert_eq!(protocol(b"PRI * HTTP/2.0\r\n"), Protocol::Http2);
        assert_eq!(protocol(&[0x16, 3, 1, 0, 5]), Protocol::Tls);
        assert_eq!(protocol(b"GET / HTTP/1.1"), Protocol::Other);
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(text: Vec<u8>) {
            let _ = (name_of(Naming::Auto, &text), protocol(&text));
        }

        #[test]
        fn a_name_is_bounded(path in "/[a-z0-9/%?.-]{0,63}") {
            let text = format!("GET {path} HTTP/1.1");
            let text = &text.as_bytes()[..text.len().min(64)];
            let name = name_of(Naming::Auto, text).expect("one");
            prop_assert!(name.len() <= 200);
        }
    }
}
