//! Tables by numbers of 32 bits: sockets, sequence numbers, CPUs.
//!
//! The standard library's hash was a sixth of what following requests costs. Here a number is
//! multiplied by one that was drawn at the begin, and the product folded: who sends packets chooses
//! their sequence numbers, but can't know which of them fall together.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys hash as one `u32`.
pub(crate) type ByNumber<K, V> = HashMap<K, V, Keyed>;

/// Makes hashers of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed {
    key: u64,
    factor: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            key: random.hash_one(0),
            factor: random.hash_one(1) | 1,
        }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            state: self.key,
            factor: self.factor,
        }
    }
}

/// Multiplies and folds.
#[derive(Debug)]
pub(crate) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn write_u32(&mut self, number: u32) {
        self.state = folded(self.state ^ u64::from(number), self.factor);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    /// Once more, as numbers at even distances would still lie in a pattern.
    fn finish(&self) -> u64 {
        folded(self.state, self.factor)
    }
}

fn folded(number: u64, factor: u64) -> u64 {
    let product = u128::from(number) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_that_follow_each_other_fall_into_places_of_their_own() {
        let keyed = Keyed::default();
        for step in [1u32, 2, 64, 4096, 1 << 20] {
            let hashes: HashSet<u64> = (0..1000u32)
                .map(|n| keyed.hash_one(n.wrapping_mul(step)) & 0xffff)
                .collect();
            // Drawn at random, 1,000 of 65,536 would leave 992.
            assert!(hashes.len() > 900, "{step}: {}", hashes.len());
        }
    }

    #[test]
    fn two_tables_hash_differently() {
        assert_ne!(
            Keyed::default().hash_one(7u32),
            Keyed::default().hash_one(7u32)
        );
    }
}
