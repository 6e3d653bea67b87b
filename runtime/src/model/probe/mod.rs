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
use super::hash::{hash_of, state_specs, told_tensors};
use super::kept::Kept;
use super::state::{StateError, wanted_checked};
use super::threads::are_equal;
use super::wanted::see_wanted;
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
/// state 0. It costs three gradients of one shard, or four on a device that is not a processor, two updates, a copy of the state, two looks at it, and three hashes: of state 0 as it is
/// copied, and twice of state 1, of which only those pieces are hashed that are not as they were in state 0. A state that the model [hashes](Trainable::piece_hashes) where it lies is brought here four times.
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
    // State 0 is looked at once: as it is shared, or else as it is shown. (By hashes that the model gives as well, which cost little.)
    let shared = model.share();
    let is_state_zero = match start.is_told_by(model)? {
        None if shared.is_some() => true,
        None => start.is_state_of(model)?,
        Some(is_told) => is_told,
    };
    if !is_state_zero {
        let (expected, found) = (start.hash, start.kept.hash_state(model, Step::ZERO)?);
        return Err(ProbeError::GradientMovesState { expected, found });
    }
    // What outlives an update is looked at after one.
    let (outlives, passes): (Option<_>, Option<_>) = match shared {
        Some(shared) if shared.outlives_updates() => (Some(shared), None),
        shared => (None, shared),
    };
    start.compare(passes, model, (&layout, &shard))?;
    apply(model, &layout, &first)?;
    start.compare(outlives, model, (&layout, &shard))?;

    // Of state 1 once what is shared is hashed, and once what is shown.
    let after = match model.share() {
        Some(shared) => start.kept.hash_shared(shared.as_ref(), Step::ZERO.next())?,
        None => start.kept.hash_shown(model, Step::ZERO.next())?,
    };
    start.kept.load(model)?;
    let restored = sum(model, &layout, &shard, second.into_buffer())?;
    // Where something is different that may be because of what `load` forgets. Otherwise it is enough to look at the end.
    if let Some(difference) = Difference::between(&layout, &model.auxiliary(), &first, &restored)? {
        start.bring_back(model)?;
        return Err(ProbeError::GradientHasHiddenState(difference.place));
    }
    apply(model, &layout, &first)?;
    let again = start.kept.hash_state(model, Step::ZERO.next())?;
    if after != again {
        let why = start.other_after(model, after, again)?;
        start.bring_back(model)?;
        return Err(why);
    }
    start.bring_back(model)?;
    start.is_shown_again(model)?;
    let state_zero = start.hash;
    let Kept { specs, bytes, .. } = start.kept;
    Ok(Probed {
        probe: Probe { state_zero, after },
        specs,
        reserve: bytes,
    })
}

/// The state that a probe starts from and ends in.
struct Start {
    hash: StateHash,
    kept: Kept,
}

impl Start {
    fn of(model: &dyn Trainable) -> Result<Self, ProbeError> {
        let told = told_tensors(model)?;
        let found = told.as_deref().map(|tensors| hash_of(tensors, Step::ZERO));
        let specs = match told {
            Some(tensors) => tensors.into_iter().map(|tensor| tensor.spec).collect(),
            None => state_specs(model)?,
        };
        let kept = Kept::of(model, specs)?;
        let hash = kept.hash(Step::ZERO);
        match found {
            Some(found) if found != hash => Err(ProbeError::HashesAnother { expected: hash, found }),
            Some(_) | None => Ok(Self { hash, kept }),
        }
    }

    /// Whether this is the model's state, by the hashes that the model gives of it, or else by what it shows.
    fn is_state_of(&self, model: &dyn Trainable) -> Result<bool, StateError> {
        match self.is_told_by(model)? {
            Some(is_told) => Ok(is_told),
            None => self.kept.is_shown_by(model),
        }
    }

    /// Whether this is the model's state by the hashes that it gives of it, if it does.
    fn is_told_by(&self, model: &dyn Trainable) -> Result<Option<bool>, StateError> {
        let told = told_tensors(model)?;
        Ok(told.map(|tensors| hash_of(&tensors, Step::ZERO) == self.hash))
    }

    /// Whether this, with the same tensors, is what is shared: one half of them and the other, as holders of shares see it.
    fn is_shared_by(&self, shared: &dyn SharedState) -> Result<bool, StateError> {
        let (mut same, Kept { specs, bytes: saved, .. }) = (true, &self.kept);
        for half in 0..2 {
            let mut specs = specs.iter().enumerate();
            let is_half = |spec: &TensorSpec, _: &Range<usize>| {
                specs.next().is_some_and(|(number, own)| own == spec && number % 2 == half)
            };
            let compare = |place: Range<usize>, bytes: &[u8]| {
                same = same && saved.get(place).is_some_and(|expected| are_equal(expected, bytes));
            };
            let bytes = see_wanted(&|wanted, take| wanted_checked(shared, wanted, take), is_half, compare)?;
            same = same && bytes == saved.len() && specs.next().is_none();
        }
        Ok(same)
    }

    /// What was shared once gradients of this shard were taken, if anything was, must be this.
    fn compare(
        &self,
        shared: Option<Box<dyn SharedState>>,
        model: &mut dyn Trainable,
        (layout, shard): (&Layout, &Shard),
    ) -> Result<(), ProbeError> {
        let Some(shared) = shared else { return Ok(()) };
        if self.is_shared_by(&*shared)? {
            return Ok(());
        }
        let (expected, found) = (self.hash, self.kept.hash_shared(&*shared, Step::ZERO)?);
        drop(shared);
        // Was it another one, or did the gradient move the state?
        self.kept.load(model)?;
        sum(model, layout, shard, GradientBuffer::zeros(layout))?;
        if self.is_state_of(model)? {
            return Err(ProbeError::SharesAnother { expected, found });
        }
        let found = self.kept.hash_state(model, Step::ZERO)?;
        Err(ProbeError::GradientMovesState { expected, found })
    }

    /// Loads it, and looks whether it is there.
    fn bring_back(&self, model: &mut dyn Trainable) -> Result<(), ProbeError> {
        self.kept.load(model)?;
        if self.is_state_of(model)? {
            return Ok(());
        }
        let (expected, found) = (self.hash, self.kept.hash_state(model, Step::ZERO)?);
        Err(ProbeError::LoadForgets { expected, found })
    }

    /// What was brought back is what is shown as well, if it was compared by hashes alone.
    fn is_shown_again(&self, model: &dyn Trainable) -> Result<(), ProbeError> {
        if told_tensors(model)?.is_none() || self.kept.is_shown_by(model)? {
            return Ok(());
        }
        let (expected, found) = (self.hash, self.kept.hash_shown(model, Step::ZERO)?);
        Err(ProbeError::LoadForgets { expected, found })
    }

    /// Why the same update gave `after` at first, as the model shares it, and then `again`, as it hashes or shows it.
    fn other_after(&self, model: &dyn Trainable, after: StateHash, again: StateHash) -> Result<ProbeError, ProbeError> {
        let expected = self.kept.hash_shown(model, Step::ZERO.next())?;
        if expected != again {
            return Ok(ProbeError::HashesAnother { expected, found: again });
        }
        if let Some(shared) = model.share() {
            let found = self.kept.hash_shared(shared.as_ref(), Step::ZERO.next())?;
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
mod tests;
