//! A network of candle with its loss, as [`sardana::fit::Fit`] trains it.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::mem::take;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::ModuleT;
use sardana::data::Shard;
use sardana::device::DeviceChoice;
#[cfg(feature = "cuda")]
use sardana::fit::DeviceNetwork;
use sardana::fit::{Network, Parameter, Role, Values};
use sardana::model::{DeviceMemory, GradientWriter, ModelError, Summation};

use crate::builder::{Used, Variable};
use crate::loss::Loss;
use crate::part::Part;
use crate::pass::Statistic;
use crate::place::{Place, Reading};
use crate::{Builder, Pass, Stack};

/// A network that is trained on pairs of an input and a target.
pub struct Net<M, L, X, Y> {
    module: M,
    loss: Arc<L>,
    variables: Vec<Variable>,
    /// What the variables lie on.
    place: Place,
    /// Bytes of a GPU's memory that a sample takes on its way through the network.
    sample_memory: u64,
    /// By what gradients are summed in fast order, if not by links.
    summation: Option<Arc<dyn Summation>>,
    pass: Pass,
    samples: PhantomData<fn(X, Y)>,
}

impl<M, L: Debug, X, Y> Debug for Net<M, L, X, Y> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Net")
            .field("loss", &self.loss)
            .field("tensors", &self.variables.len())
            .finish_non_exhaustive()
    }
}

/// Builds a network for samples that are pairs of an input `X` and a target `Y`: `module` asks `builder` for its tensors, whose first
/// values depend on `seed` and their names alone. It is computed on processors; [`build_on`] takes a GPU as well.
///
/// # Errors
/// What `module` objects to.
pub fn build<M, L, X, Y>(seed: u64, loss: L, module: impl FnOnce(&Builder) -> Result<M>) -> Result<Net<M, L, X, Y>>
where
    M: ModuleT,
    L: Loss,
    X: Stack,
    Y: Stack,
{
    build_on(DeviceChoice::Cpu, seed, loss, module)
}

/// As [`build`], on what `choice` says: processors, to the bit what [`build`] gives, or a GPU of a program with the feature `cuda`. First values are the same on
/// both; what is computed from them is not: see [the crate](crate#on-a-gpu) for what a GPU's bits depend on.
///
/// On a GPU `module` makes tensors that it does not ask the builder for, such as masks, on [`Builder::device`]. Samples are brought there, and each [`Loss`] is
/// given output and target there, but to [measure](Loss::measure).
///
/// ```
/// # use candle_core::Result;
/// # use candle_nn::Linear;
/// # use sardana::data::Array;
/// # use sardana::device::DeviceChoice;
/// # use sardana_candle::{CrossEntropy, Net, build_on};
/// # fn network(seed: u64) -> Result<Net<Linear, CrossEntropy, Array<f32>, u32>> {
/// // What `--device` or SARDANA_DEVICE says; without either a GPU, if there is one.
/// let choice = DeviceChoice::said(None).map_err(candle_core::Error::wrap)?;
/// build_on(choice, seed, CrossEntropy::new(), |builder| candle_nn::linear(784, 10, builder.vb()))
/// # }
/// ```
///
/// # Errors
/// What `module` objects to; when the GPU cannot be used; or `choice` asks for one in a program that is built without the feature.
pub fn build_on<M, L, X, Y>(
    choice: DeviceChoice,
    seed: u64,
    loss: L,
    module: impl FnOnce(&Builder) -> Result<M>,
) -> Result<Net<M, L, X, Y>>
where
    M: ModuleT,
    L: Loss,
    X: Stack,
    Y: Stack,
{
    let mut place = Place::of(choice)?;
    let builder = Builder::on(place.candle(), seed);
    let module = module(&builder)?;
    let pass = builder.pass();
    let variables = builder.into_variables();
    if variables.is_empty() {
        bail!("expected a network to ask its builder for tensors, found none");
    }
    place.hold(variables.iter().map(|variable| variable.value.clone()).collect());
    Ok(Net {
        module,
        loss: Arc::new(loss),
        variables,
        place,
        sample_memory: 0,
        summation: None,
        pass,
        samples: PhantomData,
    })
}

impl<M: ModuleT, L: Loss, X: Stack, Y: Stack> Net<M, L, X, Y> {
    /// The network's own part.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// How many values are trained.
    pub fn trained_values(&self) -> usize {
        let trained = self.variables.iter().filter(|variable| variable.role == Role::Trained);
        trained.map(|variable| variable.value.elem_count()).sum()
    }

    /// Says how many bytes of a GPU's memory candle takes for one sample on its way through the network and back: of each result that the backward pass needs the values
    /// and their gradient, and output and target once more, which are read while the next batch is computed. Nothing tells that before it is taken, so without this it counts as none; with it a worker whose share of a GPU
    /// can never hold the largest shard is refused at its hello, and gradients have what is left. No matter where it is computed on processors.
    #[must_use]
    pub fn sample_memory(mut self, bytes: u64) -> Self {
        self.sample_memory = bytes;
        self
    }

    /// Has gradients summed over GPUs where they lie, by NCCL, in a job in fast order: with the feature `nccl`. NCCL is looked for when the first generation is formed;
    /// where it is missing, or two workers share a GPU, their links sum.
    ///
    /// # Errors
    /// When its tensors lie on no GPU, or this program is built without the feature.
    pub fn summed_where_they_lie(mut self) -> Result<Self> {
        let Some(summation) = self.place.summation() else {
            bail!(
                "expected a GPU, and a program with the feature `nccl` of sardana-candle, for sums by NCCL; found {}",
                self.place.describe()
            );
        };
        self.summation = Some(summation);
        Ok(self)
    }

    /// What candle computes it on.
    pub fn candle_device(&self) -> Device {
        self.place.candle()
    }

    /// The GPU that has its tensors, if one has: to bound what gradients take of its memory, for instance.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Option<&sardana_cuda::device::Device> {
        match &self.place {
            Place::Host(_) => None,
            Place::Gpu(gpu) => Some(gpu.device()),
        }
    }

    /// Input and target of a batch, in this process's memory.
    fn tensors(items: &[(X, Y)]) -> Result<(Tensor, Tensor)> {
        let inputs = X::stack(items.iter().map(|(input, _)| input))?;
        Ok((inputs, Y::stack(items.iter().map(|(_, target)| target))?))
    }

    /// Computes a batch's output and loss.
    fn look(&self, items: &[(X, Y)], train: bool) -> Result<Seen> {
        let (input, target) = Self::tensors(items)?;
        let (input, target) = (self.place.up(input)?, self.place.up(target)?);
        let output = self.module.forward_t(&input, train)?;
        let loss = self.loss.sum(&output, &target)?;
        Ok(Seen {
            output: output.detach(),
            target,
            loss,
        })
    }

    fn write(
        &self,
        loss: &Tensor,
        told: Vec<(Statistic, Vec<f32>)>,
        samples: usize,
        out: &mut GradientWriter<'_>,
    ) -> std::result::Result<(), ModelError> {
        let gradients = loss.backward()?;
        let mut told = Told::new(self.variables.len(), told)?;
        let mut parts = Vec::with_capacity(self.variables.len());
        for (tensor, variable) in self.variables.iter().enumerate() {
            parts.push(if variable.role == Role::Trained {
                match gradients.get(&variable.value) {
                    Some(gradient) => Part::Computed(gradient.contiguous()?),
                    None if variable.used == Used::Perhaps => Part::Zeros(variable.value.elem_count()),
                    None => return Err(unused(variable).into()),
                }
            } else {
                Part::Told(told.sum(tensor, variable, samples)?)
            });
        }
        self.place.write(&parts, out)
    }
}

fn unused(variable: &Variable) -> String {
    format!(
        "expected the loss to depend on `{}`, found no gradient for it: it is not used, or something between has no gradient (candle's own LayerNorm, RmsNorm \
         and softmax_last_dim have none: see sardana_candle::layers)",
        variable.name
    )
}

/// What a batch has come to.
struct Seen {
    output: Tensor,
    target: Tensor,
    loss: Tensor,
}

impl Seen {
    /// As it is read from a GPU. What the backward pass needed is let go of.
    fn readable(self) -> Result<Self> {
        let contiguous = |tensor: Tensor| {
            if tensor.device().is_cpu() {
                Ok(tensor)
            } else {
                tensor.contiguous()
            }
        };
        Ok(Self {
            output: contiguous(self.output)?,
            target: contiguous(self.target)?,
            loss: self.loss.detach(),
        })
    }

    /// Adds what was found: the loss to the first of `sums`, and the others. It waits for a GPU, if `reading` reads from one.
    fn sum(&self, by: &impl Loss, reading: Reading, sums: &mut [f64]) -> Result<()> {
        let [first, others @ ..] = sums else {
            bail!("expected room for the sums of a loss, found none")
        };
        let here = |tensor| reading.here(tensor);
        *first += here(&self.loss)?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        by.measure(&here(&self.output)?, &here(&self.target)?, others)
    }
}

/// What layers have told in one pass, by the number of the tensor.
struct Told(Vec<(Vec<f32>, u32)>);

impl Told {
    fn new(tensors: usize, told: Vec<(Statistic, Vec<f32>)>) -> Result<Self> {
        let mut all = vec![(Vec::new(), 0); tensors];
        for (Statistic { tensor }, means) in told {
            let (sum, times) = &mut all[tensor];
            if *times == 0 {
                *sum = means;
            } else if sum.len() == means.len() {
                sum.iter_mut().zip(means).for_each(|(sum, mean)| *sum += mean);
            } else {
                bail!(
                    "expected a statistic to be told with as many values each time, found {} and {}",
                    sum.len(),
                    means.len()
                );
            }
            *times += 1;
        }
        Ok(Self(all))
    }

    /// Of one tensor, summed over samples.
    fn sum(&mut self, tensor: usize, variable: &Variable, samples: usize) -> Result<Vec<f32>> {
        let (mut sum, times) = take(&mut self.0[tensor]);
        if times == 0 {
            bail!(
                "expected the layer of `{}` to be used in each pass, since it follows what the layer sees; found it left out",
                variable.name
            );
        }
        let factor = samples as f32 / times as f32;
        sum.iter_mut().for_each(|value| *value *= factor);
        Ok(sum)
    }
}

impl<M: ModuleT, L: Loss + Send + Sync + 'static, X: Stack + Send, Y: Stack + Send> Network for Net<M, L, X, Y> {
    type Item = (X, Y);

    fn parameters(&self) -> Vec<Parameter> {
        let parameter = |variable: &Variable| Parameter {
            name: variable.name.clone(),
            shape: variable.value.dims().to_vec(),
            role: variable.role,
        };
        self.variables.iter().map(parameter).collect()
    }

    fn metrics(&self) -> Vec<String> {
        ["loss".to_owned()].into_iter().chain(self.loss.metrics()).collect()
    }

    fn describe(&self) -> String {
        self.loss.describe()
    }

    fn device(&self) -> String {
        self.place.describe()
    }

    fn device_memory(&self, samples: usize) -> Option<DeviceMemory> {
        self.place.memory(self.sample_memory.saturating_mul(samples as u64))
    }

    fn summation(&self) -> Option<Arc<dyn Summation>> {
        self.summation.clone()
    }

    fn gradient(
        &self,
        shard: &Shard,
        items: &[(X, Y)],
        out: &mut GradientWriter<'_>,
        sums: &mut [f64],
    ) -> std::result::Result<(), ModelError> {
        self.pass.begin(shard);
        let seen = self.look(items, true);
        let told = self.pass.end();
        let seen = seen?;
        self.write(&seen.loss, told?, items.len(), out)?;
        let seen = seen.readable()?;
        let reading = self.place.reading()?;
        if reading.is_at_once() {
            return Ok(seen.sum(&*self.loss, reading, sums)?);
        }
        let loss = Arc::clone(&self.loss);
        out.auxiliary_later(move |sums| seen.sum(&*loss, reading, sums))?;
        Ok(())
    }

    fn measure(&self, items: &[(X, Y)], sums: &mut [f64]) -> std::result::Result<(), ModelError> {
        let seen = self.look(items, false)?.readable()?;
        Ok(seen.sum(&*self.loss, self.place.reading()?, sums)?)
    }

    fn values(&self) -> Box<dyn Values> {
        self.place.values()
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> std::result::Result<(), ModelError> {
        Ok(self.place.change(tensor, change)?)
    }

    #[cfg(feature = "cuda")]
    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        match &self.place {
            Place::Host(_) => None,
            Place::Gpu(gpu) => Some(&**gpu),
        }
    }

    #[cfg(feature = "cuda")]
    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        match &mut self.place {
            Place::Host(_) => None,
            Place::Gpu(gpu) => Some(&mut **gpu),
        }
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
