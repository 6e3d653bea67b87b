//! Random choices that one seed decides.

/// A stream of random choices: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The choices of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number of `0..n`; 0 if `n` is 0. The tiny bias of the remainder does not matter here.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// An index into a list of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Whether something happens that happens once in `rarity` times.
    pub fn once_in(&mut self, rarity: u64) -> bool {
        self.below(rarity) == 0
    }

    /// One of `choices`, if there is any.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.index(choices.len())).copied()
    }
}

/// Scatters the bits of a number: equal numbers give equal bits, near ones do not look alike.
#[must_use]
pub const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // Reference values of the authors' C code for the seed 1234567.
        let mut dice = Dice::new(1_234_567);
        assert_eq!(dice.bits(), 6_457_827_717_110_365_317);
        assert_eq!(dice.bits(), 3_203_168_211_198_807_973);
    }
}
