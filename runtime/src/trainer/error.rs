//! Why training cannot go on, in words that name what the model or the job has to change.

use sardana_collectives::gradient::GradientError;
use sardana_protocol::limits::{MAX_RESULTS, MAX_TEXT_BYTES};
use sardana_protocol::snapshot::Share;
use sardana_protocol::words::Step;

use crate::copies::CopyError;
use crate::data::SamplerError;
use crate::model::{LayoutError, ModelError, ProbeError, StateError, StateHash};

/// Why training cannot go on. It would fail in the same way on every worker.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// The model could not be built: fix the model or its data.
    #[error("the model could not be built: {}", whole(.0.as_ref()))]
    Build(ModelError),
    /// The model breaks a promise of [`crate::model::Trainable`]: fix the model.
    #[error(transparent)]
    Probe(#[from] Box<ProbeError>),
    /// The job's constants make no data order: fix the job.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The gradient's tensors make no layout: fix the model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The model offers another means than links to sum by, in exact order: fix the job or the model.
    #[error(
        "expected order fast for gradients that are summed by {0}, found exact: {0} chooses itself in which order it adds, and exact order is shard by \
         shard, whatever workers there are; set .order(Order::Fast), or have the model's `summation` give none"
    )]
    Summation(&'static str),
    /// The state cannot be shown or taken back: fix the model.
    #[error(transparent)]
    State(#[from] StateError),
    /// The same in the course of training.
    #[error("at {step}: {source}")]
    StateAt {
        /// Updates that the state has had.
        step: Step,
        /// What is wrong.
        source: StateError,
    },
    /// What the model holds after it has loaded a state is not that state: fix the model's `load`.
    #[error(
        "the state at {step} was loaded, but {share} of the model then has the hash {found}, expected {expected} (STEP-2): \
         correct `load`"
    )]
    Loaded {
        /// Updates that the state has had.
        step: Step,
        /// The part of the state that differs.
        share: Share,
        /// The snapshot's hash.
        expected: StateHash,
        /// The hash of the model's state.
        found: StateHash,
    },
    /// The program's own file cannot be read, which is part of the fingerprint.
    #[error("this program's own file cannot be read: {0}")]
    Program(#[source] std::io::Error),
    /// No thread to copy a snapshot. Raise the host's limit of threads.
    #[error("no thread could be started to copy a snapshot: {0}; raise the limit of threads (ulimit -u)")]
    Thread(#[source] std::io::Error),
    /// The model failed in the middle.
    #[error("the model failed to {operation} at {step}: {}", whole(.source.as_ref()))]
    Model {
        /// The step under way.
        step: Step,
        /// What the model was asked to do.
        operation: &'static str,
        /// The error of the model.
        source: ModelError,
    },
    /// The model wrote an incomplete or wrong gradient: fix the model.
    #[error("the gradient of shard {shard} at {step}: {source}")]
    Gradient {
        /// The step under way.
        step: Step,
        /// The shard.
        shard: u32,
        /// What is wrong with the gradient.
        source: GradientError,
    },
    /// The model's evaluation found so many results, more than a message holds: fix the model.
    #[error("the model's evaluation gave {0} results, expected at most {MAX_RESULTS}: report fewer")]
    Results(usize),
    /// The name of a result has so many bytes, more than a message holds: fix the model.
    #[error("the model's evaluation gave a result whose name has {0} bytes, expected at most {MAX_TEXT_BYTES}: shorten it")]
    ResultName(usize),
    /// The shards' sample counts do not add up to the batch (DATA-1): fix the model.
    #[error("at {step} the shards' samples add up to {found}, the batch has {expected} (DATA-1): report every sample once")]
    Samples {
        /// The step under way.
        step: Step,
        /// As many as the data order says.
        expected: u64,
        /// As many as the model says.
        found: u64,
    },
}

impl TrainingError {
    /// What is wrong with the state at `step`, which the model was asked to show or to take back.
    pub(super) fn state_at(step: Step) -> impl FnOnce(StateError) -> Self {
        move |source| Self::StateAt { step, source }
    }

    /// Why a copy could not be made, which is known by `step`.
    pub(super) fn copy_by(step: Step) -> impl FnOnce(CopyError) -> Self {
        move |error| match error {
            CopyError::State(source) => Self::StateAt { step, source },
            CopyError::Thread(error) => Self::Thread(error),
        }
    }
}

/// A model's error with all its causes: what a person must see is often the last of them.
fn whole(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the images")]
    struct Unreadable(#[source] io::Error);

    #[test]
    fn a_models_error_is_told_with_its_causes() {
        let error = || Box::new(Unreadable(io::Error::other("no such file")));
        let built = TrainingError::Build(error()).to_string();
        assert!(built.ends_with("cannot read the images: no such file"), "{built}");
        let failed = TrainingError::Model {
            step: Step::ZERO,
            operation: "evaluate",
            source: error(),
        }
        .to_string();
        assert!(failed.ends_with("at s0: cannot read the images: no such file"), "{failed}");
        let shown = TrainingError::state_at(Step::new(3))(StateError::TooMany).to_string();
        assert_eq!(shown, format!("at s3: {}", StateError::TooMany));
    }
}
