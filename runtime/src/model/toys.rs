//! Toy models for tests: one that keeps the promises of [`Trainable`], with a switch for each promise to break, and one that is
//! only a state.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, JobSpec, LastBatch, Order};

use super::{
    Dtype, GradientWriter, HashedTensor, Mean, ModelError, PieceHash, SharedState, Step, Summation, TensorSpec, Trainable,
};
use crate::data::Shard;

/// The job that [`Line`] is for: 37 samples in batches of 10, 4 shards of 3, 3, 3 and 1.
pub(crate) fn line_spec(steps: u64) -> JobSpec {
    JobSpec {
        name: "line".to_owned(),
        seed: 7,
        shards: 4,
        steps: Step::new(steps),
        samples: 37,
        batch: 10,
        last_batch: LastBatch::Short,
        order: Order::Exact,
        compression: Compression::None,
        data: DataFingerprint::default(),
    }
}

/// Which promise a [`Line`] breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    #[default]
    None,
    /// Each gradient differs from the last.
    GradientVaries,
    /// Each third gradient differs.
    EveryThirdGradient,
    /// A gradient changes the state.
    GradientMovesState,
    /// `load` leaves the velocity as it is.
    LoadForgets,
    /// `visit` does not show the velocity.
    VelocityHidden,
    /// The gradient uses a copy of the parameters that `load` does not renew.
    GradientUsesStaleCopy,
    /// `share` shows the parameters as they were at first.
    SharesStaleCopy,
    /// What `share` gave changes with an update, though it is to outlive that.
    SharesWhatChanges,
    /// What `share` gave shows other tensors than are wanted of it.
    SharesOtherPart,
    /// What `visit` shows follows updates, and not `load`.
    LoadLeavesShown,
    /// `piece_hashes` hashes other parameters.
    HashesOthers,
    /// `piece_hashes` hashes the parameters as they were at first.
    HashesStaleCopy,
    /// `piece_hashes` has no hash for the parameters.
    HashesNothing,
    /// The gradient fails.
    GradientFails,
    /// The gradient does not say how many samples it summed.
    SamplesUntold,
}

/// Fits y = w₀ + w₁ x to y = 3 + 2 x by gradient descent with momentum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) w: [f64; 2],
    pub(crate) velocity: [f64; 2],
    pub(crate) fault: Fault,
    /// How many gradients were taken; only faulty lines look at it.
    pub(crate) taken: Cell<u32>,
    /// How often its state was shown.
    pub(crate) shown: Cell<u32>,
    /// How often it was hashed by the model itself.
    pub(crate) hashed: Cell<u32>,
    /// The parameters as of the last update; only faulty lines look at it.
    pub(crate) copy: [f64; 2],
    /// The parameters where others see them change; only faulty lines look at it.
    pub(crate) seen: Arc<Mutex<[f64; 2]>>,
    /// What it offers to sum by.
    pub(crate) summation: Option<Arc<dyn Summation>>,
}

impl Line {
    pub(crate) fn faulty(fault: Fault) -> Self {
        Self {
            fault,
            ..Self::default()
        }
    }

    /// Sample number `sample`, as x and y.
    pub(crate) fn sample(sample: u64) -> (f64, f64) {
        let x = sample as f64 / 37.0;
        (x, 3.0 + 2.0 * x)
    }

    fn spec(name: &str) -> TensorSpec {
        TensorSpec::new(name, Dtype::F64, &[2])
    }

    fn shown_w(&self) -> [f64; 2] {
        let mut w = self.w;
        if self.fault == Fault::GradientMovesState {
            w[0] += f64::from(self.taken.get());
        }
        w
    }

    /// What is shown of the parameters.
    fn mirrored_w(&self) -> [f64; 2] {
        if self.fault == Fault::LoadLeavesShown {
            self.copy
        } else {
            self.shown_w()
        }
    }

    /// What `visit` shows, hashed without it.
    fn hashes(&self) -> Vec<HashedTensor> {
        let w = if self.fault == Fault::HashesOthers {
            [7.0; 2]
        } else if self.fault == Fault::HashesStaleCopy {
            [0.0; 2]
        } else {
            self.shown_w()
        };
        let hashed = |(name, values): (&str, [f64; 2])| HashedTensor {
            spec: Self::spec(name),
            pieces: vec![PieceHash::of(&to_bytes(values))],
        };
        let mut hashes: Vec<_> = [("w", w), ("velocity", self.velocity)].map(hashed).into();
        if self.fault == Fault::HashesNothing {
            hashes[0].pieces.clear();
        }
        if self.fault == Fault::VelocityHidden {
            hashes.pop();
        }
        hashes
    }
}

fn to_bytes(values: [f64; 2]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

impl Trainable for Line {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![Self::spec("w")]
    }

    fn auxiliary(&self) -> Vec<String> {
        vec!["loss".to_owned()]
    }

    fn summation(&self) -> Option<Arc<dyn Summation>> {
        self.summation.clone()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let taken = self.taken.replace(self.taken.get() + 1);
        let w = if self.fault == Fault::GradientUsesStaleCopy {
            self.copy
        } else {
            self.w
        };
        let (mut gradient, mut loss) = ([0.0; 2], 0.0);
        for &sample in shard.samples() {
            let (x, y) = Self::sample(sample);
            let residual = w[0] + w[1] * x - y;
            gradient[0] += residual;
            gradient[1] += residual * x;
            loss += residual * residual;
        }
        if self.fault == Fault::GradientVaries {
            gradient[0] += f64::from(taken);
        }
        if self.fault == Fault::EveryThirdGradient && taken % 3 == 2 {
            gradient[1] += 1.0;
        }
        if self.fault == Fault::GradientFails {
            return Err("no such sample".into());
        }
        out.write_f64(0, &gradient)?;
        out.auxiliary(0, loss)?;
        if self.fault != Fault::SamplesUntold {
            out.samples(shard.samples().len() as u64)?;
        }
        Ok(())
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let gradient = mean.f64(0)?;
        for (index, slope) in gradient.into_iter().enumerate() {
            self.velocity[index] = 0.9 * self.velocity[index] + slope;
            self.w[index] -= 0.1 * self.velocity[index];
        }
        self.copy = self.w;
        if self.fault == Fault::SharesWhatChanges {
            *self.seen.lock().unwrap() = self.w;
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.shown.update(|shown| shown + 1);
        visitor(&Self::spec("w"), &to_bytes(self.mirrored_w()));
        if self.fault != Fault::VelocityHidden {
            visitor(&Self::spec("velocity"), &to_bytes(self.velocity));
        }
        Ok(())
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let mut values = [0.0; 2];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
            *value = f64::from_le_bytes(bytes.try_into()?);
        }
        match tensor.name.as_str() {
            "w" => self.w = values,
            "velocity" if self.fault == Fault::LoadForgets => {}
            "velocity" => self.velocity = values,
            other => return Err(format!("no tensor {other}").into()),
        }
        Ok(())
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        let w = if self.fault == Fault::SharesStaleCopy {
            Arc::default()
        } else if self.fault == Fault::SharesWhatChanges {
            Arc::clone(&self.seen)
        } else {
            Arc::new(Mutex::new(self.shown_w()))
        };
        let (velocity, other_part) = (self.velocity, self.fault == Fault::SharesOtherPart);
        let shared = SharedLine { w, velocity, other_part };
        (self.fault != Fault::VelocityHidden).then(|| Box::new(shared) as _)
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        Ok(vec![("slope".to_owned(), self.w[1])])
    }
}

/// A line that says that it computes on a device, and hashes its state itself.
#[derive(Debug)]
pub(crate) struct OnDevice(pub(crate) Line);

impl Trainable for OnDevice {
    fn device(&self) -> String {
        "a device".to_owned()
    }

    fn gradients(&self) -> Vec<TensorSpec> {
        self.0.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.0.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        self.0.gradient(shard, out)
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.0.apply(step, mean)
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.0.visit(visitor)
    }

    fn piece_hashes(&self) -> Result<Option<Vec<HashedTensor>>, ModelError> {
        self.0.hashed.update(|hashed| hashed + 1);
        Ok(Some(self.0.hashes()))
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.0.load(tensor, bytes)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        self.0.share()
    }
}

/// A [`Line`]'s parameters and velocity.
struct SharedLine {
    w: Arc<Mutex<[f64; 2]>>,
    velocity: [f64; 2],
    /// Whether it shows the parameters whatever is wanted.
    other_part: bool,
}

impl SharedState for SharedLine {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        let w = *self.w.lock().unwrap();
        visitor(&Line::spec("w"), &to_bytes(w));
        visitor(&Line::spec("velocity"), &to_bytes(self.velocity));
        Ok(())
    }

    fn visit_wanted(
        &self,
        wanted: &mut dyn FnMut(&TensorSpec) -> bool,
        visitor: &mut dyn FnMut(&TensorSpec, &[u8]),
    ) -> Result<(), ModelError> {
        self.visit(&mut |spec, bytes| {
            let is_wanted = wanted(spec);
            if is_wanted && self.other_part {
                visitor(&Line::spec("w"), &to_bytes(*self.w.lock().unwrap()));
            } else if is_wanted {
                visitor(spec, bytes);
            }
        })
    }

    fn outlives_updates(&self) -> bool {
        true
    }
}

/// Only a state, which never changes.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) tensors: Vec<(TensorSpec, Vec<u8>)>,
}

impl Trainable for Fixed {
    fn gradients(&self) -> Vec<TensorSpec> {
        Vec::new()
    }

    fn gradient(&self, _shard: &Shard, _out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        Err("it has no gradient".into())
    }

    fn apply(&mut self, _step: Step, _mean: &Mean<'_>) -> Result<(), ModelError> {
        Err("it has no update".into())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.tensors.iter().for_each(|(spec, bytes)| visitor(spec, bytes));
        Ok(())
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let (_, own) = self
            .tensors
            .iter_mut()
            .find(|(spec, _)| spec == tensor)
            .ok_or_else(|| format!("no tensor {tensor}"))?;
        *own = bytes.to_vec();
        Ok(())
    }
}
