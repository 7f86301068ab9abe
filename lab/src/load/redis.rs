//! Redis' protocol (RESP2): `MGET` and `SET`.

use std::io::Write as _;

use super::keyvalue::{Dialect, value_end};
use super::protocol::{Garbled, Reply, Verdict, line};

/// A line holds a type and a number, or an error's text.
const LONGEST_LINE: usize = 4096;

/// Redis and its kin.
pub struct Redis;

impl Dialect for Redis {
    fn get(&self, keys: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        write!(out, "*{}\r\n$4\r\nMGET\r\n", keys.len() + 1).expect("a Vec takes every write");
        for key in keys {
            write!(out, "$14\r\nkey-{key:010}\r\n").expect("a Vec takes every write");
        }
    }

    fn set(&self, key: u64, value: &[u8], out: &mut Vec<u8>) {
        let size = value.len();
        write!(
            out,
            "*3\r\n$3\r\nSET\r\n$14\r\nkey-{key:010}\r\n${size}\r\n"
        )
        .expect("a Vec takes every write");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled> {
        let garbled = |expected| Garbled::new("Redis' protocol", expected, received);
        let mut at = 0;
        let mut parts = 1u64;
        let mut verdict = Verdict::Ok;
        while parts > 0 {
            let Some((head, body)) = line(&received[at..]) else {
                return if received.len() - at > LONGEST_LINE {
                    Err(garbled("a line"))
                } else {
                    Ok(None)
                };
            };
            at += body;
            parts -= 1;
            let (kind, rest) = head.split_first().ok_or_else(|| garbled("a type"))?;
            let number = || {
                std::str::from_utf8(rest)
                    .ok()
                    .and_then(|text| text.parse::<i64>().ok())
                    .ok_or_else(|| garbled("a number"))
            };
            match kind {
                b'+' | b':' => {}
                b'-' => verdict = Verdict::Error,
                b'*' => parts = parts.saturating_add(number()?.max(0) as u64),
                b'$' => {
                    let Ok(length) = usize::try_from(number()?) else {
                        verdict = Verdict::Miss;
                        continue;
                    };
                    let Some(end) = value_end(received, at, length).map_err(garbled)? else {
                        return Ok(None);
                    };
                    at = end;
                }
                _ => return Err(garbled("one of + - : $ *")),
            }
        }
        Ok(Some(Reply {
            verdict,
            length: at,
            closes: false,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(bytes: &[u8]) -> Result<Option<(Verdict, usize)>, Garbled> {
        Redis
            .reply(bytes)
            .map(|found| found.map(|reply| (reply.verdict, reply.length)))
    }

    #[test]
    fn replies_are_judged() {
        assert_eq!(reply(b"+OK\r\n+OK"), Ok(Some((Verdict::Ok, 5))));
        assert_eq!(
            reply(b"*2\r\n$3\r\nabc\r\n$-1\r\n"),
            Ok(Some((Verdict::Miss, 18)))
        );
        assert_eq!(reply(b"-ERR no\r\n"), Ok(Some((Verdict::Error, 9))));
        assert!(reply(b"HTTP/1.1\r\n").is_err());
        assert!(reply(b"$3\r\nabcde").is_err());
    }

    proptest! {
        #[test]
        fn a_reply_that_is_cut_is_waited_for(cut in 0usize..26) {
            let whole = b"*2\r\n$3\r\n\r\n+\r\n$4\r\nabcd\r\n";
            let cut = cut.min(whole.len() - 1);
            prop_assert_eq!(reply(&whole[..cut]), Ok(None));
            prop_assert_eq!(reply(whole), Ok(Some((Verdict::Ok, whole.len()))));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = reply(&bytes);
        }
    }
}
