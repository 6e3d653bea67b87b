//! Structures that kernels take by value, and rows of tables that they read from the device's memory. Knows addresses as numbers, and no device.
//!
//! Their layout is that of the structures of the same names in `kernels/*.cu`. An address is one of the device, and the caller that launches sees to it that what
//! lies there is as long as it says, aligned to its elements, and stays until the launch has ended.

use bytemuck::{Pod, Zeroable};

/// Shards of one launch.
pub const MAX_SHARDS: usize = 32;

/// Elements that a block of `pack_*` and `unpack_*` moves at once.
pub const TILE: u64 = 1_024;

/// Elements that a block of `squares` adds up.
pub const SQUARES_TILE: u64 = 16_384;

/// Most bytes of a piece that `hash_pieces` hashes: 1 MiB.
pub const MAX_PIECE_BYTES: u64 = 1 << 20;

/// Addresses of shards' gradients, in the shards' order; what is not used is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Shards {
    /// Of each shard, the address of its first element.
    pub at: [u64; MAX_SHARDS],
}

impl Shards {
    /// The launches that add any number of shards, in order: the shards of each, and how many they are. None for none.
    pub fn launches(addresses: &[u64]) -> impl Iterator<Item = (Self, u32)> {
        addresses.chunks(MAX_SHARDS).map(|own| {
            let mut at = [0; MAX_SHARDS];
            at[..own.len()].copy_from_slice(own);
            // At most MAX_SHARDS.
            (Self { at }, own.len() as u32)
        })
    }
}

/// A row of the table that `pack_*` and `unpack_*` read. Made by [`Tensor::table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tensor {
    /// The address of its first element.
    pub values: u64,
    /// Its first byte in the gradient, a multiple of an element's bytes.
    pub offset: u64,
    /// Its elements.
    pub length: u64,
    /// Tiles of all rows before it.
    pub tiles_before: u64,
}

impl Tensor {
    /// The table of tensors, each as its address, its first byte in the gradient, and its elements; and how many tiles they have together. In
    /// the gradient no two of them overlap.
    #[must_use]
    pub fn table(tensors: &[(u64, u64, u64)]) -> (Vec<Self>, u64) {
        let mut tiles_before = 0;
        let mut row = |&(values, offset, length): &(u64, u64, u64)| {
            let row = Self {
                values,
                offset,
                length,
                tiles_before,
            };
            tiles_before += length.div_ceil(TILE);
            row
        };
        let table = tensors.iter().map(&mut row).collect();
        (table, tiles_before)
    }
}

/// A row of the table that `squares` reads. Made by [`Values::table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Values {
    /// The address of the first f32.
    pub at: u64,
    /// How many there are.
    pub length: u64,
    /// Tiles of all rows before it, of [`SQUARES_TILE`] elements each.
    pub tiles_before: u64,
}

impl Values {
    /// The table of tensors, each as its address and its elements; and how many tiles they have together.
    #[must_use]
    pub fn table(tensors: &[(u64, u64)]) -> (Vec<Self>, u64) {
        let mut tiles_before = 0;
        let mut row = |&(at, length): &(u64, u64)| {
            let row = Self {
                at,
                length,
                tiles_before,
            };
            tiles_before += row.tiles();
            row
        };
        let table = tensors.iter().map(&mut row).collect();
        (table, tiles_before)
    }

    /// How many tiles it has.
    #[must_use]
    pub const fn tiles(&self) -> u64 {
        self.length.div_ceil(SQUARES_TILE)
    }
}

/// A row of the table that `tree_sums` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Terms {
    /// The address of the first f64. They are changed.
    pub at: u64,
    /// How many there are.
    pub length: u64,
}

/// A row of the table that `hash_pieces` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Piece {
    /// The address of the first byte; hashing is faster where it is a multiple of 16.
    pub bytes: u64,
    /// How many bytes there are, at most [`MAX_PIECE_BYTES`].
    pub length: u64,
}

/// How `sgd`, `momentum` and `nesterov` follow a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Descent {
    /// The number of samples in the sum.
    pub divisor: f32,
    /// What the mean gradient is multiplied by, to clip it; 1 where it is not.
    pub factor: f32,
    /// The learning rate.
    pub rate: f32,
    /// The weight decay; 0 where the mask leaves the tensor out.
    pub decay: f32,
    /// The part of the velocity that stays; not read by `sgd`.
    pub momentum: f32,
}

/// How `adam` follows a gradient. Made by [`Adam::moments`].
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Moments {
    /// The number of samples in the sum.
    pub divisor: f32,
    /// What the mean gradient is multiplied by, to clip it; 1 where it is not.
    pub factor: f32,
    /// The decay that is added to the gradient: Adam's.
    pub to_gradient: f32,
    /// The decay that is taken off the value: `AdamW`'s, times the rate.
    pub off_value: f32,
    /// 1 - beta1.
    pub fresh_mean: f32,
    /// 1 - beta2.
    pub fresh_square: f32,
    /// The rate, and the correction of the mean.
    pub step: f32,
    /// The correction of the root of the mean of squares.
    pub unbias_root: f32,
    /// What is added to the root.
    pub epsilon: f32,
}

/// An update of Adam or `AdamW`, in words of the optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Which update it is, counted from 1.
    pub number: u64,
    /// The learning rate.
    pub rate: f64,
    /// The weight decay; 0 where the mask leaves the tensor out.
    pub decay: f64,
    /// The parts of both means that stay.
    pub betas: [f64; 2],
    /// What is added to the root.
    pub epsilon: f64,
    /// Whether the decay is taken off the value, as `AdamW` does, in place of being added to the gradient.
    pub decoupled: bool,
}

impl Adam {
    /// What all values share, derived in f64 and rounded once. `divisor` is the number of samples, `factor` what clips.
    #[must_use]
    pub fn moments(&self, divisor: f32, factor: f32) -> Moments {
        let [beta1, beta2] = self.betas;
        let (to_gradient, off_value) = if self.decoupled {
            (0.0, self.rate * self.decay)
        } else {
            (self.decay, 0.0)
        };
        Moments {
            divisor,
            factor,
            to_gradient: to_gradient as f32,
            off_value: off_value as f32,
            fresh_mean: (1.0 - beta1) as f32,
            fresh_square: (1.0 - beta2) as f32,
            step: (self.rate / (1.0 - power(beta1, self.number))) as f32,
            unbias_root: (1.0 / (1.0 - power(beta2, self.number)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

/// By multiplication alone, in the order in which the optimizers multiply: a power of the mathematical library has a last bit of its own.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut product, mut square) = (1.0, base);
    for bit in 0..u64::BITS - exponent.leading_zeros() {
        if exponent >> bit & 1 == 1 {
            product *= square;
        }
        square *= square;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_take_all_shards_in_order() {
        for count in [0, 1, 31, 32, 33, 64, 65] {
            let addresses: Vec<u64> = (1..=count).collect();
            let launches: Vec<_> = Shards::launches(&addresses).collect();
            let all = launches.iter().flat_map(|(shards, own)| &shards.at[..*own as usize]);
            assert_eq!(all.copied().collect::<Vec<u64>>(), addresses);
            assert_eq!(launches.len(), addresses.len().div_ceil(MAX_SHARDS));
        }
    }

    #[test]
    fn tiles_are_counted_and_no_tensor_shares_one() {
        let (table, tiles) = Tensor::table(&[(1, 0, 1_024), (2, 4_096, 0), (3, 4_096, 1_025), (4, 8_256, 1)]);
        assert_eq!(table.iter().map(|row| row.tiles_before).collect::<Vec<_>>(), [0, 1, 1, 3]);
        assert_eq!(tiles, 4);
    }

    #[test]
    fn tiles_of_squares_are_counted_as_those_of_gradients() {
        let (table, tiles) = Values::table(&[(1, 16_384), (2, 0), (3, 16_385), (4, 1)]);
        assert_eq!(table.iter().map(|row| row.tiles_before).collect::<Vec<_>>(), [0, 1, 1, 3]);
        assert_eq!(
            (table.iter().map(Values::tiles).collect::<Vec<_>>(), tiles),
            (vec![1, 0, 2, 1], 4)
        );
    }

    #[test]
    fn powers_are_products() {
        for (base, exponent, expected) in [
            (0.5, 0, 1.0),
            (0.5, 3, 0.125),
            (3.0, 5, 243.0),
            (0.0, 0, 1.0),
            (2.0, 64, 18_446_744_073_709_551_616.0),
        ] {
            assert_eq!(power(base, exponent), expected);
        }
    }
}
