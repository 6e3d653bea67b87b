//! Layers for those of candle that are wrong, cannot be seeded, or would let the membership reach the arithmetic.
//!
//! Of candle 0.11, tests here compare these with finite differences and find them right: linear layers, embeddings, convolutions,
//! `softmax`, `log_softmax`, the usual activations. Take others for those that do not train as they should:
//!
//! | of candle | what is wrong | instead |
//! |---|---|---|
//! | `max_pool2d` | gradients are divided by the window's size; no overlapping windows | [`MaxPool2d`] |
//! | `avg_pool2d` | wrong if the image is no multiple of the kernel; no overlapping windows | [`AvgPool2d`] |
//! | `LayerNorm` with a bias | no gradient, and no error | [`LayerNorm`] |
//! | `RmsNorm::forward` | no gradient, and no error | `RmsNorm::forward_diff` |
//! | `softmax_last_dim` | no gradient, and no error | `softmax` |
//! | `rope`, `rope_i`, `rope_thd` | no gradient, and no error | `rope_slow`, `rope_i_slow` |
//! | `BatchNorm` | its state depends on which worker computes a shard | [`BatchNorm2d`] |
//! | `Dropout` | cannot be seeded | [`Dropout`] |
//! | `conv2d` | slow backward; an error with some strides | [`Conv2d`] |
//! | `Linear` | slow backward | [`Linear`] |
//! | `relu` | a NaN becomes 0, so it is never seen | watch what goes into it |
//!
//! On processors each is loops of its own. Elsewhere it is composed of operations that candle has there: the same function, with other rounding; the tests
//! compare both forms.

mod avg_pool;
#[cfg(test)]
mod candles_own;
mod conv;
mod dropout;
mod linear;
mod max_pool;
mod norm;
mod product;
mod sum;
mod taps;
mod values;
mod windows;

pub use avg_pool::AvgPool2d;
pub use conv::Conv2d;
pub use dropout::Dropout;
pub use linear::Linear;
pub use max_pool::MaxPool2d;
pub use norm::{BatchNorm2d, GroupNorm, LayerNorm};
