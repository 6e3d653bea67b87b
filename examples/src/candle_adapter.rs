//! Makes a loss written in candle a model that Sardana trains, with Adam as the optimizer.
//!
//! The parameters, Adam's moments and the number of updates are named tensors of our own, so that the whole state can be shown
//! and brought back. It must not know what the network computes, nor use candle's random numbers, which cannot be seeded.
//!
//! Start workers with `RAYON_NUM_THREADS=1`. Without it candle asks the operating system for the number of processors at every
//! matrix product, which takes longer than the products of a small network. The bits are the same either way.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use candle_core::backprop::GradStore;
use candle_core::{Device, Storage, Tensor, Var};
use sardana::data::{CounterRng, Domain, Shard};
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, SharedState, Step, TensorSpec, Trainable};

/// A loss over named parameters: what a user of this adapter writes.
pub trait Objective {
    /// Names of the sums that [`Self::loss`] reports.
    fn auxiliary(&self) -> Vec<String>;

    /// The loss summed (not averaged) over the shard's samples, a scalar, computed with candle from `parameters` in the order
    /// in which they were declared. Adds the shard's auxiliary sums to `sums`, which are 0.
    ///
    /// # Errors
    /// Whatever candle or the data object to.
    fn loss(&self, parameters: &[Var], shard: &Shard, sums: &mut [f64]) -> Result<Tensor>;

    /// Named results, such as the accuracy on held-out data.
    ///
    /// # Errors
    /// Whatever candle or the data object to.
    fn evaluate(&self, parameters: &[Var]) -> Result<Vec<(String, f64)>>;
}

/// The constants of Adam (Kingma and Ba: "Adam: a method for stochastic optimization", 2015).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How far a parameter moves at most, about.
    pub learning_rate: f32,
    /// How slowly the mean gradient is forgotten.
    pub beta1: f32,
    /// How slowly the mean square is forgotten.
    pub beta2: f32,
    /// Keeps a division from going wild.
    pub epsilon: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        }
    }
}

/// A parameter as it starts: its name, shape and first values, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    name: &'static str,
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Start {
    /// All zeros: a bias.
    #[must_use]
    pub fn zeros(name: &'static str, shape: &[usize]) -> Self {
        Self {
            name,
            shape: shape.to_vec(),
            values: vec![0.0; shape.iter().product()],
        }
    }

    /// Weights from `inputs` to `outputs` units, uniform within ±√(6 / inputs), as He et al. ("Delving deep into rectifiers",
    /// 2015) advise before a rectifier. `tensor` numbers the random stream of the job's seed.
    #[must_use]
    pub fn he(name: &'static str, inputs: usize, outputs: usize, seed: u64, tensor: u32) -> Self {
        let bound = (6.0 / inputs as f32).sqrt();
        let mut rng = CounterRng::new(seed, Domain::Weights { tensor });
        Self {
            name,
            shape: vec![inputs, outputs],
            values: (0..inputs * outputs)
                .map(|_| bound * (2.0 * rng.uniform_f32() - 1.0))
                .collect(),
        }
    }
}

/// A parameter with what Adam remembers of it.
#[derive(Clone, Debug)]
struct Parameter {
    spec: TensorSpec,
    values: Vec<f32>,
    first_spec: TensorSpec,
    first: Vec<f32>,
    second_spec: TensorSpec,
    second: Vec<f32>,
    /// The mean gradient while an update runs.
    mean: Vec<f32>,
}

impl Parameter {
    fn new(start: Start) -> Self {
        let spec = |name: String| TensorSpec::new(name, Dtype::F32, &start.shape);
        let zeros = vec![0.0; start.values.len()];
        Self {
            spec: spec(start.name.to_owned()),
            first_spec: spec(format!("{}.adam_first", start.name)),
            second_spec: spec(format!("{}.adam_second", start.name)),
            first: zeros.clone(),
            second: zeros.clone(),
            mean: zeros,
            values: start.values,
        }
    }

    /// What the objective computes with: a copy, as candle cannot borrow.
    fn variable(&self) -> candle_core::Result<Var> {
        Var::from_slice(&self.values, self.spec.shape.as_slice(), &Device::Cpu)
    }

    /// Moves the values by one update of Adam, the `update`-th.
    fn update(&mut self, adam: &Adam, update: u64) {
        let Adam {
            learning_rate,
            beta1,
            beta2,
            epsilon,
        } = *adam;
        let exponent = i32::try_from(update).unwrap_or(i32::MAX);
        let rate = learning_rate / (1.0 - beta1.powi(exponent));
        let correction = 1.0 / (1.0 - beta2.powi(exponent));
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((value, gradient), (first, second)) in self.values.iter_mut().zip(&self.mean).zip(moments) {
            *first = beta1 * *first + (1.0 - beta1) * gradient;
            *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
            *value -= rate * *first / ((*second * correction).sqrt() + epsilon);
        }
    }
}

/// A model whose gradients candle computes.
#[derive(Debug)]
pub struct CandleModel<O> {
    objective: O,
    adam: Adam,
    /// Behind `Arc`s, so that a snapshot may read them while gradients are computed.
    parameters: Vec<Arc<Parameter>>,
    /// The parameters' values as candle sees them, renewed whenever they change.
    variables: Vec<Var>,
    updates: u64,
}

impl<O: Objective> CandleModel<O> {
    /// A model in state 0.
    ///
    /// # Errors
    /// When candle cannot hold a parameter.
    pub fn build(objective: O, adam: Adam, starts: Vec<Start>) -> Result<Self> {
        let parameters: Vec<_> = starts.into_iter().map(|start| Arc::new(Parameter::new(start))).collect();
        let variables = parameters
            .iter()
            .map(|parameter| parameter.variable())
            .collect::<candle_core::Result<_>>()?;
        Ok(Self {
            objective,
            adam,
            parameters,
            variables,
            updates: 0,
        })
    }

    /// The loss that it minimises.
    pub fn objective(&self) -> &O {
        &self.objective
    }

    /// The parameters in the order in which they were declared.
    pub fn variables(&self) -> &[Var] {
        &self.variables
    }

    /// The gradients of all parameters and the auxiliary sums of a shard.
    pub(crate) fn backward(&self, shard: &Shard) -> Result<(GradStore, Vec<f64>)> {
        let mut sums = vec![0.0; self.objective.auxiliary().len()];
        let loss = self.objective.loss(&self.variables, shard, &mut sums)?;
        Ok((loss.backward()?, sums))
    }

    /// Writes the gradient of one parameter.
    pub(crate) fn write(&self, gradients: &GradStore, tensor: usize, out: &mut GradientWriter<'_>) -> Result<()> {
        let Some(gradient) = gradients.get(&self.variables[tensor]) else {
            // The loss does not depend on it.
            out.write_f32(tensor, &vec![0.0; self.parameters[tensor].values.len()])?;
            return Ok(());
        };
        let gradient = gradient.contiguous()?;
        let (storage, layout) = gradient.storage_and_layout();
        let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
            bail!(
                "expected the gradient of {} in this process's memory",
                self.parameters[tensor].spec
            );
        };
        out.write_f32(tensor, &storage.as_slice::<f32>()?[start..end])?;
        Ok(())
    }

    fn shared(&self) -> Shared {
        Shared {
            parameters: self.parameters.clone(),
            updates: self.updates,
        }
    }
}

fn updates_spec() -> TensorSpec {
    TensorSpec::new("adam.updates", Dtype::U64, &[])
}

/// The state at one boundary.
struct Shared {
    parameters: Vec<Arc<Parameter>>,
    updates: u64,
}

impl SharedState for Shared {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        let mut bytes = Vec::new();
        for parameter in &self.parameters {
            for (spec, values) in [
                (&parameter.spec, &parameter.values),
                (&parameter.first_spec, &parameter.first),
                (&parameter.second_spec, &parameter.second),
            ] {
                bytes.clear();
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                visitor(spec, &bytes);
            }
        }
        visitor(&updates_spec(), &self.updates.to_le_bytes());
        Ok(())
    }
}

impl<O: Objective> Trainable for CandleModel<O> {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.parameters.iter().map(|parameter| parameter.spec.clone()).collect()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.objective.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let (gradients, sums) = self.backward(shard)?;
        for tensor in 0..self.parameters.len() {
            self.write(&gradients, tensor, out)?;
        }
        for (index, sum) in sums.into_iter().enumerate() {
            out.auxiliary(index, sum)?;
        }
        out.samples(shard.samples().len() as u64)?;
        Ok(())
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.updates += 1;
        for (tensor, parameter) in self.parameters.iter_mut().map(Arc::make_mut).enumerate() {
            mean.copy_f32(tensor, &mut parameter.mean)?;
            parameter.update(&self.adam, self.updates);
            self.variables[tensor] = parameter.variable()?;
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.shared().visit(visitor)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        Some(Box::new(self.shared()))
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        if *tensor == updates_spec() {
            let bytes = bytes.try_into().context("the number of updates takes 8 bytes")?;
            self.updates = u64::from_le_bytes(bytes);
            return Ok(());
        }
        for (parameter, variable) in self.parameters.iter_mut().map(Arc::make_mut).zip(&mut self.variables) {
            if *tensor == parameter.spec {
                load_f32(&mut parameter.values, bytes)?;
                *variable = parameter.variable()?;
                return Ok(());
            } else if *tensor == parameter.first_spec {
                return Ok(load_f32(&mut parameter.first, bytes)?);
            } else if *tensor == parameter.second_spec {
                return Ok(load_f32(&mut parameter.second, bytes)?);
            }
        }
        Err(format!("expected a tensor of this model, found {tensor}").into())
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        Ok(self.objective.evaluate(&self.variables)?)
    }
}

fn load_f32(values: &mut [f32], bytes: &[u8]) -> Result<()> {
    let (elements, rest) = bytes.as_chunks::<4>();
    ensure!(
        elements.len() == values.len() && rest.is_empty(),
        "expected {} bytes, found {}",
        values.len() * 4,
        bytes.len()
    );
    for (value, bytes) in values.iter_mut().zip(elements) {
        *value = f32::from_le_bytes(*bytes);
    }
    Ok(())
}
