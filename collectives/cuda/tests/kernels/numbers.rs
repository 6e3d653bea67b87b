//! Input of every kind, from a seed.

use bytemuck::{NoUninit, Zeroable};
use half::{bf16, f16};

/// Lengths at which something ends: none, one, warps, blocks, runs of four and of eight.
pub(crate) const LENGTHS: [usize; 10] = [0, 1, 3, 8, 31, 32, 33, 255, 256, 257];

/// Far more elements than a launch has threads here, and an odd number of them.
pub(crate) const MANY: usize = 1_000_003;

/// A stream of numbers.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn all<T: Any>(&mut self, length: usize) -> Vec<T> {
        (0..length).map(|_| T::any(self)).collect()
    }

    /// Numbers of one magnitude, whose sums are rounded.
    pub(crate) fn near(&mut self, length: usize) -> Vec<f32> {
        (0..length)
            .map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0)
            .collect()
    }
}

/// A type of which any value can be drawn, and those at which arithmetic is special are drawn often.
pub(crate) trait Any: NoUninit + Zeroable {
    fn any(numbers: &mut Numbers) -> Self;
}

macro_rules! any {
    ($type:ty, $bits:ty, $fraction:literal, $one:literal) => {
        impl Any for $type {
            fn any(numbers: &mut Numbers) -> Self {
                let (kind, random) = (numbers.below(16), numbers.next() as $bits);
                let (sign, fraction) = (random & !(<$bits>::MAX >> 1), random & ((1 << $fraction) - 1));
                let infinity = <$type>::INFINITY.to_bits();
                Self::from_bits(match kind {
                    0 => sign,
                    1 => sign | infinity,
                    // Any NaN, also one that signals.
                    2 => sign | infinity | fraction | 1,
                    // Below what is normal, and about there.
                    3 => sign | fraction,
                    4 => sign | (1 << $fraction),
                    5 => sign | (infinity - 1),
                    // From 1 to 16, so that sums are rounded.
                    6..=12 => sign | ($one + ((random & 0x1800) >> 11 << $fraction) + fraction),
                    _ => random,
                })
            }
        }
    };
}

any!(f32, u32, 23, 0x3f80_0000);
any!(f64, u64, 52, 0x3ff0_0000_0000_0000);
any!(bf16, u16, 7, 0x3f80);
any!(f16, u16, 10, 0x3c00);
