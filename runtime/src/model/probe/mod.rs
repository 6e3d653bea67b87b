//! One gradient and one update, taken before a model joins a run: it finds a model that breaks the promises of [`Trainable`],
//! and its hashes tell whether two workers' arithmetic gives the same bits.
//!
//! It must not know of other workers; comparing is admission's work.

mod error;

use std::ops::Range;

use bytes::BytesMut;
pub use error::ProbeError;
use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_protocol::state::{StateHash, TensorSpec};
use sardana_protocol::words::Step;

use super::difference::Difference;
use super::hash::{hash_of, saved_hash, shared_hash, shown_hash, state_hash, state_specs, told_tensors};
use super::saved::{restore_as, save_as, see_wanted};
use super::state::{StateError, Take, visit_checked, wanted_checked};
use super::threads::are_equal;
use super::{SharedState, Trainable};
use crate::data::{Sampler, Shard};

/// What [`Trainable::device`] says of a model that computes on no other device.
const PROCESSORS: &str = "cpu";

/// What a probe found. Equal on all workers of a job, or they may not train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Hash of the state before the first update.
    pub state_zero: StateHash,
    /// Hash of the state after one update by the gradient of shard 0 of step 0 alone.
    pub after: StateHash,
}

/// Takes one gradient and one update of the model's state 0, checks the promises of [`Trainable`], and leaves the model in
/// state 0. It costs three gradients of one shard, or four on a device that is not a processor, two updates, a copy of the state, and three hashes: of state 0, and twice of state 1.
/// A state that the model [hashes](Trainable::piece_hashes) where it lies is brought here four times.
///
/// # Errors
/// When the model fails or breaks a promise; it may then be in any state: drop it.
pub fn probe(model: &mut dyn Trainable, sampler: &Sampler) -> Result<Probe, ProbeError> {
    probe_closely(model, sampler).map(|probed| probed.probe)
}

/// What a probe found, and what it has come to know by the way.
pub(crate) struct Probed {
    pub(crate) probe: Probe,
    /// The state's tensors.
    pub(crate) specs: Vec<TensorSpec>,
    /// The memory that a copy of the state was in: another state may lie there.
    pub(crate) reserve: BytesMut,
}

/// The same as [`probe`].
pub(crate) fn probe_closely(model: &mut dyn Trainable, sampler: &Sampler) -> Result<Probed, ProbeError> {
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let shard = sampler.shard(Step::ZERO, 0);
    let start = Start::of(model)?;

    let first = sum(model, &layout, &shard, GradientBuffer::zeros(&layout))?;
    let second = sum(model, &layout, &shard, GradientBuffer::zeros(&layout))?;
    equal(model, &layout, [&first, &second])?;
    // What a device does not do in order may go well once.
    let second = if model.device() == PROCESSORS {
        second
    } else {
        let third = sum(model, &layout, &shard, second.into_buffer())?;
        equal(model, &layout, [&first, &third])?;
        third
    };
    if !start.is_state_of(model)? {
        let (expected, found) = (start.hash, state_hash(model, Step::ZERO)?);
        return Err(ProbeError::GradientMovesState { expected, found });
    }
    let shared = model.share();
    start.compare(shared.as_deref())?;

    // Of state 1 once what is shared is hashed, and once what is shown.
    let outlives = shared.filter(|shared| shared.outlives_updates());
    apply(model, &layout, &first)?;
    start.compare(outlives.as_deref())?;
    drop(outlives);
    let after = match model.share() {
        Some(shared) => shared_hash(shared.as_ref(), Step::ZERO.next())?,
        None => shown_hash(model, Step::ZERO.next())?,
    };
    start.bring_back(model)?;
    let restored = sum(model, &layout, &shard, second.into_buffer())?;
    if let Some(difference) = Difference::between(&layout, &model.auxiliary(), &first, &restored)? {
        return Err(ProbeError::GradientHasHiddenState(difference.place));
    }
    apply(model, &layout, &first)?;
    let again = state_hash(model, Step::ZERO.next())?;
    if after != again {
        return Err(other_after(model, after, again)?);
    }
    start.bring_back(model)?;
    start.is_shown_again(model)?;
    let state_zero = start.hash;
    let Start { specs, saved, .. } = start;
    Ok(Probed {
        probe: Probe { state_zero, after },
        specs,
        reserve: saved,
    })
}

/// Why the same update gave `after` at first, as the model shares it, and then `again`, as it hashes or shows it.
fn other_after(model: &dyn Trainable, after: StateHash, again: StateHash) -> Result<ProbeError, ProbeError> {
    let expected = shown_hash(model, Step::ZERO.next())?;
    if expected != again {
        return Ok(ProbeError::HashesAnother { expected, found: again });
    }
    if let Some(shared) = model.share() {
        let found = shared_hash(shared.as_ref(), Step::ZERO.next())?;
        if found != again {
            let expected = again;
            return Ok(ProbeError::SharesAnother { expected, found });
        }
    }
    Ok(ProbeError::ApplyHasHiddenState {
        expected: after,
        found: again,
    })
}

/// The state that a probe starts from and ends in.
struct Start {
    hash: StateHash,
    specs: Vec<TensorSpec>,
    saved: BytesMut,
}

impl Start {
    fn of(model: &dyn Trainable) -> Result<Self, ProbeError> {
        let told = told_tensors(model)?;
        let found = told.as_deref().map(|tensors| hash_of(tensors, Step::ZERO));
        let specs = match told {
            Some(tensors) => tensors.into_iter().map(|tensor| tensor.spec).collect(),
            None => state_specs(model)?,
        };
        let saved = save_as(model, &specs)?;
        let hash = saved_hash(&specs, &saved, Step::ZERO);
        match found {
            Some(found) if found != hash => Err(ProbeError::HashesAnother { expected: hash, found }),
            Some(_) | None => Ok(Self { hash, specs, saved }),
        }
    }

    /// Whether this is the model's state, by the hashes that the model gives of it, or else by what it shows.
    fn is_state_of(&self, model: &dyn Trainable) -> Result<bool, StateError> {
        match told_tensors(model)? {
            Some(tensors) => Ok(hash_of(&tensors, Step::ZERO) == self.hash),
            None => self.is_shown_by(&|take| visit_checked(model, take)),
        }
    }

    /// Whether this, with the same tensors, is what is shown.
    fn is_shown_by(&self, show: &dyn Fn(Take<'_>) -> Result<(), StateError>) -> Result<bool, StateError> {
        let (mut rest, mut specs, mut same) = (&self.saved[..], self.specs.iter(), true);
        show(&mut |spec, bytes| {
            let (expected, after) = rest.split_at(bytes.len().min(rest.len()));
            same = same && specs.next() == Some(spec) && are_equal(expected, bytes);
            rest = after;
        })?;
        Ok(same && specs.next().is_none())
    }

    /// Whether this, with the same tensors, is what is shared: one half of them and the other, as holders of shares see it.
    fn is_shared_by(&self, shared: &dyn SharedState) -> Result<bool, StateError> {
        let mut same = true;
        for half in 0..2 {
            let mut specs = self.specs.iter().enumerate();
            let is_half = |spec: &TensorSpec, _: &Range<usize>| {
                specs.next().is_some_and(|(number, own)| own == spec && number % 2 == half)
            };
            let compare = |place: Range<usize>, bytes: &[u8]| {
                same = same && self.saved.get(place).is_some_and(|expected| are_equal(expected, bytes));
            };
            let bytes = see_wanted(&|wanted, take| wanted_checked(shared, wanted, take), is_half, compare)?;
            same = same && bytes == self.saved.len() && specs.next().is_none();
        }
        Ok(same)
    }

    /// What is shared, if anything is, must be this.
    fn compare(&self, shared: Option<&dyn SharedState>) -> Result<(), ProbeError> {
        match shared {
            Some(shared) if !self.is_shared_by(shared)? => Err(ProbeError::SharesAnother {
                expected: self.hash,
                found: shared_hash(shared, Step::ZERO)?,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn bring_back(&self, model: &mut dyn Trainable) -> Result<(), ProbeError> {
        restore_as(model, &self.specs, &self.saved, |_| ())?;
        if self.is_state_of(model)? {
            return Ok(());
        }
        let (expected, found) = (self.hash, state_hash(model, Step::ZERO)?);
        Err(ProbeError::LoadForgets { expected, found })
    }

    /// What was brought back is what is shown as well, if it was compared by hashes alone.
    fn is_shown_again(&self, model: &dyn Trainable) -> Result<(), ProbeError> {
        if told_tensors(model)?.is_none() || self.is_shown_by(&|take| visit_checked(model, take))? {
            return Ok(());
        }
        let (expected, found) = (self.hash, shown_hash(model, Step::ZERO)?);
        Err(ProbeError::LoadForgets { expected, found })
    }
}

fn sum(model: &dyn Trainable, layout: &Layout, shard: &Shard, mut buffer: GradientBuffer) -> Result<Sum, ProbeError> {
    let mut writer = buffer.writer(layout, WriteMode::Store);
    model.gradient(shard, &mut writer).map_err(|source| ProbeError::Model {
        operation: "compute a gradient",
        source,
    })?;
    writer.finish()?;
    buffer.lower().map_err(|source| ProbeError::Model {
        operation: "compute a gradient",
        source: source.into(),
    })?;
    let sum = Sum::from_buffer(shard.step(), buffer);
    let (expected, found) = (shard.samples().len() as u64, sum.mean(layout).samples());
    if expected == found {
        Ok(sum)
    } else {
        Err(ProbeError::Samples { expected, found })
    }
}

/// Two gradients of one state and shard must have the same bits.
fn equal(model: &dyn Trainable, layout: &Layout, [one, other]: [&Sum; 2]) -> Result<(), ProbeError> {
    let device = model.device();
    match Difference::between(layout, &model.auxiliary(), one, other)? {
        None => Ok(()),
        Some(difference) if device == PROCESSORS => Err(ProbeError::GradientVaries(difference.place)),
        Some(difference) => Err(ProbeError::DeviceVaries {
            device,
            place: difference.words(),
        }),
    }
}

/// Applies the sum to the model's state 0.
fn apply(model: &mut dyn Trainable, layout: &Layout, sum: &Sum) -> Result<(), ProbeError> {
    let applied = model.apply(Step::ZERO, &sum.mean(layout));
    applied.map_err(|source| ProbeError::Model {
        operation: "apply an update",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::super::toys::{Fault, Line, OnDevice, line_spec};
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
    fn a_device_that_goes_wrong_every_third_time_is_found_and_a_processor_is_asked_twice() {
        let (_, found) = probed(Fault::EveryThirdGradient);
        // It is the third of them, with the restored state.
        assert!(matches!(found, Err(ProbeError::GradientHasHiddenState(_))), "{found:?}");
        let mut on_device = OnDevice(Line::faulty(Fault::EveryThirdGradient));
        let sampler = Sampler::new(&line_spec(5)).unwrap();
        let error = probe(&mut on_device, &sampler).unwrap_err();
        assert_eq!(on_device.0.taken.get(), 3);
        // The closed form of the first gradient, and its neighbour.
        let shard = sampler.shard(Step::ZERO, 0);
        let mut slope = 0.0;
        for &sample in shard.samples() {
            let (x, y) = Line::sample(sample);
            slope += (0.0 - y) * x;
        }
        let mean = |slope: f64| (slope / shard.samples().len() as f64).to_bits();
        let ProbeError::DeviceVaries { device, place } = &error else {
            panic!("{error}");
        };
        let expected = format!("element 1 of w, {:#018x} and {:#018x}", mean(slope), mean(slope + 1.0));
        assert_eq!((device.as_str(), place), ("a device", &expected));
        for cause in [
            "atomics",
            "CUBLAS_WORKSPACE_CONFIG",
            "cuDNN",
            "another stream",
            "NVIDIA_TF32_OVERRIDE",
        ] {
            assert!(error.to_string().contains(cause), "{error}");
        }

        let mut right = OnDevice(Line::default());
        let found = probe(&mut right, &sampler).unwrap();
        assert_eq!(Some(found), probed(Fault::None).1.ok(), "the device never reaches the probe");
        assert_eq!(right.0.taken.get(), 4);
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
        assert!(matches!(error(Fault::SharesWhatChanges), ProbeError::SharesAnother { .. }));
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

    #[test]
    fn hashes_that_a_model_gives_of_itself_are_those_of_what_it_shows() {
        let sampler = Sampler::new(&line_spec(5)).unwrap();
        let error = |fault| probe(&mut OnDevice(Line::faulty(fault)), &sampler).unwrap_err();
        let zero = state_hash(&Line::default(), Step::ZERO).unwrap();
        // Without a share what is shown is hashed in its place.
        let hidden = error(Fault::VelocityHidden);
        assert!(matches!(hidden, ProbeError::ApplyHasHiddenState { .. }), "{hidden}");
        for (fault, shown) in [
            (Fault::HashesOthers, zero),
            (Fault::HashesStaleCopy, probed(Fault::None).1.unwrap().after),
        ] {
            let error = error(fault);
            assert!(
                matches!(error, ProbeError::HashesAnother { expected, found } if expected == shown && found != shown),
                "{fault:?}: {error}"
            );
        }
        let none = error(Fault::HashesNothing).to_string();
        assert_eq!(
            none,
            "model: tensor w: f64[2]: expected one hash for each 1048576 bytes of it, found 0 hashes; correct `piece_hashes`"
        );
        // Other promises are checked by hashes as by what is shown.
        let moves = error(Fault::GradientMovesState);
        assert!(
            matches!(moves, ProbeError::GradientMovesState { expected, .. } if expected == zero),
            "{moves}"
        );
        assert!(matches!(error(Fault::LoadForgets), ProbeError::LoadForgets { .. }));
        assert!(matches!(error(Fault::LoadLeavesShown), ProbeError::LoadForgets { .. }));
        assert!(matches!(error(Fault::SharesStaleCopy), ProbeError::SharesAnother { .. }));
    }

    #[test]
    fn a_part_of_a_state_is_shared_as_the_whole_is() {
        let error = probed(Fault::SharesOtherPart).1.unwrap_err();
        assert_eq!(
            error.to_string(),
            "model: expected `visit_wanted` to show velocity: f64[2], found w: f64[2]; it must show the same tensors in the same order as before"
        );
    }
}
