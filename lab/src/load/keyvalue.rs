//! The load on a key-value server: reads and writes of uniformly drawn keys, whatever its protocol.

use super::protocol::{Garbled, Protocol, Reply};
use crate::random::Random;

/// How many keys one step of the preparation writes.
const PREFILL_BATCH: u64 = 256;

/// How a key-value server is spoken to.
pub trait Dialect {
    /// Appends the request for the values of these keys.
    fn get(&self, keys: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>);

    /// Appends the request that gives a key its value.
    fn set(&self, key: u64, value: &[u8], out: &mut Vec<u8>);

    /// As [`Protocol::reply`].
    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled>;
}

/// Gets and sets of uniformly drawn keys.
pub struct KeyValue<D> {
    pub dialect: D,
    pub keys: u64,
    /// Keys in one get.
    pub batch: u16,
    /// Share of the requests that are sets.
    pub set_ratio: f64,
    /// Every key's value.
    pub value: Vec<u8>,
}

impl<D: Dialect> Protocol for KeyValue<D> {
    fn request(&self, random: &mut Random, out: &mut Vec<u8>) {
        if self.set_ratio > 0.0 && random.chance(self.set_ratio) {
            return self.dialect.set(random.below(self.keys), &self.value, out);
        }
        let keys = (0..self.batch).map(|_| random.below(self.keys));
        self.dialect.get(keys, out);
    }

    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled> {
        self.dialect.reply(received)
    }

    fn prepare(&self, step: usize, out: &mut Vec<u8>) -> Option<usize> {
        let first = step as u64 * PREFILL_BATCH;
        let end = (first + PREFILL_BATCH).min(self.keys);
        (first..end).for_each(|key| self.dialect.set(key, &self.value, out));
        (first < end).then(|| (end - first) as usize)
    }
}

/// Where the value ends whose `size` bytes and new line begin at `at`. None while it isn't whole.
pub fn value_end(received: &[u8], at: usize, size: usize) -> Result<Option<usize>, &'static str> {
    let end = size.checked_add(at + 2).ok_or("a size")?;
    match received.get(end - 2..end) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(end)),
        Some(_) => Err("a new line after the value"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::memcached::Memcached;
    use super::*;

    fn load() -> KeyValue<Memcached> {
        KeyValue {
            dialect: Memcached,
            keys: 1_000,
            batch: 3,
            set_ratio: 0.0,
            value: vec![b'x'; 10],
        }
    }

    #[test]
    fn a_get_asks_for_as_many_keys_as_told() {
        let mut out = Vec::new();
        load().request(&mut Random::seeded(1), &mut out);
        assert!(out.starts_with(b"get key-") && out.ends_with(b"\r\n"));
        assert_eq!(out.iter().filter(|byte| **byte == b' ').count(), 3);
    }

    #[test]
    fn preparation_sets_every_key_once() {
        let load = load();
        let (mut out, mut replies) = (Vec::new(), 0);
        for step in 0.. {
            let Some(n) = load.prepare(step, &mut out) else {
                break;
            };
            replies += n;
        }
        let text = String::from_utf8(out).expect("ASCII");
        assert_eq!((replies, text.matches("set key-").count()), (1_000, 1_000));
        assert!(text.contains("set key-0000000999 0 0 10\r\nxxxxxxxxxx\r\n"));
    }

    #[test]
    fn a_size_that_no_buffer_has_is_refused() {
        assert_eq!(value_end(b"", 1, usize::MAX), Err("a size"));
        assert_eq!(value_end(b"abc\r", 0, 3), Ok(None));
    }
}
