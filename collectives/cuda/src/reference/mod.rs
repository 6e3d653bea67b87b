//! What each kernel gives, in plain Rust: the oracle of its bits, for any input. Knows no launch.
//!
//! All operations are those of IEEE 754, rounded to the nearest, one by one, in the order in which they are written; a fused multiply-add is
//! `mul_add`. A result that is not a number is the one NaN of its type, whatever NaN it was made of.

pub mod dense;
pub mod halves;
pub mod hashes;
pub mod norms;
pub mod pointwise;
pub mod sums;
pub mod tensors;
pub mod updates;

/// What the references add and store.
pub trait Number: bytemuck::Pod {
    /// `self + other`, with one NaN.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// Itself, with one NaN.
    #[must_use]
    fn one_nan(self) -> Self;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                (self + other).one_nan()
            }

            fn one_nan(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
        }
    };
}

number!(f32);
number!(f64);
