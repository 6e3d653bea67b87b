//! Gradients that are computed: at once, or enqueued on a device, where one may be begun while another is under way.

use sardana_actors::worker::{Gradient, StepDriver};
use sardana_collectives::gradient::{Enqueued, GradientBuffer, WriteMode};
use sardana_protocol::words::Step;

use super::TrainingError;
use crate::data::Shard;
use crate::model::{Layout, ModelError, Trainable};

/// A gradient that is enqueued where it is computed, and does not count yet.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) gradient: Gradient,
    pub(super) rest: Enqueued,
}

impl UnderWay {
    /// Waits until it is there, and tells of it. `after` is the buffer of the gradient that was begun beside it, in which it is as well if they are of one
    /// piece.
    pub(super) fn settle(
        self,
        after: Option<&mut GradientBuffer>,
        layout: &Layout,
        driver: &StepDriver,
    ) -> Result<(), TrainingError> {
        let Self { mut gradient, rest } = self;
        let buffer = gradient.buffer.as_mut().or(after);
        let buffer = buffer.expect("a gradient's buffer goes to the one that is begun beside it, or stays");
        let settled = rest.settle(buffer, layout);
        settled.map_err(|source| failed(gradient.step, source.into()))?;
        driver.computed(gradient);
        Ok(())
    }
}

fn failed(step: Step, source: ModelError) -> TrainingError {
    TrainingError::Model {
        step,
        operation: "compute a gradient",
        source,
    }
}

/// Has the model compute or enqueue a gradient.
pub(super) fn gradient(
    model: &impl Trainable,
    samples: &Shard,
    layout: &Layout,
    buffer: &mut GradientBuffer,
    mode: WriteMode,
) -> Result<Enqueued, TrainingError> {
    let (step, shard) = (samples.step(), samples.index());
    let _in_shard = tracing::debug_span!("shard", shard).entered();
    let mut writer = buffer.writer(layout, mode);
    model.gradient(samples, &mut writer).map_err(|source| failed(step, source))?;
    writer
        .enqueue()
        .map_err(|source| TrainingError::Gradient { step, shard, source })
}

/// The gradient of an empty shard, in a buffer in which no other is under way.
pub(super) fn zero(step: Step, layout: &Layout, buffer: &mut GradientBuffer, mode: WriteMode) -> Result<(), TrainingError> {
    let zeros = buffer.writer(layout, mode).zero();
    let zeros = zeros.and_then(|()| buffer.wait_computed());
    zeros.map_err(|source| failed(step, source.into()))
}
