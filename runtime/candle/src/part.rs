//! Parts of a gradient, one for each tensor. Must not know where they are written.

use candle_core::Tensor;

/// What a gradient is of one tensor.
#[derive(Debug)]
pub(crate) enum Part {
    /// Candle has computed it, contiguous, where the network's tensors lie.
    Computed(Tensor),
    /// It was found in the host's memory.
    Told(Vec<f32>),
    /// So many zeros.
    Zeros(usize),
}
