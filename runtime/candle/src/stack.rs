//! From samples of a data set to tensors: what a batch is made of.

use candle_core::{Device, Result, Tensor, WithDType, bail};
use sardana::data::{Array, Image};

/// What can be put together, one after the other, along a new first dimension.
pub trait Stack: Sized {
    /// One tensor of all of them; there is at least one.
    ///
    /// # Errors
    /// When they differ in shape.
    fn stack<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Result<Tensor>
    where
        Self: 'a;
}

macro_rules! scalars {
    ($($type:ty),*) => {$(
        /// A number each: shape (n).
        impl Stack for $type {
            fn stack<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Result<Tensor> {
                let values: Vec<Self> = all.copied().collect();
                let count = values.len();
                Tensor::from_vec(values, count, &Device::Cpu)
            }
        }
    )*};
}

scalars!(u8, u32, i64, f32, f64);

/// An array each, all of one shape: shape (n, the arrays' own).
impl<T: WithDType> Stack for Array<T> {
    fn stack<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Result<Tensor> {
        let (mut values, mut shape) = (Vec::new(), Vec::<usize>::new());
        let count = all.len();
        for one in all {
            if shape.is_empty() {
                shape = [&[count], one.shape()].concat();
                values.reserve_exact(count * one.values().len());
            } else if shape[1..] != *one.shape() {
                bail!(
                    "expected samples of one shape, {:?}, found one of {:?}: resize or crop them before",
                    &shape[1..],
                    one.shape()
                );
            }
            values.extend_from_slice(one.values());
        }
        Tensor::from_vec(values, shape, &Device::Cpu)
    }
}

/// An image each, all of one size: values from 0 to 1, shape (n, channels, height, width).
impl Stack for Image {
    fn stack<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Result<Tensor> {
        let arrays: Vec<_> = all.map(Image::to_unit).collect();
        Array::stack(arrays.iter())
    }
}
