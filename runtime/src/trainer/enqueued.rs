//! Tests of shards whose gradients are only enqueued where they lie when a model has written them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_collectives::gradient::{Lowering, Passing, Resident, ResidentError};
use sardana_protocol::state::Dtype;

use super::*;
use crate::model::toys::{Line, line_spec};

/// Memory elsewhere that holds nothing.
#[derive(Debug, Default)]
struct Far {
    fails_to_add: bool,
    fails_to_compute: bool,
    added: AtomicUsize,
    waited_for: AtomicUsize,
}

fn unless(fails: bool, reason: &str) -> Result<(), ResidentError> {
    if fails { Err(ResidentError::new(reason)) } else { Ok(()) }
}

impl Resident for Far {
    fn wait_computed(&self) -> Result<(), ResidentError> {
        let waited = self.added.load(Ordering::Relaxed);
        self.waited_for.store(waited, Ordering::Relaxed);
        unless(self.fails_to_compute, "its kernel failed")
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        drop(lowering);
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        false
    }

    fn pass(self: Arc<Self>, _: &[Arc<dyn Resident>], passing: Passing) {
        drop(passing);
    }

    fn add_zeros(&self, _: Dtype, _: Range<usize>) -> Result<(), ResidentError> {
        self.added.fetch_add(1, Ordering::Relaxed);
        unless(self.fails_to_add, "zeros are too many")
    }
}

/// Adds an empty shard to one that lies there.
fn add_empty(far: &Arc<Far>) -> Result<Vec<u64>, TrainingError> {
    let model = Line::default();
    let layout = Layout::new(model.gradients(), model.auxiliary().len()).unwrap();
    let sampler = Sampler::new(&JobSpec {
        batch: 2,
        ..line_spec(1)
    })
    .unwrap();
    let samples = sampler.shard_in(Step::ZERO, 3, Vec::new());
    assert!(samples.is_empty());
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    writer.place(0, Dtype::F64, 2).unwrap().keep(Arc::clone(far) as _);
    writer.samples(1).unwrap();
    writer.finish().unwrap();
    gradient(&model, samples, &layout, &mut buffer, WriteMode::Add)
}

#[test]
fn a_shard_counts_once_it_is_computed_where_it_lies() {
    let far = Arc::new(Far::default());
    add_empty(&far).unwrap();
    assert_eq!(far.added.load(Ordering::Relaxed), 1);
    assert_eq!(far.waited_for.load(Ordering::Relaxed), 1, "after all was enqueued");
}

#[test]
fn what_fails_where_a_gradient_lies_is_a_failure_of_the_model() {
    let fails = |far: Far| add_empty(&Arc::new(far)).unwrap_err().to_string();
    let found = [
        fails(Far {
            fails_to_add: true,
            ..Far::default()
        }),
        fails(Far {
            fails_to_compute: true,
            ..Far::default()
        }),
    ];
    for (error, reason) in found.iter().zip(["zeros are too many", "its kernel failed"]) {
        assert!(error.contains("compute a gradient") && error.ends_with(reason), "{error}");
    }
}
