//! Layers for those of candle that are wrong, cannot be seeded, or would let the membership reach the arithmetic.

mod dropout;

pub use dropout::Dropout;
