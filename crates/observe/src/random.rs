//! Random enough for phases, jitter and resampling: xorshift64 (Marsaglia 2003).

/// A source of random numbers; the same seed gives the same ones.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed; 0 is as good as any.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed | 1);
        // The first ones of a small seed are small.
        (0..16).for_each(|_| _ = random.next());
        random
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Evenly from 0 to below 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
