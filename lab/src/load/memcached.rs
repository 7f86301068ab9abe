//! memcached's text protocol: `get` and `set`.

use std::io::Write as _;

use super::keyvalue::{Dialect, value_end};
use super::protocol::{Garbled, Reply, Verdict, line};

/// Longer than any line memcached sends: 250 bytes of key, flags and size.
const LONGEST_LINE: usize = 1024;

/// memcached, by its text protocol.
pub struct Memcached;

impl Dialect for Memcached {
    fn get(&self, keys: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get");
        for key in keys {
            write!(out, " key-{key:010}").expect("a Vec takes every write");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn set(&self, key: u64, value: &[u8], out: &mut Vec<u8>) {
        let size = value.len();
        write!(out, "set key-{key:010} 0 0 {size}\r\n").expect("a Vec takes every write");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled> {
        let garbled = |expected| Garbled::new("memcached's text protocol", expected, received);
        let (mut at, mut values) = (0, 0);
        loop {
            let Some((head, body)) = line(&received[at..]) else {
                return if received.len() - at > LONGEST_LINE {
                    Err(garbled("a line"))
                } else {
                    Ok(None)
                };
            };
            at += body;
            let Some(value) = head.strip_prefix(b"VALUE ") else {
                let verdict = match head {
                    b"END" if values > 0 => Verdict::Ok,
                    b"STORED" if values == 0 => Verdict::Ok,
                    b"END" | b"NOT_STORED" if values == 0 => Verdict::Miss,
                    b"ERROR" => Verdict::Error,
                    _ if head.starts_with(b"SERVER_ERROR") || head.starts_with(b"CLIENT_ERROR") => {
                        Verdict::Error
                    }
                    _ if values > 0 => return Err(garbled("VALUE, END or an error")),
                    _ => return Err(garbled("VALUE, END, STORED or an error")),
                };
                return Ok(Some(Reply {
                    verdict,
                    length: at,
                    closes: false,
                }));
            };
            // VALUE <key> <flags> <bytes> [<cas>]
            let size: usize = std::str::from_utf8(value)
                .ok()
                .and_then(|value| value.split(' ').nth(2)?.parse().ok())
                .ok_or_else(|| garbled("VALUE <key> <flags> <bytes>"))?;
            let Some(end) = value_end(received, at, size).map_err(garbled)? else {
                return Ok(None);
            };
            (at, values) = (end, values + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(bytes: &[u8]) -> Option<(Verdict, usize)> {
        Memcached
            .reply(bytes)
            .expect("well-formed")
            .map(|r| (r.verdict, r.length))
    }

    #[test]
    fn replies_are_judged() {
        assert_eq!(
            verdict(b"VALUE k 0 3\r\nabc\r\nEND\r\nEND"),
            Some((Verdict::Ok, 23))
        );
        assert_eq!(verdict(b"END\r\n"), Some((Verdict::Miss, 5)));
        assert_eq!(verdict(b"STORED\r\nEND\r\n"), Some((Verdict::Ok, 8)));
        assert_eq!(
            verdict(b"SERVER_ERROR out of memory\r\n"),
            Some((Verdict::Error, 28))
        );
        assert_eq!(verdict(b"VALUE k 0 3\r\nabc\r\nEND\r"), None);
        assert_eq!(verdict(b""), None);
    }

    #[test]
    fn a_value_may_contain_what_looks_like_a_reply() {
        assert_eq!(
            verdict(b"VALUE k 0 7\r\nEND\r\nab\r\nEND\r\n"),
            Some((Verdict::Ok, 27))
        );
    }

    #[test]
    fn one_reply_carries_all_values_of_a_get() {
        let two = b"VALUE a 0 1\r\nx\r\nVALUE b 0 2\r\nxy\r\nEND\r\n";
        assert_eq!(verdict(two), Some((Verdict::Ok, two.len())));
        assert_eq!(verdict(&two[..two.len() - 1]), None);
        let cut = b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n";
        assert_eq!(verdict(cut), Some((Verdict::Error, cut.len())));
        assert!(Memcached.reply(b"VALUE a 0 1\r\nx\r\nSTORED\r\n").is_err());
    }

    #[test]
    fn another_protocol_is_refused() {
        for wrong in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"VALUE k 0 x\r\n",
            &[b'a'; 2000],
        ] {
            assert!(Memcached.reply(wrong).is_err());
        }
        assert!(Memcached.reply(b"VALUE k 0 1\r\nabcdefghijk").is_err());
        assert!(
            Memcached
                .reply(b"VALUE k 0 18446744073709551615\r\n")
                .is_err()
        );
    }

    proptest! {
        /// Bytes that come one at a time or all at once give the same replies.
        #[test]
        fn replies_do_not_depend_on_how_reads_are_split(
            values in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..80).prop_map(Some),
                    Just(None),
                ], 1..20),
            cuts in prop::collection::vec(1usize..50, 1..40),
        ) {
            let mut stream = Vec::new();
            for value in &values {
                match value {
                    Some(value) => {
                        write!(stream, "VALUE key 0 {}\r\n", value.len()).expect("Vec");
                        stream.extend_from_slice(value);
                        stream.extend_from_slice(b"\r\nEND\r\n");
                    }
                    None => stream.extend_from_slice(b"END\r\n"),
                }
            }
            let (mut inbox, mut seen, mut at) = (Vec::new(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                inbox.extend_from_slice(&stream[at..end]);
                at = end;
                while let Some(reply) = Memcached.reply(&inbox).expect("well-formed") {
                    seen.push(reply.verdict);
                    inbox.drain(..reply.length);
                }
                if at == stream.len() { break; }
            }
            let expected: Vec<Verdict> = values.iter()
                .map(|v| if v.is_some() { Verdict::Ok } else { Verdict::Miss }).collect();
            prop_assert_eq!(seen, expected);
            prop_assert!(inbox.is_empty());
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Memcached.reply(&bytes);
            let mut value = b"VALUE ".to_vec();
            value.extend_from_slice(&bytes);
            let _ = Memcached.reply(&value);
        }
    }
}
