//! Random numbers: splitmix64. Small, fast, the same on every machine for the same seed, and far
//! better than arrival times and key choices need.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// All 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n. The bias of the multiplication is n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_interval_is_filled_evenly() {
        let mut random = Random::seeded(1);
        let mut tenths = [0u32; 10];
        for _ in 0..100_000 {
            tenths[(random.unit() * 10.0) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|&n| n.abs_diff(10_000) < 500),
            "{tenths:?}"
        );
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut random = Random::seeded(2);
        let mut seen = [false; 7];
        (0..1_000).for_each(|_| seen[random.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
    }
}
