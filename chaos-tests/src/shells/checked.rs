//! The toy model, whose state is compared with the plain loop's after each update (STEP-1, STEP-2): what is wrong for a moment may have
//! vanished by the end. And a model that is wrong by one bit, to test that.

use std::sync::Arc;

use anyhow::Result;
use sardana::JobSpec;
use sardana::data::Shard;
use sardana::model::{GradientWriter, Mean, ModelError, SharedState, StateHash, Step, TensorSpec, Trainable, state_hash};
use sardana::reference;

use crate::journal::PROBE_UPDATES;
use crate::model::Touchy;
use crate::setup::Setup;

/// The hashes of the state after each update, by a plain loop.
pub(super) type Expected = Arc<Vec<StateHash>>;

/// Makes all updates in a plain loop.
pub(super) fn expected(spec: &JobSpec, setup: &Setup) -> Result<Expected> {
    let mut model = Touchy::plain(setup);
    let mut hashes = Vec::new();
    let mut step = Step::ZERO;
    while step < spec.steps {
        reference::advance(spec, &mut model, step..step.next())?;
        step = step.next();
        hashes.push(state_hash(&model, step)?);
    }
    Ok(Arc::new(hashes))
}

/// The model.
pub(super) struct Checked {
    model: Touchy,
    expected: Expected,
    /// Updates by the probe, which are none of the job's, that are yet to come.
    probes: usize,
    /// The update that goes wrong, by one bit.
    wrong: Option<Step>,
}

impl Checked {
    pub(super) const fn new(model: Touchy, expected: Expected, wrong: Option<Step>) -> Self {
        Self {
            model,
            expected,
            probes: PROBE_UPDATES,
            wrong,
        }
    }

    /// Flips the lowest bit of the first weight.
    fn flip(&mut self) -> Result<(), ModelError> {
        let mut first: Option<(TensorSpec, Vec<u8>)> = None;
        self.model.visit(&mut |spec, bytes| {
            first.get_or_insert_with(|| (spec.clone(), bytes.to_vec()));
        })?;
        let (spec, mut bytes) = first.ok_or("the model has no tensor")?;
        if let Some(byte) = bytes.first_mut() {
            *byte ^= 1;
        }
        self.model.load(&spec, &bytes)
    }

    fn check(&self, step: Step) -> Result<(), ModelError> {
        let found = state_hash(&self.model, step.next())?;
        let at = usize::try_from(step.get())?;
        match self.expected.get(at) {
            Some(&expected) if expected == found => Ok(()),
            expected => Err(format!("STEP-1: the update of {step} led to the state {found}, expected {expected:?}").into()),
        }
    }
}

impl Trainable for Checked {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.model.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.model.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        self.model.gradient(shard, out)
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.model.apply(step, mean)?;
        if self.probes > 0 {
            self.probes -= 1;
            return Ok(());
        }
        if self.wrong == Some(step) {
            self.flip()?;
        }
        self.check(step)
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.model.visit(visitor)
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.model.load(tensor, bytes)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        self.model.share()
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        self.model.evaluate()
    }
}
