//! One gradient and one update, taken before a model joins a run: it finds a model that breaks the promises of [`Trainable`],
//! and its hashes tell whether two workers' arithmetic gives the same bits.
//!
//! It must not know of other workers; comparing is admission's work.

use sardana_collectives::gradient::{GradientBuffer, GradientError, Mean, Sum, WriteMode};
use sardana_collectives::layout::{Layout, LayoutError};
use sardana_protocol::state::{Dtype, StateHash};
use sardana_protocol::words::Step;

use super::saved::{restore, save};
use super::state::{StateError, shared_hash, state_hash};
use super::{ModelError, Trainable};
use crate::data::{Sampler, Shard};

/// What a probe found. Equal on all workers of a job, or they may not train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Hash of the state before the first update.
    pub state_zero: StateHash,
    /// Hash of the state after one update by the gradient of shard 0 of step 0 alone.
    pub after: StateHash,
}

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
    /// A second gradient of the same shard differs, first in this tensor or sum; draw random numbers from [`Shard::random`]
    /// and keep no state.
    #[error(
        "probe: expected a second gradient of the same state and shard to have the same bits, found others in {0}; \
         `gradient` must draw its random numbers from the shard and must not keep anything between calls"
    )]
    GradientVaries(String),
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
    /// `share` gives another state than `visit`; give what is there now.
    #[error(
        "probe: expected `share` to show the state {expected}, as `visit` does, found {found}; \
         `share` must give the tensors as they are when it is called"
    )]
    SharesAnother {
        /// The hash of what `visit` shows.
        expected: StateHash,
        /// The hash of what was shared.
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

/// What the model shares with another thread must be what it shows to its own.
fn check_shared(model: &dyn Trainable, step: Step) -> Result<(), ProbeError> {
    let Some(shared) = model.share() else { return Ok(()) };
    let (expected, found) = (state_hash(model, step)?, shared_hash(shared.as_ref(), step)?);
    if expected == found {
        Ok(())
    } else {
        Err(ProbeError::SharesAnother { expected, found })
    }
}

/// Takes one gradient and one update of the model's state 0, checks the promises of [`Trainable`], and leaves the model in
/// state 0. It costs three gradients of one shard, two updates and some copies of the state.
///
/// # Errors
/// When the model fails or breaks a promise; it may then be in any state: drop it.
pub fn probe(model: &mut dyn Trainable, sampler: &Sampler) -> Result<Probe, ProbeError> {
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let shard = sampler.shard(Step::ZERO, 0);
    let start = Start {
        hash: state_hash(model, Step::ZERO)?,
        saved: save(model)?,
    };

    let first = sum(model, &layout, &shard)?;
    let second = sum(model, &layout, &shard)?;
    if let Some(place) = difference(model, &layout, &first, &second)? {
        return Err(ProbeError::GradientVaries(place));
    }
    let (expected, found) = (start.hash, state_hash(model, Step::ZERO)?);
    if expected != found {
        return Err(ProbeError::GradientMovesState { expected, found });
    }

    check_shared(model, Step::ZERO)?;
    let after = apply(model, &layout, &first)?;
    check_shared(model, Step::ZERO.next())?;
    start.bring_back(model)?;
    let third = sum(model, &layout, &shard)?;
    if let Some(place) = difference(model, &layout, &first, &third)? {
        return Err(ProbeError::GradientHasHiddenState(place));
    }
    let again = apply(model, &layout, &first)?;
    if after != again {
        return Err(ProbeError::ApplyHasHiddenState {
            expected: after,
            found: again,
        });
    }
    start.bring_back(model)?;
    Ok(Probe {
        state_zero: start.hash,
        after,
    })
}

/// The state that a probe starts from and ends in.
struct Start {
    hash: StateHash,
    saved: Vec<u8>,
}

impl Start {
    fn bring_back(&self, model: &mut dyn Trainable) -> Result<(), ProbeError> {
        restore(model, &self.saved)?;
        let (expected, found) = (self.hash, state_hash(model, Step::ZERO)?);
        if expected == found {
            Ok(())
        } else {
            Err(ProbeError::LoadForgets { expected, found })
        }
    }
}

fn sum(model: &dyn Trainable, layout: &Layout, shard: &Shard) -> Result<Sum, ProbeError> {
    let mut buffer = GradientBuffer::zeros(layout);
    let mut writer = buffer.writer(layout, WriteMode::Store);
    model.gradient(shard, &mut writer).map_err(|source| ProbeError::Model {
        operation: "compute a gradient",
        source,
    })?;
    writer.finish()?;
    let sum = Sum::from_buffer(shard.step(), buffer);
    let (expected, found) = (shard.samples().len() as u64, sum.mean(layout).samples());
    if expected == found {
        Ok(sum)
    } else {
        Err(ProbeError::Samples { expected, found })
    }
}

/// Where the bits of two sums of one shard differ: a tensor's or auxiliary sum's name.
fn difference(model: &dyn Trainable, layout: &Layout, one: &Sum, other: &Sum) -> Result<Option<String>, GradientError> {
    if one == other {
        return Ok(None);
    }
    let (one, other) = (one.mean(layout), other.mean(layout));
    for (tensor, spec) in layout.tensors().iter().enumerate() {
        let equal = match spec.dtype {
            Dtype::F32 => {
                let bits = |mean: &Mean<'_>| Ok::<_, GradientError>(mean.f32(tensor)?.into_iter().map(f32::to_bits));
                bits(&one)?.eq(bits(&other)?)
            }
            Dtype::F64 | Dtype::U64 => {
                let bits = |mean: &Mean<'_>| Ok::<_, GradientError>(mean.f64(tensor)?.into_iter().map(f64::to_bits));
                bits(&one)?.eq(bits(&other)?)
            }
        };
        if !equal {
            return Ok(Some(spec.name.clone()));
        }
    }
    let mut sums = one.auxiliary().into_iter().zip(other.auxiliary()).zip(model.auxiliary());
    let differing = sums.find(|((one, other), _)| one.to_bits() != other.to_bits());
    // Dividing by n may hide a last bit.
    Ok(Some(
        differing.map_or_else(|| "the last bits of a sum".to_owned(), |(_, name)| name),
    ))
}

/// Applies the sum to the model's state 0; gives the hash of state 1.
fn apply(model: &mut dyn Trainable, layout: &Layout, sum: &Sum) -> Result<StateHash, ProbeError> {
    model
        .apply(Step::ZERO, &sum.mean(layout))
        .map_err(|source| ProbeError::Model {
            operation: "apply an update",
            source,
        })?;
    Ok(state_hash(model, Step::ZERO.next())?)
}

#[cfg(test)]
mod tests {
    use super::super::toys::{Fault, Line, line_spec};
    use super::*;

    fn probed(fault: Fault) -> (Line, Result<Probe, ProbeError>) {
        let mut model = Line::faulty(fault);
        let result = probe(&mut model, &Sampler::new(&line_spec(5)).unwrap());
        (model, result)
    }

    #[test]
    fn a_good_model_is_left_in_state_zero() {
        let (model, probe) = probed(Fault::None);
        let probe = probe.unwrap();
        assert_eq!(probe.state_zero, state_hash(&Line::default(), Step::ZERO).unwrap());
        assert_eq!(probe.state_zero, state_hash(&model, Step::ZERO).unwrap());
        // The closed form of one update from zero: minus a tenth of the mean gradient.
        let shard = Sampler::new(&line_spec(5)).unwrap().shard(Step::ZERO, 0);
        let (mut sum0, mut sum1) = (0.0, 0.0);
        for &sample in shard.samples() {
            let (x, y) = Line::sample(sample);
            sum0 -= y;
            sum1 -= y * x;
        }
        let n = shard.samples().len() as f64;
        let velocity = [sum0 / n, sum1 / n];
        let expected = Line {
            w: velocity.map(|v| 0.0 - 0.1 * v),
            velocity,
            ..Line::default()
        };
        assert_eq!(probe.after, state_hash(&expected, Step::new(1)).unwrap());
    }

    #[test]
    fn each_broken_promise_has_its_own_error() {
        let error = |fault| probed(fault).1.unwrap_err();
        let varies = error(Fault::GradientVaries);
        assert!(
            matches!(&varies, ProbeError::GradientVaries(place) if place == "w"),
            "{varies}"
        );
        assert!(matches!(
            error(Fault::GradientMovesState),
            ProbeError::GradientMovesState { .. }
        ));
        assert!(matches!(error(Fault::LoadForgets), ProbeError::LoadForgets { .. }));
        assert!(matches!(error(Fault::SharesStaleCopy), ProbeError::SharesAnother { .. }));
        assert!(matches!(error(Fault::VelocityHidden), ProbeError::ApplyHasHiddenState { .. }));
        assert!(matches!(
            error(Fault::GradientUsesStaleCopy),
            ProbeError::GradientHasHiddenState(_)
        ));
        let failed = error(Fault::GradientFails);
        assert_eq!(
            failed.to_string(),
            "probe: the model failed to compute a gradient: no such sample"
        );
        let untold = error(Fault::SamplesUntold);
        assert!(
            matches!(
                untold,
                ProbeError::Samples { expected: 3, found: 0 } | ProbeError::Gradient(_)
            ),
            "{untold}"
        );
    }
}
