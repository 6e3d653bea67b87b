//! Gradients as bytes of one layout: written shard by shard, summed elsewhere, read as a mean. Knows no ranks and no links.
//!
//! A tensor may stay in memory other than the host's, its buffer's [`Resident`], where a [`TensorPlace`] has it written. It comes to the buffer chunk by
//! chunk, when a [`GradientView`] is asked for one: whatever reads gradients reads these as any, and what is never asked for never comes.

mod buffer;
mod enqueued;
mod filling;
mod lowering;
mod memory;
mod mode;
mod on_their_way;
mod passing;
mod place;
mod resident;
mod room;
mod shown;
mod sum;
mod writer;

use std::ops::Range;

use sardana_protocol::state::{Dtype, TensorSpec};

use crate::layout::Layout;

pub use buffer::{GradientBuffer, GradientView};
pub use enqueued::{Enqueued, SettleError};
pub(crate) use filling::Filling;
pub use lowering::Lowering;
pub(crate) use lowering::Places;
pub use mode::WriteMode;
pub(crate) use passing::Passed;
pub use passing::{Lent, Passing, Slot};
pub use place::{TensorPlace, TensorPlaces};
pub use resident::{Computing, Resident, ResidentError};
pub use sum::{Mean, RUN_ELEMENTS, Sum, SumLengthError};
pub use writer::GradientWriter;

/// Why a gradient cannot be written or read. All are mistakes of the model: the worker gives up and says so. After a failed
/// write the buffer's content is meaningless until it is cleared or stored anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GradientError {
    /// Name a tensor of the layout.
    #[error("the gradient has {tensors} tensors, found index {index}: count from 0 in the order they were visited")]
    NoSuchTensor {
        /// How many there are.
        tensors: usize,
        /// The index asked for.
        index: usize,
    },
    /// Use the tensor's own type.
    #[error("tensor `{spec}` was used as {found}: write and read it as {}", .spec.dtype)]
    Dtype {
        /// The tensor.
        spec: TensorSpec,
        /// The type that it was used as.
        found: Dtype,
    },
    /// Give all of the tensor's values.
    #[error("tensor `{spec}` has {expected} elements, found {found}: give the whole tensor at once")]
    Elements {
        /// The tensor.
        spec: TensorSpec,
        /// Elements of its shape.
        expected: usize,
        /// Elements given, or room for them.
        found: usize,
    },
    /// Write each tensor once per shard.
    #[error("tensor `{0}` was written twice for one shard: sum over the shard's samples first")]
    WrittenTwice(TensorSpec),
    /// Write a tensor in the same way for each shard of a gradient.
    #[error(
        "tensor `{0}` was left on a device for an earlier shard of this gradient, and cannot be added to here: write it there for each shard"
    )]
    LiesElsewhere(TensorSpec),
    /// Write every tensor; one that has no gradient is written as zeros.
    #[error("tensor `{0}` was not written for this shard: write zeros if it has no gradient")]
    NotWritten(TensorSpec),
    /// Name an auxiliary sum that the model declared.
    #[error("the gradient has {auxiliary} auxiliary sums, found index {index}: declare as many as are reported")]
    NoSuchAuxiliary {
        /// How many there are.
        auxiliary: usize,
        /// The index asked for.
        index: usize,
    },
    /// Report each auxiliary sum at most once per shard.
    #[error("auxiliary sum {0} was reported twice for one shard: sum over the shard's samples first")]
    AuxiliaryTwice(usize),
    /// Auxiliary sums that come later were not found: see what the reason says of the model, or of its device.
    #[error("{0}")]
    Later(String),
    /// Say the number of samples once per shard.
    #[error("the number of samples of a shard is said once, found {0} times")]
    Samples(usize),
    /// A step whose global batch is empty has no mean: correct the data plan.
    #[error("the sum is over no samples and has no mean: every step's global batch needs at least one")]
    NoSamples,
}

fn locate(layout: &Layout, tensor: usize, dtype: Dtype, found: usize) -> Result<Range<usize>, GradientError> {
    let tensors = layout.tensors().len();
    let section = layout
        .tensor(tensor)
        .ok_or(GradientError::NoSuchTensor { tensors, index: tensor })?;
    let spec = || layout.tensors()[tensor].clone();
    if section.dtype != dtype {
        return Err(GradientError::Dtype {
            spec: spec(),
            found: dtype,
        });
    }
    let expected = section.bytes.len() / dtype.bytes();
    if expected != found {
        return Err(GradientError::Elements {
            spec: spec(),
            expected,
            found,
        });
    }
    Ok(section.bytes)
}

fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a count has eight bytes"))
}

#[cfg(test)]
mod resident_tests;
#[cfg(test)]
mod tests;
