//! What a group reduces: seven types of numbers and four reductions, and what becomes of one element. Knows slices, no ranks and no links.
//!
//! Values that are combined follow one another in an order that the caller decides. What one element becomes depends on nothing else: not on how many
//! lie beside it, nor on the processor. So that it does not,
//! - a result that is not a number is the type's one canonical NaN, as in [`crate::reduce`], and one such input makes the result so, also
//!   of a minimum or maximum;
//! - -0.0 is less than 0.0, for minimum and maximum;
//! - bf16 and f16 are combined as f32, over all ranks, and rounded once at the end, to the nearest and to even;
//! - sums of integers wrap, modulo 2⁶⁴ (or 2³² of `i32`), whichever values overflow on the way.

mod halves;
mod numbers;
#[cfg(test)]
pub(super) mod tests;

use bytemuck::Pod;
use strum::{Display, FromRepr};

/// A type of numbers that a group reduces and passes on: `f32`, `f64`, [`half::bf16`], [`half::f16`], `i32`, `i64`, `u64`.
pub trait Element: sealed::Kernels + Pod + PartialEq + std::fmt::Debug + Send + Sync {
    /// Which of them it is.
    const TYPE: ElementType;
}

/// The type of the numbers in a buffer. All ranks of a call have the same.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, FromRepr)]
#[repr(u8)]
#[strum(serialize_all = "lowercase")]
pub enum ElementType {
    /// `f32`.
    F32 = 1,
    /// `f64`.
    F64 = 2,
    /// [`half::bf16`].
    Bf16 = 3,
    /// [`half::f16`].
    F16 = 4,
    /// `i32`.
    I32 = 5,
    /// `i64`.
    I64 = 6,
    /// `u64`.
    U64 = 7,
}

/// What becomes of the values that the ranks have for one element.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, FromRepr)]
#[repr(u8)]
#[strum(serialize_all = "lowercase")]
pub enum Reduction {
    /// Their sum. Integers wrap.
    Sum = 1,
    /// The least of them.
    Min = 2,
    /// The greatest of them.
    Max = 3,
    /// Their sum, divided by the number of ranks and rounded once more. Refused for integers: sum them, and divide as you mean it.
    Mean = 4,
}

/// What one element is combined with another by. A mean is a sum until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combine {
    Add,
    Min,
    Max,
}

impl Reduction {
    const fn combine(self) -> Combine {
        match self {
            Self::Sum | Self::Mean => Combine::Add,
            Self::Min => Combine::Min,
            Self::Max => Combine::Max,
        }
    }
}

impl ElementType {
    /// Whether it is one of integers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        match self {
            Self::I32 | Self::I64 | Self::U64 => true,
            Self::F32 | Self::F64 | Self::Bf16 | Self::F16 => false,
        }
    }
}

pub(super) mod sealed {
    use super::Reduction;

    /// The loops over elements of one type. A running value is what the ranks so far make together; it travels as bytes, little-endian.
    pub trait Kernels: Sized {
        /// Bytes of one running value.
        const RUNNING_BYTES: usize;

        /// Begins running values with the first rank's own.
        fn begin(own: &[Self], out: &mut [u8]);

        /// Writes `running` combined with the next rank's own to `out`.
        fn fold(reduction: Reduction, running: &[u8], own: &[Self], out: &mut [u8]);

        /// Makes the last rank's own the result.
        fn close(reduction: Reduction, world_size: u32, running: &[u8], own: &mut [Self]);

        /// Makes the only rank's own the result.
        fn alone(own: &mut [Self]);
    }
}
