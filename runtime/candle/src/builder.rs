//! The tensors of a network while it is built: each is known by its name, and its first values depend on the job's seed and that name
//! alone. What candle's `VarBuilder` is to candle's own models; [`Builder::vb`] is one, for those.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor, Var, bail};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use crate::initial;
use crate::pass::{MAX_DRAWING_LAYERS, Pass, Statistic};

/// What a tensor of a network is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    /// It is trained by its gradient.
    Trained,
    /// It follows the mean over each batch of what its layer tells.
    RunningMean {
        /// By this part of the way to the mean.
        momentum: f64,
    },
    /// It follows the variance over each batch; its layer tells mean squares.
    RunningVariance {
        /// By this part of the way.
        momentum: f64,
        /// The statistic by which the layer tells the means.
        mean: usize,
    },
}

/// A tensor of a network, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: Var,
    pub(crate) role: Role,
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
    /// Of a network whose first values are drawn with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let made = Made {
            seed,
            tensors: Arc::default(),
        };
        let variables = VarBuilder::from_backend(Box::new(made.clone()), DType::F32, Device::Cpu);
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

    /// A tensor that is trained.
    ///
    /// # Errors
    /// When another tensor has its name, or candle cannot hold it.
    pub fn parameter(&self, shape: impl Into<Shape>, name: &str, init: Init) -> Result<Tensor> {
        self.variables.get_with_hints(shape, name, init)
    }

    /// A running mean and a running variance of `channels` values each, 0 and 1 at first, by which a layer normalises when it is
    /// evaluated. In training the layer tells the shard's means and mean squares ([`Pass::tell`]); with each update both tensors go
    /// `momentum` of the way to the mean and the (biased) variance over the whole batch.
    ///
    /// # Errors
    /// When another tensor has one of the names, or candle cannot hold it.
    pub fn running(&self, channels: usize, momentum: f64) -> Result<Running> {
        let momentum = match momentum {
            0.0..=1.0 => momentum,
            found => bail!("expected the momentum of running statistics from 0 to 1, found {found}"),
        };
        let named = |name: &str| match self.variables.prefix() {
            prefix if prefix.is_empty() => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        };
        let mut made = self.made.tensors();
        let mean = made.len();
        let zeros = Var::zeros(channels, DType::F32, &Device::Cpu)?;
        let ones = Var::ones(channels, DType::F32, &Device::Cpu)?;
        made.add(named("running_mean"), zeros, Role::RunningMean { momentum })?;
        made.add(named("running_var"), ones, Role::RunningVariance { momentum, mean })?;
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
        std::mem::take(&mut self.made.tensors().values)
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

/// The tensors that were made, as candle's builder asks for them.
#[derive(Clone, Debug)]
struct Made {
    seed: u64,
    tensors: Arc<Mutex<Tensors>>,
}

#[derive(Debug, Default)]
struct Tensors {
    values: Vec<Variable>,
    by_name: BTreeMap<String, usize>,
    drawing_layers: u32,
}

impl Tensors {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn add(&mut self, name: String, value: Var, role: Role) -> Result<()> {
        if self.by_name.contains_key(&name) {
            bail!("expected each tensor to have a name of its own, found `{name}` twice: put a part before it with `pp`");
        }
        self.by_name.insert(name.clone(), self.values.len());
        self.values.push(Variable { name, value, role });
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
        let mut made = self.tensors();
        if let Some(&known) = made.by_name.get(name) {
            let known = &made.values[known].value;
            if known.shape() != &shape {
                bail!("`{name}` is shared as {shape:?}, and was made as {:?}", known.shape());
            }
            return Ok(known.as_tensor().clone());
        }
        if dtype != DType::F32 {
            bail!("expected `{name}` to be f32, found {dtype:?}: networks are trained in f32");
        }
        let values = initial::values(self.seed, name, &shape, init)?;
        let value = Var::from_tensor(&Tensor::from_vec(values, shape, device)?)?;
        made.add(name.to_owned(), value.clone(), Role::Trained)?;
        Ok(value.as_tensor().clone())
    }

    fn get_unchecked(&self, name: &str, _dtype: DType, _device: &Device) -> Result<Tensor> {
        let made = self.tensors();
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
