//! Redis' protocol (RESP2): `MGET` and `SET`.

use std::io::Write as _;

use super::protocol::{Garbled, Protocol, Reply, Verdict, line};
use crate::random::Random;

/// A line holds a type and a number, or an error's text.
const LONGEST_LINE: usize = 4096;

/// How many keys one step of the preparation writes.
const PREFILL_BATCH: u64 = 256;

/// Reads and writes of uniformly drawn keys.
pub struct Redis {
    pub keys: u64,
    /// Keys in one `MGET`.
    pub batch: u16,
    pub set_ratio: f64,
    pub value: Vec<u8>,
}

impl Redis {
    fn set(&self, key: u64, out: &mut Vec<u8>) {
        write!(
            out,
            "*3\r\n$3\r\nSET\r\n$14\r\nkey-{key:010}\r\n${}\r\n",
            self.value.len()
        )
        .expect("a Vec takes every write");
        out.extend_from_slice(&self.value);
        out.extend_from_slice(b"\r\n");
    }
}

impl Protocol for Redis {
    fn request(&self, random: &mut Random, out: &mut Vec<u8>) {
        if self.set_ratio > 0.0 && random.chance(self.set_ratio) {
            return self.set(random.below(self.keys), out);
        }
        write!(out, "*{}\r\n$4\r\nMGET\r\n", self.batch + 1).expect("a Vec takes every write");
        for _ in 0..self.batch {
            let key = random.below(self.keys);
            write!(out, "$14\r\nkey-{key:010}\r\n").expect("a Vec takes every write");
        }
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
                    let end = length.checked_add(at + 2);
                    let end = end.ok_or_else(|| garbled("a length"))?;
                    if received.len() < end {
                        return Ok(None);
                    }
                    if &received[end - 2..end] != b"\r\n" {
                        return Err(garbled("a new line after the value"));
                    }
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

    fn prepare(&self, step: usize, out: &mut Vec<u8>) -> Option<usize> {
        let first = step as u64 * PREFILL_BATCH;
        let end = (first + PREFILL_BATCH).min(self.keys);
        (first..end).for_each(|key| self.set(key, out));
        (first < end).then(|| (end - first) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(bytes: &[u8]) -> Result<Option<(Verdict, usize)>, Garbled> {
        let redis = Redis {
            keys: 10,
            batch: 2,
            set_ratio: 0.0,
            value: vec![b'x'; 3],
        };
        redis
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
