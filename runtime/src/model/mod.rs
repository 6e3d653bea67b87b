//! What a model must offer to be trained: sums of gradients, an update, and its state as named tensors.
//!
//! A model must not know how many workers there are, which worker computes a shard, or that anything can fail: it is told a shard and
//! an averaged gradient, and that is all (the law: which worker computes a shard never reaches the
//! arithmetic).
//!
//! - [`Trainable`]: the trait that a user implements;
//! - [`hash`]: the hash of a model's state, from what it shows or from hashes of its own;
//! - [`state`]: what can be a state;
//! - [`SharedState`]: what a model may show of itself to another thread;
//! - [`saved`]: a state as bytes, whole or in shares, for a worker that lacks it;
//! - [`mod@probe`]: finds a model that breaks the trait's promises before it joins a run.

mod difference;
pub mod hash;
mod kept;
pub mod probe;
mod same;
pub mod saved;
pub mod state;
mod threads;
#[cfg(test)]
pub(crate) mod toys;
mod wanted;

use std::sync::Arc;

pub(crate) use hash::tensors_hash_of;
pub use hash::{HashedTensor, state_hash, tensors_hash};
pub use probe::{Probe, ProbeError, probe};
pub(crate) use probe::{Probed, probe_closely};
pub(crate) use same::hashes_unless_saved;
pub use sardana_collectives::gradient::{GradientBuffer, GradientError, GradientWriter, Mean, Sum, WriteMode};
pub use sardana_collectives::layout::{Layout, LayoutError};
pub use sardana_collectives::summation::Summation;
pub use sardana_protocol::checkpoint::PieceHash;
pub use sardana_protocol::memory::DeviceMemory;
pub use sardana_protocol::snapshot::Share;
pub use sardana_protocol::state::{Dtype, StateHash, StatePieces, TensorSpec};
pub use sardana_protocol::words::Step;
pub(crate) use saved::{copy_shared, copy_shares, describe_specs, pieces_of, restore_as, share_hashes_watched};
pub use saved::{describe, pieces, restore, save, share_hashes};
pub use state::StateError;

use crate::data::{Coming, Shard};

/// What went wrong inside a model. The worker that meets it reports it and ends.
pub type ModelError = Box<dyn std::error::Error + Send + Sync>;

/// A model's state at one boundary, as another thread reads it.
pub trait SharedState: Send {
    /// Shows what [`Trainable::visit`] shows.
    ///
    /// # Errors
    /// As [`Trainable::visit`].
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError>;

    /// The same of those tensors that are `wanted`: that is asked of each once, in the order of [`Self::visit`], and those for which it says so are shown in that
    /// order. So a copy of a part of the state costs no more than that where what is shown has to be brought here first, as from a GPU. By itself, all are brought.
    ///
    /// # Errors
    /// As [`Trainable::visit`].
    fn visit_wanted(
        &self,
        wanted: &mut dyn FnMut(&TensorSpec) -> bool,
        visitor: &mut dyn FnMut(&TensorSpec, &[u8]),
    ) -> Result<(), ModelError> {
        self.visit(&mut |spec, bytes| {
            if wanted(spec) {
                visitor(spec, bytes);
            }
        })
    }

    /// Whether updates may be made while this is read. Then they never wait for a copy of the state, and what they change meanwhile is in
    /// memory twice: `Arc::make_mut` makes a copy of its own. Worth it where updates change little of the state, as of adapters on frozen
    /// weights, or of a few rows of an embedding. Otherwise the next update waits until this has been copied, and is dropped.
    fn outlives_updates(&self) -> bool {
        false
    }
}

/// A model, its data and its optimizer, as the runtime trains them.
///
/// It need not be `Send`: it is built and lives on the runtime's training thread.
///
/// Two promises make every membership give the same bits. [`probe()`] checks both on the first step, with that what a model shares or hashes itself is what it
/// shows, and a worker refuses to start with a model that breaks them:
/// - `gradient` changes nothing and depends only on the state and the shard: random numbers come from [`Shard::random`];
/// - `visit` shows all that `gradient` and `apply` depend on, and `load` brings all of it back.
pub trait Trainable {
    /// The tensors that [`Self::gradient`] writes, f32 or f64, in the order of their numbers. Always the same.
    fn gradients(&self) -> Vec<TensorSpec>;

    /// Names of the sums reported for each step besides the gradient, such as `loss`. Always the same.
    fn auxiliary(&self) -> Vec<String> {
        Vec::new()
    }

    /// What else decides the bits, such as an optimizer and its constants: compared between workers, with the names of the tensors. Always
    /// the same.
    fn describe(&self) -> String {
        String::new()
    }

    /// What gradients are computed on, for people: `cpu`, or what a GPU, its driver and its kernels are, in items with `, ` between them. Workers
    /// on different devices train together as long as their first update gives the same bits; one that is refused is told the items that differ. The
    /// probe takes one more gradient on what is not `cpu`. Always the same.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// By what its gradients are to be summed over workers where they lie, in place of links: such as `sardana_cuda::summation::SumsByNccl`, of GPUs. In
    /// [`Order::Fast`](crate::Order::Fast) alone, since that chooses in which order it adds: exact order refuses it. All workers must offer the same. A
    /// generation uses it where all can, and else its links, and says so in the log. Asked once, before the first gradient.
    fn summation(&self) -> Option<Arc<dyn Summation>> {
        None
    }

    /// How many bytes it will hold besides what it has needed for its first gradient and update, such as samples that are decoded ahead: a
    /// worker promises to hold no more gradients than it has room for beside them.
    fn will_hold_bytes(&self) -> usize {
        0
    }

    /// What it has of a GPU's memory, and what it must be able to have there: `sardana_cuda::device::Device::worker_memory` says it. A worker for which that can
    /// never fit is refused before it takes part, with both sizes; operators see it of each worker. Asked after the probe and after each update, so it
    /// is to cost nothing. None on processors, and where it is not known.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// Which shards this worker computes next, as far as is known: what it may prepare while it computes. Called before the
    /// first gradient of each step, and when they change; it must not reach a gradient's bits.
    fn coming(&self, _coming: Coming) {}

    /// Writes every gradient tensor, summed (not averaged) over the shard's samples, every auxiliary sum, and the number of
    /// samples. Never called for an empty shard. Must not change the state.
    ///
    /// On a device it may return once all is enqueued: tensors by a [`TensorPlace`](sardana_collectives::gradient::TensorPlace), sums by
    /// [`GradientWriter::auxiliary_later`]. Then it is called for the next shard while the device computes this one, never more than one ahead.
    ///
    /// # Errors
    /// Whatever keeps the model from computing it; the worker ends.
    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError>;

    /// Makes the state at `step + 1` from the state at `step` and the gradient averaged over the global batch. There is no
    /// learning rate to scale: the batch does not depend on the number of workers.
    ///
    /// # Errors
    /// Whatever keeps the model from applying it; the worker ends.
    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError>;

    /// Shows every tensor of the state with its little-endian bytes: parameters, optimizer moments, counters. Always the same
    /// tensors in the same order, with names of their own.
    ///
    /// # Errors
    /// Whatever keeps the model from reading its state; the worker ends.
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError>;

    /// The tensors that [`Self::visit`] shows, with the hashes of their pieces, if the model has them by other means than the bytes: a state that lies on a GPU
    /// is hashed there. A state's hash is made of these, so all that a state is hashed for then costs no copy of it. [`probe()`] compares them with what is
    /// shown. None, unless a model says otherwise: then what it shows is hashed.
    ///
    /// # Errors
    /// Whatever keeps the model from hashing its state; the worker ends.
    fn piece_hashes(&self) -> Result<Option<Vec<HashedTensor>>, ModelError> {
        Ok(None)
    }

    /// Takes back one tensor that [`Self::visit`] showed; called for every one of them, in that order.
    ///
    /// # Errors
    /// When the model has no such tensor or cannot take it; the worker ends.
    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError>;

    /// The state as it is now, for another thread: a snapshot is then copied while gradients are computed, and training does not
    /// wait for it. None, unless a model says otherwise: then its own thread copies, and the others wait for that.
    ///
    /// It is dropped before the next [`Self::load`], and before the next [`Self::apply`] unless it [outlives](SharedState::outlives_updates)
    /// that, so tensors behind an `Arc` that these change with `Arc::make_mut` cost nothing.
    fn share(&self) -> Option<Box<dyn SharedState>> {
        None
    }

    /// Named results after the last step, such as the accuracy on held-out data.
    ///
    /// # Errors
    /// Whatever keeps the model from evaluating; the worker ends.
    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        Ok(Vec::new())
    }
}
