//! Counter-based random numbers: a draw is a pure function of where it is used, not of what was drawn before.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Its
//! key is the job's seed; its 128-bit counter holds the purpose ([`Domain`]) and the index of the block, so that two purposes
//! never share a block. It must not know which worker draws, or in which generation.

use sardana_protocol::limits::MAX_SHARDS;

/// Bits of a step or epoch in the counter. At a million steps a second they last nine years.
pub(crate) const STEP_BITS: u32 = 48;

/// Bits of a shard in the counter.
const SHARD_BITS: u32 = 12;

const _: () = assert!(MAX_SHARDS <= 1 << SHARD_BITS);

/// How many streams of random numbers each sample has.
pub const MAX_SAMPLE_STREAMS: u32 = 1 << SHARD_BITS;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block of Philox4x32-10: four random words from a counter and a key.
#[must_use]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut counter = counter;
    let mut key = key;
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let (high0, low0) = multiply(MULTIPLIERS[0], counter[0]);
        let (high1, low1) = multiply(MULTIPLIERS[1], counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
    }
    counter
}

/// High and low half of the product.
fn multiply(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// The key that a job's seed makes.
pub(crate) fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// What random numbers are for. Two different values give streams that share no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// The first values of the model's tensor number `tensor`.
    Weights {
        /// Which tensor, in the model's own numbering.
        tensor: u32,
    },
    /// The order of the samples in one epoch; [`crate::Permutation`] draws from it.
    DataOrder {
        /// Which epoch; below 2⁴⁸.
        epoch: u64,
        /// Which round of the permutation's network.
        round: u32,
    },
    /// What one shard's gradient needs: dropout, augmentation, noise.
    Shard {
        /// Which step; below 2⁴⁸.
        step: u64,
        /// Which shard; below [`MAX_SHARDS`].
        shard: u32,
        /// For the model's own use: one stream for each purpose.
        stream: u32,
    },
    /// What one sample of a step's global batch needs, however the batch is cut into shards: augmentation.
    Sample {
        /// Which step; below 2⁴⁸.
        step: u64,
        /// The sample's place in the global batch.
        place: u32,
        /// One stream for each purpose; below [`MAX_SAMPLE_STREAMS`].
        stream: u32,
    },
    /// The first values of a tensor that is known by its name; see [`Self::named`].
    Named {
        /// A hash of the name.
        name: u64,
    },
    /// Anything else that the user's program draws once a job, such as made-up data.
    User {
        /// For the user's own use: one stream for each purpose.
        stream: u32,
    },
}

impl Domain {
    /// The first values of the tensor `name`: they stay the same when other tensors are added to the model.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let hash = blake3::derive_key("sardana random numbers of a named tensor v1", name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = hash;
        Self::Named {
            name: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// The counter of this domain's first block: word 0 is left to the index of the block. The packing is injective, and that
    /// is why no two domains share a block.
    ///
    /// | word | bits | holds |
    /// |---|---|---|
    /// | 0 | 0..32 | block |
    /// | 1 | 0..32 | tensor, round, stream or place; a name's low bits |
    /// | 2 | 0..32 | step or epoch, low bits; a name's high bits |
    /// | 3 | 0..16 | step or epoch, high bits |
    /// | 3 | 16..28 | shard, or a sample's stream |
    /// | 3 | 28..32 | which domain |
    pub(crate) fn counter(self) -> [u32; 4] {
        let (tag, stream, time, shard) = match self {
            Self::Weights { tensor } => (1, tensor, 0, 0),
            Self::DataOrder { epoch, round } => (2, round, epoch, 0),
            Self::Shard { step, shard, stream } => (3, stream, step, shard),
            Self::User { stream } => (4, stream, 0, 0),
            Self::Sample { step, place, stream } => (5, place, step, stream),
            Self::Named { name } => (6, name as u32, name >> 32, 0),
        };
        assert!(
            time < 1 << STEP_BITS,
            "steps and epochs stay below 2^{STEP_BITS}, found {time}"
        );
        assert!(
            shard < 1 << SHARD_BITS,
            "shards, and streams of a sample, stay below 2^{SHARD_BITS}, found {shard}"
        );
        let last = (time >> 32) as u32 | shard << 16 | tag << 28;
        [0, stream, time as u32, last]
    }
}

/// A stream of random numbers that depends on the job's seed and a [`Domain`] only.
///
/// ```
/// use sardana_data::{CounterRng, Domain};
///
/// let mut one = CounterRng::new(42, Domain::Weights { tensor: 0 });
/// let mut same = CounterRng::new(42, Domain::Weights { tensor: 0 });
/// assert_eq!(one.next_u64(), same.next_u64());
/// assert!((0.0..1.0).contains(&one.uniform_f32()));
/// ```
#[derive(Clone, Debug)]
pub struct CounterRng {
    key: [u32; 2],
    /// The counter of the next block.
    counter: [u32; 4],
    /// Whether another block may be drawn after the one at `counter` was: none once word 0 has wrapped.
    exhausted: bool,
    block: [u32; 4],
    /// Words of `block` already given out.
    used: usize,
}

impl CounterRng {
    /// The start of the stream of `domain` in the job keyed by `seed`.
    ///
    /// # Panics
    /// When the domain names a step or epoch of 2⁴⁸ or more, or a shard or a sample's stream of 4,096 or more; [`crate::Sampler`]
    /// refuses jobs that reach such steps and shards.
    #[must_use]
    pub fn new(seed: u64, domain: Domain) -> Self {
        Self {
            key: key(seed),
            counter: domain.counter(),
            exhausted: false,
            block: [0; 4],
            used: 4,
        }
    }

    /// The next 32 random bits.
    ///
    /// # Panics
    /// After 2³⁴ words (64 GiB) of one stream; use another stream before.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == self.block.len() {
            assert!(
                !self.exhausted,
                "one stream of random numbers ends after 2^34 words: use another one"
            );
            self.block = philox(self.counter, self.key);
            (self.counter[0], self.exhausted) = self.counter[0].overflowing_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// The next 64 random bits.
    ///
    /// # Panics
    /// As [`Self::next_u32`].
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        u64::from(self.next_u32()) << 32 | low
    }

    /// A multiple of 2⁻²⁴ in [0, 1), each equally likely.
    ///
    /// # Panics
    /// As [`Self::next_u32`].
    pub fn uniform_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1_u32 << 24) as f32)
    }

    /// A multiple of 2⁻⁵³ in [0, 1), each equally likely.
    ///
    /// # Panics
    /// As [`Self::next_u32`].
    pub fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A number in 0..n, each equally likely (Lemire: "Fast random integer generation in an interval", 2019).
    ///
    /// # Panics
    /// When `n` is 0, and as [`Self::next_u32`].
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0 to draw");
        // The lowest 2^64 mod n products are refused: what is left is a multiple of n.
        let refused = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= refused {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn philox_gives_the_known_answers_of_random123() {
        let answers = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in answers {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn domains_never_share_a_counter() {
        let mut domains = Vec::new();
        for number in [0, 1, u32::MAX] {
            domains.extend([Domain::Weights { tensor: number }, Domain::User { stream: number }]);
            let high = u64::from(number) << 32;
            domains.extend([0, 1, 2].map(|low| Domain::Named { name: high | low }));
            for time in [0, 1, 1 << 32, (1 << STEP_BITS) - 1] {
                let (epoch, round, step, stream) = (time, number, time, number);
                domains.push(Domain::DataOrder { epoch, round });
                domains.extend([0, 1, MAX_SHARDS - 1].map(|shard| Domain::Shard { step, shard, stream }));
                domains.extend([0, 1, MAX_SAMPLE_STREAMS - 1].map(|stream| Domain::Sample {
                    step,
                    place: number,
                    stream,
                }));
            }
        }
        let counters: BTreeSet<_> = domains.iter().map(|domain| domain.counter()).collect();
        assert_eq!(counters.len(), domains.len());
    }

    #[test]
    fn a_stream_is_the_blocks_of_its_domain_in_order() {
        let domain = Domain::Shard {
            step: 5,
            shard: 3,
            stream: 1,
        };
        let mut rng = CounterRng::new(0x0123_4567_89ab_cdef, domain);
        let [_, one, two, three] = domain.counter();
        for block in 0..3 {
            let expected = philox([block, one, two, three], [0x89ab_cdef, 0x0123_4567]);
            assert_eq!([(); 4].map(|()| rng.next_u32()), expected);
        }
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let mut rng = CounterRng::new(7, Domain::User { stream: 0 });
        let draws = 40_000;
        let (mut single, mut double, mut squares) = (0.0_f64, 0.0, 0.0);
        for _ in 0..draws {
            let value = rng.uniform_f32();
            assert!((0.0..1.0).contains(&value));
            single += f64::from(value);
            let value = rng.uniform_f64();
            assert!((0.0..1.0).contains(&value));
            double += value;
            squares += value * value;
        }
        // Means 1/2 and 1/3, within five standard errors.
        let n = f64::from(draws);
        assert!((single / n - 0.5).abs() < 5.0 * (1.0_f64 / 12.0 / n).sqrt());
        assert!((double / n - 0.5).abs() < 5.0 * (1.0_f64 / 12.0 / n).sqrt());
        assert!((squares / n - 1.0 / 3.0).abs() < 5.0 * (4.0_f64 / 45.0 / n).sqrt());
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut rng = CounterRng::new(9, Domain::User { stream: 1 });
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        // Chi-squared with 6 degrees of freedom: 22.5 is exceeded once in a thousand seeds, and the seed is fixed.
        let chi: f64 = counts
            .iter()
            .map(|&count| (f64::from(count) - 10_000.0).powi(2) / 10_000.0)
            .sum();
        assert!(chi < 22.5, "{counts:?}");
        assert_eq!(rng.below(1), 0);
        // Nearly half of all products are refused here, so a bound that wrapped would show.
        let bound = (1_u64 << 63) + 1;
        assert!((0..100).all(|_| rng.below(bound) < bound));
    }
}
