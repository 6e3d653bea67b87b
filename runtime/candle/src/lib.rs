//! Networks of candle, as they are, that Sardana trains.
//!
//! - [`Builder`]: names a network's tensors and makes their first values, from the job's seed and their names;
//! - [`build`], [`Net`]: a network with its loss, which [`sardana::fit::Fit`] trains; [`loss`]; [`Stack`]: samples as tensors;
//! - [`layers`]: layers for those of candle that are wrong, cannot be seeded, or would let the membership reach the arithmetic;
//! - [`Pass`]: what layers share with their network while it computes.

mod builder;
#[cfg(test)]
mod checked;
mod initial;
pub mod layers;
pub mod loss;
mod net;
pub mod pass;
mod stack;

pub use builder::{Builder, Running};
pub use layers::{AvgPool2d, BatchNorm2d, Conv2d, Dropout, GroupNorm, LayerNorm, Linear, MaxPool2d};
pub use loss::{CrossEntropy, Loss, SquaredError};
pub use net::{Net, build};
pub use pass::{Pass, Statistic};
pub use stack::Stack;
