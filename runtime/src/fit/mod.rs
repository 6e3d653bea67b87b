//! Training a network: data, loss, optimizer, schedule, clipping and decay put together, in any framework. Nothing here knows of
//! workers: a [`Fit`] is a [`Trainable`] like any other, and all that it remembers is state, so that killed, joined by others and
//! resumed with another number of workers it computes the same bits.
//!
//! - [`Fit`]: what a program hands to [`crate::train()`];
//! - [`Network`], [`Parameter`], [`Role`], [`Values`]: what a framework must offer; `sardana-candle` does for candle;
//! - `DeviceNetwork`, with the feature `cuda`: what it offers besides if its tensors lie on a GPU. Updates that a GPU has
//!   [kernels](Optimizer::device_update) for are made there then, with the bits of the host's, and the state is hashed there; others, and running means and variances, on the host: each tensor
//!   comes down and goes up again at each update, which is slower.

mod error;
mod held_out;
mod network;
mod norm;
#[cfg(feature = "cuda")]
mod on_device;
mod on_host;
mod slots;
mod state;
mod tensor;
#[cfg(test)]
mod tests;
mod update;
mod updating;

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::sync::Arc;

use sardana_protocol::job::JobSpec;
use sardana_protocol::state::TensorSpec;

pub use error::FitError;
#[cfg(feature = "cuda")]
pub use network::{DeviceChange, DeviceLook, DeviceNetwork};
pub use network::{Network, Parameter, Role, Values};

use held_out::HeldOut;
use slots::Slots;
use state::{Place, State};
use update::Rule;

use crate::data::{Coming, DataError, DataFingerprint, Dataset, HeldBytes, Loader, Shard};
use crate::model::{DeviceMemory, GradientWriter, Mean, ModelError, SharedState, Step, Summation, Trainable};
use crate::optim::Optimizer;
use crate::schedule::Schedule;

/// How many held-out samples are measured at once, unless [`FitBuilder::measure_batch`] says otherwise.
pub const MEASURE_BATCH: usize = 256;

/// A network in training.
pub struct Fit<N: Network> {
    network: N,
    parameters: Vec<Parameter>,
    metrics: Vec<String>,
    rule: Rule,
    state: State,
    training: Box<dyn Samples<N::Item>>,
    held_out: Option<HeldOut<N::Item>>,
    /// The most that the network is given at once.
    most_samples: usize,
    /// Memory for a shard's samples and the sums of its metrics, between two shards.
    room: Cell<(Vec<N::Item>, Vec<f64>)>,
}

impl<N: Network> Debug for Fit<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fit")
            .field("parameters", &self.parameters.len())
            .field("rule", &self.rule)
            .field("updates", &self.state.updates)
            .finish_non_exhaustive()
    }
}

/// Where the samples of a shard come from.
trait Samples<T> {
    fn count(&self) -> u64;
    fn fingerprint(&self) -> Result<DataFingerprint, DataError>;
    fn ahead_bytes(&self) -> usize;
    fn coming(&self, coming: Coming);
    fn of(&self, shard: &Shard, into: &mut Vec<T>) -> Result<(), DataError>;
}

impl<D> Samples<D::Item> for Loader<D>
where
    D: Dataset + 'static,
    D::Item: HeldBytes,
{
    fn count(&self) -> u64 {
        self.dataset().len()
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        self.dataset().fingerprint()
    }

    fn ahead_bytes(&self) -> usize {
        Loader::ahead_bytes(self)
    }

    fn coming(&self, coming: Coming) {
        Loader::coming(self, coming);
    }

    fn of(&self, shard: &Shard, into: &mut Vec<D::Item>) -> Result<(), DataError> {
        self.samples_into(shard, into)
    }
}

/// A fit as it is put together. [`Self::build`] checks it.
pub struct FitBuilder<N: Network> {
    network: N,
    training: Option<Box<dyn Samples<N::Item>>>,
    held_out: Option<Arc<dyn Dataset<Item = N::Item>>>,
    measure_batch: usize,
    optimizer: Option<(Box<dyn Optimizer>, Schedule)>,
    clip_norm: Option<f64>,
    decay: f64,
    decays: Box<dyn Fn(&Parameter) -> bool>,
}

impl<N: Network> Debug for FitBuilder<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FitBuilder").finish_non_exhaustive()
    }
}

impl<N: Network> Fit<N> {
    /// Starts to put together the training of `network`.
    pub fn builder(network: N) -> FitBuilder<N> {
        FitBuilder {
            network,
            training: None,
            held_out: None,
            measure_batch: MEASURE_BATCH,
            optimizer: None,
            clip_norm: None,
            decay: 0.0,
            // Biases, and the scales of normalisations, have one dimension.
            decays: Box::new(|parameter| parameter.shape.len() > 1),
        }
    }

    /// The network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// How many updates it has had.
    pub fn updates(&self) -> u64 {
        self.state.updates
    }
}

impl<N: Network> FitBuilder<N> {
    /// What it is trained on.
    #[must_use]
    pub fn data<D>(mut self, training: Loader<D>) -> Self
    where
        D: Dataset<Item = N::Item> + 'static,
        N::Item: HeldBytes,
    {
        self.training = Some(Box::new(training));
        self
    }

    /// What it is measured by after the last step, and never trained on. Nothing is measured if this is not set.
    #[must_use]
    pub fn held_out(mut self, samples: impl Dataset<Item = N::Item> + 'static) -> Self {
        self.held_out = Some(Arc::new(samples));
        self
    }

    /// How many held-out samples are measured at once; at least 1. [`MEASURE_BATCH`] if not set.
    #[must_use]
    pub fn measure_batch(mut self, samples: usize) -> Self {
        self.measure_batch = samples.max(1);
        self
    }

    /// How parameters follow gradients, and at which rate: a number, or a [`Schedule`] by the number of the update.
    #[must_use]
    pub fn optimizer(mut self, optimizer: impl Optimizer + 'static, rate: impl Into<Schedule>) -> Self {
        self.optimizer = Some((Box::new(optimizer), rate.into()));
        self
    }

    /// The longest that the mean gradient of all parameters together may be (Euclidean); a longer one is shortened to that.
    #[must_use]
    pub fn clip_norm(mut self, most: f64) -> Self {
        self.clip_norm = Some(most);
        self
    }

    /// How strongly parameters are drawn to 0, as the optimizer does it. Parameters of one dimension (biases, scales of normalisations)
    /// are left out, unless [`Self::decays`] says otherwise.
    #[must_use]
    pub fn decay(mut self, decay: f64) -> Self {
        self.decay = decay;
        self
    }

    /// Which parameters decay.
    #[must_use]
    pub fn decays(mut self, which: impl Fn(&Parameter) -> bool + 'static) -> Self {
        self.decays = Box::new(which);
        self
    }

    /// Checks all of it; `spec` is what [`crate::train()`] gives.
    ///
    /// # Errors
    /// The first setting that is wrong or missing.
    pub fn build(mut self, spec: &JobSpec) -> Result<Fit<N>, FitError> {
        let training = self.training.ok_or(FitError::NoData)?;
        let (optimizer, schedule) = self.optimizer.ok_or(FitError::NoOptimizer)?;
        optimizer.check()?;
        schedule.check()?;
        on_host::check_slots(&*optimizer)?;
        if let Some(norm) = self.clip_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return Err(FitError::ClipNorm(norm));
        }
        if !(0.0..1.0).contains(&self.decay) {
            return Err(FitError::Decay(self.decay));
        }
        let (expected, found) = (spec.samples, training.count());
        if expected != found {
            return Err(FitError::Samples { expected, found });
        }
        // A job that says nothing of its data has none to compare.
        if !spec.data.parts().is_empty() {
            let found = training.fingerprint()?;
            if let Some((expected, found)) = spec.data.difference(&found) {
                return Err(FitError::other_data(expected, found));
            }
        }
        let held_out = match self.held_out {
            Some(samples) => Some(HeldOut::new(samples, spec.seed, self.measure_batch)?),
            None => None,
        };
        let of_a_shard = spec.batch.div_ceil(spec.shards.max(1).into());
        let measured = held_out.as_ref().map_or(0, HeldOut::at_once);
        let parameters = self.network.parameters();
        let rule = Rule {
            schedule,
            clip_norm: self.clip_norm,
            decay: self.decay,
            decays: parameters.iter().map(&self.decays).collect(),
            optimizer,
        };
        let tensors = tensor::tensors(&parameters, rule.optimizer.slots());
        let state = State {
            slots: Slots::new(&mut self.network, &*rule.optimizer, &tensors)?,
            tensors,
            updates: 0,
        };
        Ok(Fit {
            state,
            metrics: self.network.metrics(),
            network: self.network,
            parameters,
            rule,
            training,
            most_samples: usize::try_from(of_a_shard.max(measured)).unwrap_or(usize::MAX),
            held_out,
            room: Cell::default(),
        })
    }
}

impl<N: Network> Trainable for Fit<N> {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.state.tensors.iter().map(|tensor| tensor.spec.clone()).collect()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.metrics.clone()
    }

    fn describe(&self) -> String {
        // What is measured must be the same for all, too: they tell the results.
        let held_out = self.held_out.as_ref().map(|held_out| (held_out.hash, held_out.batch));
        format!("{}; {}; held out {held_out:?}", self.network.describe(), self.rule.describe())
    }

    fn device(&self) -> String {
        self.network.device()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        let memory = self.network.device_memory(self.most_samples)?;
        // A means of its own sums in memory of its own.
        let elsewhere = self.network.summation().map_or(0, |_| self.state.tensor_bytes());
        let needed = memory.needed.saturating_add(self.state.device_bytes() + elsewhere);
        Some(DeviceMemory { needed, ..memory })
    }

    fn summation(&self) -> Option<Arc<dyn Summation>> {
        self.network.summation()
    }

    fn will_hold_bytes(&self) -> usize {
        self.training.ahead_bytes()
    }

    fn coming(&self, coming: Coming) {
        self.training.coming(coming);
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let (mut items, mut sums) = self.room.take();
        self.training.of(shard, &mut items)?;
        sums.clear();
        sums.resize(self.metrics.len(), 0.0);
        self.network.gradient(shard, &items, out, &mut sums)?;
        if !out.reports_later() {
            for (index, &sum) in sums.iter().enumerate() {
                out.auxiliary(index, sum)?;
            }
        }
        out.samples(items.len() as u64)?;
        items.clear();
        self.room.set((items, sums));
        Ok(())
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.rule.apply(&mut self.network, &mut self.state, &self.parameters, mean)
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.state.shown(self.network.values()).visit(visitor)
    }

    #[cfg(feature = "cuda")]
    fn piece_hashes(&self) -> Result<Option<Vec<crate::model::HashedTensor>>, ModelError> {
        self.state.piece_hashes(&self.network)
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        match self.state.place(tensor) {
            Some(Place::Parameter(parameter)) => {
                let mut loaded = Ok(());
                self.network
                    .change(parameter, &mut |values| loaded = state::load(values, bytes))?;
                loaded
            }
            Some(Place::Slot { parameter, slot }) => {
                let slots = &mut self.state.slots;
                slots.load(parameter, slot, |values| state::load(values, bytes))
            }
            Some(Place::Updates) => {
                let found = bytes.len();
                let bytes = bytes.try_into().map_err(|_| format!("expected 8 bytes, found {found}"))?;
                self.state.updates = u64::from_le_bytes(bytes);
                Ok(())
            }
            None => Err(format!("expected a tensor of this network or its optimizer, found {tensor}").into()),
        }
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        Some(Box::new(self.state.shown(self.network.values())))
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let Some(held_out) = &self.held_out else {
            return Ok(Vec::new());
        };
        let (sums, count) = held_out.measure(&self.network, self.metrics.len())?;
        let means = sums.into_iter().map(|sum| sum / count as f64);
        Ok(self.metrics.iter().cloned().zip(means).collect())
    }
}
