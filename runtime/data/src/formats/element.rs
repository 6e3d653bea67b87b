//! The numbers that arrays in files consist of.

use std::fmt::Debug;

/// A number as files keep it, little-endian: [`f32`], [`f64`], [`u8`], [`i32`], [`i64`] or [`u32`].
pub trait Element: sealed::Stored + Copy + Debug + PartialEq + Send + Sync + 'static {}

pub(super) mod sealed {
    //! What only this crate can say of a number.

    /// What the formats call it, and how it is read.
    pub trait Stored: Sized {
        /// How long it is.
        const BYTES: u64;
        /// What a program calls it.
        const RUST: &'static str;
        /// What numpy calls it.
        const NPY: &'static str;
        /// What safetensors calls it.
        const SAFETENSORS: &'static str;

        /// Those that are stored in `bytes`, one after the other.
        fn decode(bytes: &[u8]) -> Vec<Self>;
    }
}

macro_rules! element {
    ($type:ty, $npy:literal, $safetensors:literal) => {
        impl sealed::Stored for $type {
            const BYTES: u64 = size_of::<$type>() as u64;
            const RUST: &'static str = stringify!($type);
            const NPY: &'static str = $npy;
            const SAFETENSORS: &'static str = $safetensors;

            fn decode(bytes: &[u8]) -> Vec<Self> {
                let (numbers, rest) = bytes.as_chunks();
                debug_assert!(rest.is_empty(), "whole numbers are read");
                numbers.iter().map(|&number| <$type>::from_le_bytes(number)).collect()
            }
        }

        impl Element for $type {}
    };
}

element!(f32, "<f4", "F32");
element!(f64, "<f8", "F64");
element!(u8, "|u1", "U8");
element!(i32, "<i4", "I32");
element!(i64, "<i8", "I64");
element!(u32, "<u4", "U32");
