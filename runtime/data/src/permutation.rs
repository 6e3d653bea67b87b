//! A pseudo-random order of `0..n` in constant memory: any place of it is computed on its own.
//!
//! A Feistel network over the next power of two whose round function is Philox (Luby and Rackoff 1988), with cycle walking to
//! stay below n (Black and Rogaway: "Ciphers with arbitrary finite domains", 2002). Any data set has its order without a table,
//! on any worker, at once. It is for shuffling, not for secrets.

use super::random::{Domain, key, philox};

/// Rounds of the network. Four make a pseudo-random permutation of large halves; small data sets have small halves and get some
/// more. Even, so that the two widths end where they began.
const ROUNDS: u32 = 6;

/// The order in which one epoch visits `0..len`.
#[derive(Clone, Debug)]
pub struct Permutation {
    key: [u32; 2],
    epoch: u64,
    len: u64,
    /// Bits of the upper half; at most 32.
    upper: u32,
    /// Bits of the lower half; at most 32.
    lower: u32,
}

impl Permutation {
    /// The order of `0..len` in `epoch` of the job keyed by `seed`.
    ///
    /// # Panics
    /// When the epoch is 2⁴⁸ or more.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        // Checks the epoch once, for all rounds.
        let _ = Domain::DataOrder { epoch, round: 0 }.counter();
        Self {
            key: key(seed),
            epoch,
            len,
            upper: bits.div_ceil(2),
            lower: bits / 2,
        }
    }

    /// How many numbers it orders.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it orders none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number at `position`.
    ///
    /// # Panics
    /// When `position` is not below [`Self::len`].
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        assert!(
            position < self.len,
            "position {position} lies outside an order of {}",
            self.len
        );
        // The network permutes 0..2^bits, so walking its cycle from a place below `len` comes back below `len`. Since
        // 2^bits < 2 len, fewer than two passes are needed on average.
        let mut value = self.network(position);
        while value >= self.len {
            value = self.network(value);
        }
        value
    }

    fn network(&self, value: u64) -> u64 {
        let (mut upper_bits, mut lower_bits) = (self.upper, self.lower);
        let (mut upper, mut lower) = (value >> lower_bits, value & mask(lower_bits));
        for round in 0..ROUNDS {
            let mixed = upper ^ (self.round(round, lower) & mask(upper_bits));
            (upper, lower) = (lower, mixed);
            (upper_bits, lower_bits) = (lower_bits, upper_bits);
        }
        upper << lower_bits | lower
    }

    fn round(&self, round: u32, half: u64) -> u64 {
        let [_, one, two, three] = Domain::DataOrder {
            epoch: self.epoch,
            round,
        }
        .counter();
        u64::from(philox([half as u32, one, two, three], self.key)[0])
    }
}

/// The lowest `bits` bits; `bits` is at most 32.
fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(seed: u64, epoch: u64, len: u64) -> Vec<u64> {
        let permutation = Permutation::new(seed, epoch, len);
        (0..len).map(|position| permutation.at(position)).collect()
    }

    proptest! {
        #[test]
        fn every_number_comes_exactly_once(seed: u64, epoch in 0_u64..1 << 48, len in 0_u64..3_000) {
            let mut numbers = order(seed, epoch, len);
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..len));
        }

        #[test]
        fn large_orders_stay_inside(seed: u64, len in 1_u64.., place: u64) {
            let permutation = Permutation::new(seed, 1, len);
            prop_assert!(permutation.at(place % len) < len);
        }
    }

    #[test]
    fn seed_and_epoch_change_the_order() {
        let base = order(42, 0, 1_437);
        assert_eq!(base, order(42, 0, 1_437));
        for other in [order(42, 1, 1_437), order(43, 0, 1_437), order(42 | 1 << 40, 0, 1_437)] {
            // Two independent orders agree in about one place, whatever their length.
            let agreeing = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(agreeing < 8, "{agreeing}");
        }
    }

    #[test]
    fn every_number_is_equally_likely_at_every_place() {
        let (len, epochs) = (10, 5_000);
        let mut counts = vec![vec![0_u32; len]; len];
        for epoch in 0..epochs {
            for (place, number) in order(3, epoch, len as u64).into_iter().enumerate() {
                counts[place][number as usize] += 1;
            }
        }
        let expected = epochs as f64 / len as f64;
        let chi: f64 = counts
            .iter()
            .flatten()
            .map(|&count| (f64::from(count) - expected).powi(2) / expected)
            .sum();
        // Rows and columns have fixed sums: 81 degrees of freedom; 126 is exceeded once in a thousand seeds.
        assert!(chi < 126.0, "{chi}");
    }

    #[test]
    fn neighbours_are_torn_apart() {
        let numbers = order(5, 0, 4_096);
        let neighbours = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        // Two are expected.
        assert!(neighbours < 12, "{neighbours}");
    }
}
