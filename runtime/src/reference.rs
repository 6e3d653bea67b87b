//! The law as a plain loop: every step, every shard in order, one process, no membership.
//!
//! It is the oracle that elastic runs, tests and benchmarks are compared with, and so it must not use any of their machines,
//! actors or links: only the model, the sampler and the sum.

use std::ops::Range;

use sardana_collectives::gradient::{GradientBuffer, GradientError, Sum, WriteMode};
use sardana_collectives::layout::{Layout, LayoutError};
use sardana_protocol::job::JobSpec;
use sardana_protocol::messages::StepReport;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::Step;

use crate::data::{Sampler, SamplerError};
use crate::model::{ModelError, StateError, Trainable, state_hash};

/// What a sequential run ends with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Hash of the final state.
    pub hash: StateHash,
    /// The auxiliary sums of every step, in order.
    pub reports: Vec<StepReport>,
    /// What the model's evaluation found.
    pub results: Vec<(String, f64)>,
}

/// Why a sequential run ended early. The model is in the state of the step named, or of the last step applied.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The job's constants make no data order: fix the field named.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The gradient's tensors or sums cannot be laid out: correct `gradients` or `auxiliary`.
    #[error("the model's gradient cannot be laid out: {0}")]
    Layout(#[from] LayoutError),
    /// The gradient was not written as declared: correct `gradient`.
    #[error("step {step}, shard {shard}: the gradient is not what the model declares: {source}")]
    Gradient {
        /// The step under way.
        step: Step,
        /// The shard of the gradient.
        shard: u32,
        /// What is wrong with it.
        source: GradientError,
    },
    /// The model failed by itself: its message says what to do.
    #[error("step {step}: the model failed to {operation}: {source}")]
    Model {
        /// The step under way.
        step: Step,
        /// What the model was asked to do.
        operation: &'static str,
        /// The error of the model.
        source: ModelError,
    },
    /// The final state cannot be read: correct `visit`.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Trains the model, which is in state 0, for all steps of the job.
///
/// # Errors
/// When the job's constants make no data order, or the model fails.
pub fn train(spec: &JobSpec, model: &mut dyn Trainable) -> Result<Reference, ReferenceError> {
    let reports = advance(spec, model, Step::ZERO..spec.steps)?;
    let results = model.evaluate().map_err(|source| ReferenceError::Model {
        step: spec.steps,
        operation: "evaluate",
        source,
    })?;
    Ok(Reference {
        hash: state_hash(model, spec.steps)?,
        reports,
        results,
    })
}

/// Makes the updates of `steps` on the model, which is in the state of the first of them.
///
/// # Errors
/// As [`train`].
pub fn advance(spec: &JobSpec, model: &mut dyn Trainable, steps: Range<Step>) -> Result<Vec<StepReport>, ReferenceError> {
    let sampler = Sampler::new(spec)?;
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut reports = Vec::new();
    let mut step = steps.start;
    while step < steps.end {
        add_shards(model, &sampler, &layout, step, &mut buffer)?;
        let sum = Sum::from_buffer(step, buffer);
        let mean = sum.mean(&layout);
        model.apply(step, &mean).map_err(|source| ReferenceError::Model {
            step,
            operation: "apply an update",
            source,
        })?;
        reports.push(StepReport {
            step,
            samples: mean.samples(),
            sums: mean.auxiliary(),
        });
        buffer = sum.into_buffer();
        step = step.next();
    }
    Ok(reports)
}

/// Makes `buffer` the sum of the step's shard gradients, added in shard order.
fn add_shards(
    model: &dyn Trainable,
    sampler: &Sampler,
    layout: &Layout,
    step: Step,
    buffer: &mut GradientBuffer,
) -> Result<(), ReferenceError> {
    let failed = |source| ReferenceError::Model {
        step,
        operation: "compute a gradient",
        source,
    };
    buffer.clear();
    for index in 0..sampler.shards() {
        let shard = sampler.shard(step, index);
        let mode = if index == 0 { WriteMode::Store } else { WriteMode::Add };
        let mut writer = buffer.writer(layout, mode);
        if shard.is_empty() {
            writer.zero().map_err(|source| failed(source.into()))?;
            continue;
        }
        model.gradient(&shard, &mut writer).map_err(failed)?;
        writer.finish().map_err(|source| ReferenceError::Gradient {
            step,
            shard: index,
            source,
        })?;
    }
    buffer.lower().map_err(|source| failed(source.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::toys::{Fault, Line, line_spec};
    use crate::model::{restore, save};

    #[test]
    fn the_loop_is_the_law() {
        let spec = line_spec(9);
        let mut model = Line::default();
        let reference = train(&spec, &mut model).unwrap();

        // The same update written out by hand, shard sums first, in shard order.
        let sampler = Sampler::new(&spec).unwrap();
        let mut expected = Line::default();
        for step in (0..9).map(Step::new) {
            let (mut total, mut losses) = ([0.0; 2], 0.0);
            for shard in (0..4).map(|index| sampler.shard(step, index)) {
                let (mut part, mut loss) = ([0.0; 2], 0.0);
                for &sample in shard.samples() {
                    let (x, y) = Line::sample(sample);
                    let residual = expected.w[0] + expected.w[1] * x - y;
                    part = [part[0] + residual, part[1] + residual * x];
                    loss += residual * residual;
                }
                total = [total[0] + part[0], total[1] + part[1]];
                losses += loss;
            }
            // 37 samples in batches of 10: the last of four is 7.
            let n = if step.get() % 4 == 3 { 7 } else { 10 };
            let report = &reference.reports[step.get() as usize];
            assert_eq!((report.step, report.samples), (step, n));
            assert_eq!(report.sums, [losses]);
            for (index, sum) in total.into_iter().enumerate() {
                expected.velocity[index] = 0.9 * expected.velocity[index] + sum / n as f64;
                expected.w[index] -= 0.1 * expected.velocity[index];
            }
        }
        assert_eq!(model.w, expected.w);
        assert_eq!(reference.hash, state_hash(&expected, Step::new(9)).unwrap());
        assert_eq!(reference.results, [("slope".to_owned(), expected.w[1])]);
    }

    #[test]
    fn a_long_run_finds_the_line() {
        let mut model = Line::default();
        train(&line_spec(2_000), &mut model).unwrap();
        assert!(
            (model.w[0] - 3.0).abs() < 1e-6 && (model.w[1] - 2.0).abs() < 1e-6,
            "{:?}",
            model.w
        );
    }

    #[test]
    fn a_run_continued_from_a_saved_state_ends_in_the_same_bits() {
        let spec = line_spec(20);
        let undisturbed = train(&spec, &mut Line::default()).unwrap();
        let mut first = Line::default();
        advance(&spec, &mut first, Step::ZERO..Step::new(11)).unwrap();
        let mut second = Line::default();
        restore(&mut second, &save(&first).unwrap()).unwrap();
        let reports = advance(&spec, &mut second, Step::new(11)..Step::new(20)).unwrap();
        assert_eq!(reports, undisturbed.reports[11..]);
        assert_eq!(state_hash(&second, spec.steps).unwrap(), undisturbed.hash);
    }

    #[test]
    fn a_failing_model_is_named_with_its_step() {
        let error = train(&line_spec(3), &mut Line::faulty(Fault::GradientFails)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "step s0: the model failed to compute a gradient: no such sample"
        );
    }
}
