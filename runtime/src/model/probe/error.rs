//! The promises of [`Trainable`](crate::model::Trainable) that a probe may find broken.

use sardana_collectives::gradient::GradientError;
use sardana_collectives::layout::LayoutError;
use sardana_protocol::state::StateHash;

use crate::model::ModelError;
use crate::model::state::StateError;

/// Why a model may not take part in a run. Correct the model; each variant names the promise that it breaks.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The state cannot be read or brought back; the source says what to correct.
    #[error(transparent)]
    State(#[from] StateError),
    /// The gradient's tensors or sums cannot be laid out; correct `gradients` or `auxiliary`.
    #[error("probe: the model's gradient cannot be laid out: {0}")]
    Layout(#[from] LayoutError),
    /// The gradient was not written as declared; correct `gradient`.
    #[error("probe: the model's gradient is not what it declares: {0}")]
    Gradient(#[from] GradientError),
    /// The model failed by itself; its message says what to do.
    #[error("probe: the model failed to {operation}: {source}")]
    Model {
        /// What the model was asked to do.
        operation: &'static str,
        /// The error of the model.
        source: ModelError,
    },
    /// The gradient told another number of samples than the shard holds; correct the call of `samples`.
    #[error("probe: expected the gradient to sum {expected} samples, those of its shard, found {found}; correct `gradient`")]
    Samples {
        /// How many the shard holds.
        expected: u64,
        /// How many the model told.
        found: u64,
    },
    /// A second gradient of the same shard differs, first in this tensor or sum; draw random numbers from [`Shard::random`](crate::data::Shard::random)
    /// and keep no state.
    #[error(
        "probe: expected a second gradient of the same state and shard to have the same bits, found others in {0}; \
         `gradient` must draw its random numbers from the shard and must not keep anything between calls"
    )]
    GradientVaries(String),
    /// On its device a second or third gradient of the same shard differs. Find what on the device adds in an order of its own.
    #[error(
        "probe: expected three gradients of the same state and shard to have the same bits on {device}, found others in {place}; likely causes are \
         additions by atomics, cuBLAS on several streams without CUBLAS_WORKSPACE_CONFIG=:4096:8, algorithms of cuDNN that are not deterministic, \
         work that does not wait for another stream, or a `gradient` that keeps something between calls; TF32 (NVIDIA_TF32_OVERRIDE=0 turns it off) \
         differs between kinds of devices, not between calls"
    )]
    DeviceVaries {
        /// What the model says that it computes on.
        device: String,
        /// The first element that differs, with both its bits.
        place: String,
    },
    /// Taking a gradient changed the state; move the change into `apply`, or return it as an auxiliary sum.
    #[error("probe: expected `gradient` to leave the state at {expected}, found {found}; only `apply` may change the state")]
    GradientMovesState {
        /// The hash before.
        expected: StateHash,
        /// The hash after.
        found: StateHash,
    },
    /// `load` did not bring back what `visit` showed.
    #[error(
        "probe: expected the state to be {expected} again after `load`, found {found}; \
         `load` must restore every tensor that `visit` shows"
    )]
    LoadForgets {
        /// The hash of the state that was saved.
        expected: StateHash,
        /// The hash of what came back.
        found: StateHash,
    },
    /// `share` gives another state than `visit`, or one that an update has changed though it is to outlive that; give what is there now.
    #[error(
        "probe: expected `share` to show the state {expected}, as `visit` did, found {found}; \
         `share` must give the tensors as they are when it is called, and an update must not change them if they outlive it"
    )]
    SharesAnother {
        /// The hash of what `visit` shows.
        expected: StateHash,
        /// The hash of what was shared.
        found: StateHash,
    },
    /// `piece_hashes` gives hashes of another state than `visit` shows; hash what is there now, or leave that out, and what is shown is hashed.
    #[error(
        "probe: expected the hashes of `piece_hashes` to make {expected}, the hash of the state that `visit` shows, found that they make {found}; \
         `piece_hashes` must hash the same tensors as they are when it is called"
    )]
    HashesAnother {
        /// The hash of what `visit` shows.
        expected: StateHash,
        /// The hash that the model's own hashes make.
        found: StateHash,
    },
    /// The gradient of the restored state differs, first in this tensor or sum: it depends on something that is not
    /// restored.
    #[error(
        "probe: expected the restored state to give the same gradient, found other bits in {0}; \
         `gradient` depends on something that `load` does not renew"
    )]
    GradientHasHiddenState(String),
    /// The same update of the restored state gave another state: `apply` depends on something that is not restored.
    #[error(
        "probe: expected the same update of the restored state to give {expected}, found {found}; \
         `apply` depends on something that `visit` does not show, such as an optimizer's moments"
    )]
    ApplyHasHiddenState {
        /// The hash after the first update.
        expected: StateHash,
        /// The hash after the same update of the restored state.
        found: StateHash,
    },
}
