//! Pseudo-random numbers for tests that print their seed: xorshift64*, the same everywhere.

/// The numbers of one seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // The generator stays at 0 for ever.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
