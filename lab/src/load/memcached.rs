//! memcached's text protocol: `get` and `set`.

use std::io::Write as _;

use super::protocol::{Garbled, Protocol, Reply, Verdict, line};
use crate::random::Random;

/// Longer than any line memcached sends: 250 bytes of key, flags and size.
const LONGEST_LINE: usize = 1024;

/// How many keys one step of the preparation writes.
const PREFILL_BATCH: u64 = 256;

/// Gets and sets of uniformly drawn keys.
pub struct Memcached {
    pub keys: u64,
    pub set_ratio: f64,
    pub value: Vec<u8>,
}

impl Memcached {
    fn set(&self, key: u64, out: &mut Vec<u8>) {
        let size = self.value.len();
        write!(out, "set key-{key:010} 0 0 {size}\r\n").expect("a Vec takes every write");
        out.extend_from_slice(&self.value);
        out.extend_from_slice(b"\r\n");
    }
}

impl Protocol for Memcached {
    fn request(&self, random: &mut Random, out: &mut Vec<u8>) {
        let key = random.below(self.keys);
        if self.set_ratio > 0.0 && random.chance(self.set_ratio) {
            self.set(key, out);
        } else {
            write!(out, "get key-{key:010}\r\n").expect("a Vec takes every write");
        }
    }

    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled> {
        let garbled = |expected| Garbled::new("memcached's text protocol", expected, received);
        let Some((head, body)) = line(received) else {
            return if received.len() > LONGEST_LINE {
                Err(garbled("a line"))
            } else {
                Ok(None)
            };
        };
        let whole = |verdict, length| {
            Ok(Some(Reply {
                verdict,
                length,
                closes: false,
            }))
        };
        let Some(value) = head.strip_prefix(b"VALUE ") else {
            return match head {
                b"STORED" => whole(Verdict::Ok, body),
                b"END" | b"NOT_STORED" => whole(Verdict::Miss, body),
                b"ERROR" => whole(Verdict::Error, body),
                _ if head.starts_with(b"SERVER_ERROR") || head.starts_with(b"CLIENT_ERROR") => {
                    whole(Verdict::Error, body)
                }
                _ => Err(garbled("VALUE, END, STORED or an error")),
            };
        };
        // VALUE <key> <flags> <bytes> [<cas>]
        let size: usize = std::str::from_utf8(value)
            .ok()
            .and_then(|value| value.split(' ').nth(2)?.parse().ok())
            .ok_or_else(|| garbled("VALUE <key> <flags> <bytes>"))?;
        let tail: &[u8] = b"\r\nEND\r\n";
        let length = size
            .checked_add(body + tail.len())
            .ok_or_else(|| garbled("a size"))?;
        if received.len() < length {
            return Ok(None);
        }
        if &received[length - tail.len()..length] != tail {
            return Err(garbled("END after the value"));
        }
        whole(Verdict::Ok, length)
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

    fn memcached() -> Memcached {
        Memcached {
            keys: 1_000,
            set_ratio: 0.0,
            value: vec![b'x'; 10],
        }
    }

    fn verdict(bytes: &[u8]) -> Option<(Verdict, usize)> {
        memcached()
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
    fn another_protocol_is_refused() {
        for wrong in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"VALUE k 0 x\r\n",
            &[b'a'; 2000],
        ] {
            assert!(memcached().reply(wrong).is_err());
        }
        assert!(memcached().reply(b"VALUE k 0 1\r\nabcdefghijk").is_err());
        assert!(
            memcached()
                .reply(b"VALUE k 0 18446744073709551615\r\n")
                .is_err()
        );
    }

    #[test]
    fn preparation_sets_every_key_once() {
        let memcached = memcached();
        let (mut out, mut replies) = (Vec::new(), 0);
        for step in 0.. {
            let Some(n) = memcached.prepare(step, &mut out) else {
                break;
            };
            replies += n;
        }
        let text = String::from_utf8(out).expect("ASCII");
        assert_eq!((replies, text.matches("set key-").count()), (1_000, 1_000));
        assert!(text.contains("set key-0000000999 0 0 10\r\nxxxxxxxxxx\r\n"));
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
                while let Some(reply) = memcached().reply(&inbox).expect("well-formed") {
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
            let _ = memcached().reply(&bytes);
            let mut value = b"VALUE ".to_vec();
            value.extend_from_slice(&bytes);
            let _ = memcached().reply(&value);
        }
    }
}
