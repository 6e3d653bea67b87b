//! The tensors of a network while it is built: each is known by its name, and its first values depend on the job's seed and that name
//! alone. What candle's `VarBuilder` is to candle's own models; [`Builder::vb`] is one, for those.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor, Var, bail};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use sardana::fit::Role;

use crate::initial;
use crate::pass::{MAX_DRAWING_LAYERS, Pass, Statistic};

/// A tensor of a network, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: Var,
    pub(crate) role: Role,
    pub(crate) used: Used,
}

/// Whether a loss depends on a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// If not, that is a mistake.
    Always,
    /// If not, its gradient is 0.
    Perhaps,
}

/// Builds a network: names its tensors, makes their first values, and connects layers that need more than tensors with the [`Pass`].
///
/// ```
/// # use candle_core::{Result, Tensor};
/// # use candle_nn::{Linear, linear};
/// # use sardana_candle::{Builder, Dropout};
/// # fn network(builder: &Builder) -> Result<(Linear, Dropout)> {
/// let dense = linear(784, 128, builder.pp("dense").vb())?;
/// let dropout = Dropout::new(0.5, builder)?;
/// # Ok((dense, dropout))
/// # }
/// ```
#[derive(Clone)]
pub struct Builder {
    variables: VarBuilder<'static>,
    made: Made,
    pass: Pass,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("prefix", &self.variables.prefix())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Of a network on processors whose first values are drawn with `seed`.
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Self {
        Self::on(Device::Cpu, seed)
    }

    /// Of a network on `device` whose first values are drawn with `seed`.
    pub(crate) fn on(device: Device, seed: u64) -> Self {
        let made = Made {
            seed,
            used: Used::Always,
            tensors: Arc::default(),
        };
        let variables = VarBuilder::from_backend(Box::new(made.clone()), DType::F32, device);
        Self {
            variables,
            made,
            pass: Pass::default(),
        }
    }

    /// The same with `name` before the names of all tensors: a part of the network.
    #[must_use]
    pub fn pp(&self, name: impl ToString) -> Self {
        Self {
            variables: self.variables.pp(name),
            ..self.clone()
        }
    }

    /// For a layer or a model of candle, as it is: every tensor that it asks for is trained.
    #[must_use]
    pub fn vb(&self) -> VarBuilder<'static> {
        self.variables.clone()
    }

    /// What the network is computed on: where a layer makes tensors that it does not ask for here, such as a mask.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.variables.device()
    }

    /// For a part of the network that a loss need not depend on, such as a layer that is skipped at random: where there is no gradient for a
    /// tensor of it, that is 0. Elsewhere it is an error, since it is usually a mistake.
    #[must_use]
    pub fn may_be_unused(&self) -> Self {
        let made = Made {
            used: Used::Perhaps,
            ..self.made.clone()
        };
        let variables = VarBuilder::from_backend(Box::new(made.clone()), DType::F32, self.device().clone());
        let prefix = self.variables.prefix();
        Self {
            variables: if prefix.is_empty() { variables } else { variables.pp(prefix) },
            made,
            pass: self.pass.clone(),
        }
    }

    /// A tensor that is trained.
    ///
    /// # Errors
    /// When another tensor has its name, or candle cannot hold it.
    pub fn parameter(&self, shape: impl Into<Shape>, name: &str, init: Init) -> Result<Tensor> {
        let full = self.named(name);
        if self.made.tensors().by_name.contains_key(&full) {
            return Err(name_twice(&full));
        }
        self.variables.get_with_hints(shape, name, init)
    }

    /// The name with those of the parts that it is in.
    fn named(&self, name: &str) -> String {
        match self.variables.prefix() {
            prefix if prefix.is_empty() => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        }
    }

    /// A running mean and a running variance of `channels` values each, 0 and 1 at first, by which a layer normalises when it is
    /// evaluated. In training the layer tells the shard's means and mean squares of the distances from the running mean ([`Pass::tell`]);
    /// with each update both tensors go `momentum` of the way to the mean and the (biased) variance over the whole batch.
    ///
    /// # Errors
    /// When another tensor has one of the names, or candle cannot hold it.
    pub fn running(&self, channels: usize, momentum: f64) -> Result<Running> {
        let momentum = match momentum {
            0.0..=1.0 => momentum,
            found => bail!("expected the momentum of running statistics from 0 to 1, found {found}"),
        };
        let mut made = self.made.tensors();
        let mean = made.len();
        let zeros = Var::zeros(channels, DType::F32, self.device())?;
        let ones = Var::ones(channels, DType::F32, self.device())?;
        let used = Used::Always;
        made.add(self.named("running_mean"), zeros, Role::RunningMean { momentum }, used)?;
        made.add(
            self.named("running_var"),
            ones,
            Role::RunningVariance { momentum, mean },
            used,
        )?;
        Ok(Running {
            mean: made.values[mean].value.as_tensor().clone(),
            variance: made.values[mean + 1].value.as_tensor().clone(),
            means: Statistic { tensor: mean },
            squares: Statistic { tensor: mean + 1 },
        })
    }

    /// What the layers of this network share.
    #[must_use]
    pub fn pass(&self) -> Pass {
        self.pass.clone()
    }

    /// A number for a layer that draws random numbers: see [`Pass::random`].
    ///
    /// # Errors
    /// When there are too many such layers.
    pub fn drawing_layer(&self) -> Result<u32> {
        let mut made = self.made.tensors();
        if made.drawing_layers == MAX_DRAWING_LAYERS {
            bail!("expected at most {MAX_DRAWING_LAYERS} layers that draw random numbers, found more");
        }
        made.drawing_layers += 1;
        Ok(made.drawing_layers - 1)
    }

    /// All tensors that were asked for, in that order.
    pub(crate) fn into_variables(self) -> Vec<Variable> {
        let mut made = self.made.tensors();
        made.built = true;
        std::mem::take(&mut made.values)
    }
}

/// A running mean and variance: see [`Builder::running`].
#[derive(Clone, Debug)]
pub struct Running {
    /// The mean, as it is now; shape (channels).
    pub mean: Tensor,
    /// The variance, as it is now; shape (channels).
    pub variance: Tensor,
    /// What the shard's means are told as.
    pub means: Statistic,
    /// What the shard's mean squares are told as.
    pub squares: Statistic,
}

fn name_twice(name: &str) -> candle_core::Error {
    candle_core::Error::Msg(format!(
        "expected each tensor to have a name of its own, found `{name}` twice: put a part before it with `pp`"
    ))
}

/// The tensors that were made, as candle's builder asks for them.
#[derive(Clone, Debug)]
struct Made {
    seed: u64,
    /// Of the tensors that are asked for by way of this.
    used: Used,
    tensors: Arc<Mutex<Tensors>>,
}

#[derive(Debug, Default)]
struct Tensors {
    values: Vec<Variable>,
    by_name: BTreeMap<String, usize>,
    drawing_layers: u32,
    /// Nothing may be asked for any more.
    built: bool,
}

impl Tensors {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn add(&mut self, name: String, value: Var, role: Role, used: Used) -> Result<()> {
        self.check_open(&name)?;
        if self.by_name.contains_key(&name) {
            return Err(name_twice(&name));
        }
        self.by_name.insert(name.clone(), self.values.len());
        self.values.push(Variable { name, value, role, used });
        Ok(())
    }

    fn check_open(&self, name: &str) -> Result<()> {
        if self.built {
            bail!(
                "expected all tensors to be asked for while a network is built, found `{name}` asked for later: it would not be trained"
            );
        }
        Ok(())
    }
}

impl Made {
    fn tensors(&self) -> MutexGuard<'_, Tensors> {
        self.tensors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimpleBackend for Made {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let last = name.rsplit('.').next().unwrap_or(name);
        if matches!(last, "running_mean" | "running_var") {
            // candle's own layer would move it while it computes, by what this worker's shard alone has seen.
            bail!(
                "`{name}` is asked for by a layer that moves it while it computes, so that the state would depend on which worker \
                 computes a shard: use sardana_candle::BatchNorm2d"
            );
        }
        if dtype != DType::F32 {
            bail!("expected `{name}` to be f32, found {dtype:?}: networks are trained in f32");
        }
        let mut made = self.tensors();
        made.check_open(name)?;
        if let Some(&known) = made.by_name.get(name) {
            let known = &made.values[known].value;
            if known.shape() != &shape {
                bail!("`{name}` is shared as {shape:?}, and was made as {:?}", known.shape());
            }
            return Ok(known.as_tensor().clone());
        }
        let values = initial::values(self.seed, name, &shape, init)?;
        let value = Var::from_tensor(&Tensor::from_vec(values, shape, device)?)?;
        made.add(name.to_owned(), value.clone(), Role::Trained, self.used)?;
        Ok(value.as_tensor().clone())
    }

    fn get_unchecked(&self, name: &str, _dtype: DType, _device: &Device) -> Result<Tensor> {
        let made = self.tensors();
        made.check_open(name)?;
        match made.by_name.get(name) {
            Some(&known) => Ok(made.values[known].value.as_tensor().clone()),
            None => bail!("`{name}` is asked for without its shape, and was not made before: ask with a shape"),
        }
    }

    fn contains_tensor(&self, _name: &str) -> bool {
        // Whatever is asked for is made.
        true
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
