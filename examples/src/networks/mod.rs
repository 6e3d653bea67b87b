//! The networks of the examples, written with candle as it is. None of them knows how or where it is trained.

mod cnn;
mod dense;
mod resnet;
mod transformer;

pub use cnn::Cnn;
pub use dense::Dense;
pub use resnet::{ResNet, Shape};
pub use transformer::{Sizes, Transformer};
