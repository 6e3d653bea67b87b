//! The training thread: does the tasks that it finds at its step driver, one after the other. Knows the model and nothing else: no
//! network, no membership.

mod computing;
#[cfg(test)]
mod enqueued;
mod error;
mod loading;
#[cfg(test)]
mod reserve;
#[cfg(test)]
mod summing;

use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_actors::fault::{self, Point};
use sardana_actors::room::{Reserve, Room};
use sardana_actors::worker::{Gradient, StepDriver, Task};
use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::summation::Summation;
use sardana_protocol::job::{JobIdentity, JobSpec, Order};
use sardana_protocol::limits::{MAX_RESULTS, MAX_TEXT_BYTES};
use sardana_protocol::member::Member;
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::messages::StepReport;
use sardana_protocol::words::{ShardRange, Step};
use tracing::{Span, span};

use crate::copies::Copies;
use crate::data::{Coming, Sampler};
use crate::fingerprint;
use crate::model::{
    Layout, ModelError, Probed, StateHash, StatePieces, TensorSpec, Trainable, copy_shares, describe_specs, pieces_of,
    probe_closely, restore_as, state_hash, tensors_hash_of,
};

use computing::UnderWay;
pub use error::TrainingError;
use loading::check_loaded;

/// A model that has been probed, with what others need to know of it.
pub(crate) struct Prepared<M> {
    pub(crate) model: M,
    pub(crate) sampler: Sampler,
    pub(crate) layout: Arc<Layout>,
    pub(crate) facts: Facts,
    /// Memory that a state was copied to.
    pub(crate) reserve: BytesMut,
}

/// What others need to know of a model.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) identity: JobIdentity,
    /// The state's tensors.
    pub(crate) specs: Arc<[TensorSpec]>,
    pub(crate) pieces: Arc<StatePieces>,
    /// What the state's tensors are called, for checkpoints.
    pub(crate) description: Bytes,
    pub(crate) auxiliary: Vec<String>,
    /// Bytes that the model will hold besides what it has needed so far.
    pub(crate) will_hold_bytes: usize,
    pub(crate) device_memory: Option<DeviceMemory>,
    /// By what its gradients are to be summed, if not by links.
    pub(crate) summation: Option<Arc<dyn Summation>>,
}

/// Builds the model and probes it.
pub(crate) fn prepare<M: Trainable>(
    spec: &JobSpec,
    build: impl FnOnce(&JobSpec) -> Result<M, ModelError>,
) -> Result<Prepared<M>, TrainingError> {
    let sampler = Sampler::new(spec)?;
    let mut model = build(spec).map_err(TrainingError::Build)?;
    let summation = model.summation();
    if let (Some(summation), Order::Exact) = (&summation, spec.order) {
        return Err(TrainingError::Summation(summation.name()));
    }
    let Probed { probe, specs, reserve } = probe_closely(&mut model, &sampler).map_err(Box::new)?;
    let layout = Arc::new(Layout::new(model.gradients(), model.auxiliary().len())?);
    let settings = StateHash::of(settings(&model.describe(), summation.as_deref()).as_bytes());
    let fingerprint =
        fingerprint::of_this_process([tensors_hash_of(&model, &specs)?, settings, probe.after], &model.device())
            .map_err(TrainingError::Program)?;
    let facts = Facts {
        identity: JobIdentity {
            spec: spec.clone(),
            state_zero: probe.state_zero,
            fingerprint,
        },
        pieces: Arc::new(pieces_of(&specs)),
        description: describe_specs(&specs)?,
        specs: specs.into(),
        auxiliary: model.auxiliary(),
        will_hold_bytes: model.will_hold_bytes(),
        device_memory: model.device_memory(),
        summation,
    };
    Ok(Prepared {
        model,
        sampler,
        layout,
        facts,
        reserve,
    })
}

/// What else decides the bits: what the model says of itself, and by what its gradients are summed, if not by links.
fn settings(said: &str, summation: Option<&dyn Summation>) -> String {
    match summation {
        Some(summation) => format!("{said}\nsums by {}", summation.name()),
        None => said.to_owned(),
    }
}

/// Works at `driver` until it says that this worker ends.
pub(crate) fn work<M: Trainable>(prepared: &mut Prepared<M>, driver: &StepDriver) -> Result<(), TrainingError> {
    let mut training = Training::begin(prepared, driver, Copies::on_threads());
    loop {
        let task = match training.beside()? {
            Some(task) => task,
            None => driver.next(),
        };
        if training.perform(task)?.is_break() {
            return Ok(());
        }
    }
}

/// A model at its step driver.
pub(crate) struct Training<'a, M> {
    prepared: &'a mut Prepared<M>,
    driver: &'a StepDriver,
    copies: Copies,
    in_step: StepSpan,
    /// What the model was last told of the shards that come.
    told: Option<(Step, ShardRange)>,
    /// Memory for a shard's samples.
    room: Vec<u64>,
    /// The gradient that a device computes, if it does not count yet.
    under_way: Option<UnderWay>,
}

/// What a model logs says by this span of which step it is. It is made once for each step, not for each gradient.
#[derive(Debug, Default)]
struct StepSpan(Option<(Step, Span)>);

impl StepSpan {
    fn enter(&mut self, step: Step) -> span::Entered<'_> {
        let known = self.0.take().filter(|(of, _)| *of == step);
        let (_, span) = self
            .0
            .insert(known.unwrap_or_else(|| (step, tracing::error_span!("step", %step))));
        span.enter()
    }
}

impl<'a, M: Trainable> Training<'a, M> {
    /// Begins at `driver`, which has had no task taken from it.
    pub(crate) fn begin(prepared: &'a mut Prepared<M>, driver: &'a StepDriver, copies: Copies) -> Self {
        if prepared.model.share().is_some() {
            driver.copies_beside();
        }
        driver.reserve().keep(take(&mut prepared.reserve));
        Self {
            prepared,
            driver,
            copies,
            in_step: StepSpan::default(),
            told: None,
            room: Vec::new(),
            under_way: None,
        }
    }

    /// The gradient that comes next, if a device computes one: it is begun beside that, so that the device is not left without work. Where none is to be begun
    /// it is waited for, so that a gradient that never ends is a stall, and nothing but a gradient is done beside one.
    pub(crate) fn beside(&mut self) -> Result<Option<Task>, TrainingError> {
        let before = self.under_way.as_mut();
        let next = before.and_then(|before| self.driver.next_beside(&mut before.gradient));
        if next.is_none() {
            self.settle(None)?;
        }
        Ok(next)
    }

    /// Waits for the gradient that is under way, if one is.
    fn settle(&mut self, after: Option<&mut GradientBuffer>) -> Result<(), TrainingError> {
        let Some(before) = self.under_way.take() else { return Ok(()) };
        before.settle(after, &self.prepared.layout, self.driver)
    }

    /// Computes a gradient, or enqueues it on a device and waits for the one before. So there are never more than two under way.
    fn gradient(
        &mut self,
        (step, piece, shard): (Step, ShardRange, u32),
        mut buffer: GradientBuffer,
        mode: WriteMode,
    ) -> Result<(), TrainingError> {
        let samples = self.prepared.sampler.shard_in(step, shard, take(&mut self.room));
        let rest = if samples.is_empty() {
            self.settle(Some(&mut buffer))?;
            computing::zero(step, &self.prepared.layout, &mut buffer, mode)?;
            None
        } else {
            let Prepared { model, layout, .. } = &*self.prepared;
            let rest = computing::gradient(model, &samples, layout, &mut buffer, mode)?;
            self.settle(Some(&mut buffer))?;
            Some(rest).filter(|rest| !rest.is_there())
        };
        self.room = samples.into_room();
        let gradient = Gradient {
            step,
            piece,
            shard,
            buffer: Some(buffer),
        };
        match rest {
            Some(rest) => self.under_way = Some(UnderWay { gradient, rest }),
            None => self.driver.computed(gradient),
        }
        Ok(())
    }

    /// Tells the model which shards come, if it was told of others.
    fn tell_coming(&mut self, step: Step) {
        let shards = self.driver.read(Member::coming_shards);
        if self.told.replace((step, shards)) != Some((step, shards)) {
            let Prepared {
                model, sampler, facts, ..
            } = &*self.prepared;
            let coming = shards.start()..shards.end();
            model.coming(Coming::new(sampler.clone(), step, coming, facts.identity.spec.steps));
        }
    }

    /// Does one task of the step driver, and says whether it was the last.
    pub(crate) fn perform(&mut self, task: Task) -> Result<ControlFlow<()>, TrainingError> {
        let Self {
            prepared,
            driver,
            copies,
            in_step,
            ..
        } = self;
        let Prepared {
            model,
            sampler,
            layout,
            facts,
            reserve: _,
        } = &mut **prepared;
        match task {
            Task::Gradient {
                step,
                piece,
                shard,
                buffer,
                mode,
            } => {
                let mut in_step = take(&mut self.in_step);
                let entered = in_step.enter(step);
                self.tell_coming(step);
                self.gradient((step, piece, shard), buffer, mode)?;
                drop(entered);
                self.in_step = in_step;
            }
            Task::Apply { sum } => {
                let step = sum.sum().step();
                copies.before_update().map_err(TrainingError::copy_by(step))?;
                let _in_step = in_step.enter(step);
                driver.applied(apply(model, sampler, layout, sum.sum())?);
                driver.note_device_memory(model.device_memory());
            }
            Task::Load { step, state } => {
                copies.finish().map_err(TrainingError::copy_by(step))?;
                let moved = |bytes| driver.moved(bytes);
                restore_as(model, &facts.specs, &state.bytes, moved).map_err(TrainingError::state_at(step))?;
                check_loaded(model, facts, step, state, moved)?;
                driver.loaded();
            }
            Task::Copy { shares, room, reply } => {
                let step = driver.read(Member::step);
                let (pieces, room) = (&facts.pieces, room_for_copies(room, driver.reserve().clone()));
                match model.share() {
                    Some(shared) => {
                        let begun = copies.begin_shared(shared, Arc::clone(pieces), shares, room, (driver.mover(), reply));
                        begun.map_err(TrainingError::copy_by(step))?;
                    }
                    None => {
                        let copies = copy_shares(model, pieces, &shares, room);
                        reply.send(copies.map_err(TrainingError::state_at(step))?);
                    }
                }
            }
            Task::Conclude { step } => {
                let results = evaluate(model, step)?;
                let hash = state_hash(model, step).map_err(TrainingError::state_at(step))?;
                driver.concluded(hash, results);
            }
            Task::End => {
                let step = driver.read(Member::step);
                copies.finish().map_err(TrainingError::copy_by(step))?;
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// What gives room for a copy of so many bytes: what was made before, if it fits.
fn room_for_copies(made: Option<Room>, reserve: Reserve) -> impl FnOnce(usize) -> Room {
    move |bytes| made.and_then(|room| room.of(bytes)).unwrap_or_else(|| reserve.room(bytes))
}

fn evaluate(model: &dyn Trainable, step: Step) -> Result<Vec<(String, f64)>, TrainingError> {
    let results = model.evaluate().map_err(|source| TrainingError::Model {
        step,
        operation: "evaluate",
        source,
    })?;
    check_results(&results)?;
    Ok(results)
}

/// Every worker must be able to tell these results.
fn check_results(results: &[(String, f64)]) -> Result<(), TrainingError> {
    if results.len() > MAX_RESULTS {
        return Err(TrainingError::Results(results.len()));
    }
    match results.iter().map(|(name, _)| name.len()).max() {
        Some(found) if found > MAX_TEXT_BYTES => Err(TrainingError::ResultName(found)),
        Some(_) | None => Ok(()),
    }
}

fn apply<M: Trainable>(model: &mut M, sampler: &Sampler, layout: &Layout, sum: &Sum) -> Result<StepReport, TrainingError> {
    let step = sum.step();
    let mean = sum.mean(layout);
    let (expected, found) = (sampler.samples(step), mean.samples());
    if expected != found {
        return Err(TrainingError::Samples { step, expected, found });
    }
    model.apply(step, &mean).map_err(|source| TrainingError::Model {
        step,
        operation: "apply an update",
        source,
    })?;
    fault::reached(Point::AfterApply, step);
    Ok(StepReport {
        step,
        samples: found,
        sums: mean.auxiliary(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::toys::{Line, OnDevice, line_spec};

    #[test]
    fn a_state_is_shown_no_oftener_than_promises_are_checked_by_it() {
        let prepared = prepare(&line_spec(1), |_| Ok(Line::default())).unwrap();
        // What it consists of, the copy, updated again, and brought back. Else it is shared.
        assert_eq!(prepared.model.shown.get(), 4);
        // Where it hashes itself the copy is left, which all hashes are compared with, and what is shown in the end.
        let prepared = prepare(&line_spec(1), |_| Ok(OnDevice(Line::default()))).unwrap();
        assert_eq!(prepared.model.0.shown.get(), 2);
    }
}
