//! A network of candle with its loss, as [`sardana::fit::Fit`] trains it.

use std::cell::RefCell;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::mem::take;

use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Result, Storage, Tensor, Var, bail};
use candle_nn::ModuleT;
use sardana::data::Shard;
use sardana::fit::{Network, Parameter, Role, Values};
use sardana::model::{GradientWriter, ModelError};

use crate::builder::{Used, Variable};
use crate::loss::Loss;
use crate::pass::Statistic;
use crate::{Builder, Pass, Stack};

/// A network that is trained on pairs of an input and a target.
pub struct Net<M, L, X, Y> {
    module: M,
    loss: L,
    variables: Vec<Variable>,
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
/// values depend on `seed` and their names alone.
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
    let builder = Builder::new(seed);
    let module = module(&builder)?;
    let pass = builder.pass();
    let variables = builder.into_variables();
    if variables.is_empty() {
        bail!("expected a network to ask its builder for tensors, found none");
    }
    Ok(Net {
        module,
        loss,
        variables,
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

    /// Input and target of a batch.
    fn tensors(items: &[(X, Y)]) -> Result<(Tensor, Tensor)> {
        let inputs = X::stack(items.iter().map(|(input, _)| input))?;
        Ok((inputs, Y::stack(items.iter().map(|(_, target)| target))?))
    }

    /// The loss's sum as the first of `sums`, and the others; the tensor of the loss.
    fn look(&self, items: &[(X, Y)], train: bool, sums: &mut [f64]) -> Result<Tensor> {
        let (input, target) = Self::tensors(items)?;
        let output = self.module.forward_t(&input, train)?;
        let loss = self.loss.sum(&output, &target)?;
        let [first, others @ ..] = sums else {
            bail!("expected room for the sums of a loss, found none")
        };
        *first += loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        self.loss.measure(&output.detach(), &target, others)?;
        Ok(loss)
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
        for (tensor, variable) in self.variables.iter().enumerate() {
            if variable.role != Role::Trained {
                out.write_f32(tensor, &told.sum(tensor, variable, samples)?)?;
                continue;
            }
            let Some(gradient) = gradients.get(&variable.value) else {
                if variable.used == Used::Perhaps {
                    out.fill_f32(tensor, |_| ())?;
                    continue;
                }
                return Err(format!(
                    "expected the loss to depend on `{}`, found no gradient for it: it is not used, or something between has no gradient \
                     (candle's own LayerNorm, RmsNorm and softmax_last_dim have none: see sardana_candle::layers)",
                    variable.name
                )
                .into());
            };
            let mut written = Ok(());
            see(&gradient.contiguous()?, &mut |values| written = out.write_f32(tensor, values))?;
            written?;
        }
        Ok(())
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

impl<M: ModuleT, L: Loss, X: Stack + Send, Y: Stack + Send> Network for Net<M, L, X, Y> {
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

    fn gradient(
        &self,
        shard: &Shard,
        items: &[(X, Y)],
        out: &mut GradientWriter<'_>,
        sums: &mut [f64],
    ) -> std::result::Result<(), ModelError> {
        self.pass.begin(shard);
        let loss = self.look(items, true, sums);
        let told = self.pass.end();
        self.write(&loss?, told, items.len(), out)
    }

    fn measure(&self, items: &[(X, Y)], sums: &mut [f64]) -> std::result::Result<(), ModelError> {
        self.look(items, false, sums)?;
        Ok(())
    }

    fn values(&self) -> Box<dyn Values> {
        Box::new(Shared(self.variables.iter().map(|variable| variable.value.clone()).collect()))
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> std::result::Result<(), ModelError> {
        Ok(self.variables[tensor].value.inplace_op1(&Change(RefCell::new(change)))?)
    }
}

/// The same tensors, as another thread reads them.
struct Shared(Vec<Var>);

impl Values for Shared {
    fn see(&self, tensor: usize, visit: &mut dyn FnMut(&[f32])) -> std::result::Result<(), ModelError> {
        Ok(see(&self.0[tensor], visit)?)
    }
}

/// Shows the values of a contiguous f32 tensor in this process's memory.
fn see(tensor: &Tensor, visit: &mut dyn FnMut(&[f32])) -> Result<()> {
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        bail!("expected a contiguous tensor in this process's memory, found {layout:?}");
    };
    visit(&storage.as_slice::<f32>()?[start..end]);
    Ok(())
}

/// What changes values where they lie.
type Changing<'a> = dyn FnMut(&mut [f32]) + 'a;

/// Changes a tensor where it lies.
struct Change<'a>(RefCell<&'a mut Changing<'a>>);

impl InplaceOp1 for Change<'_> {
    fn name(&self) -> &'static str {
        "update"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets()) else {
            bail!("expected a contiguous f32 tensor, found {layout:?}");
        };
        let Ok(mut change) = self.0.try_borrow_mut() else {
            bail!("expected a tensor to be changed once at a time");
        };
        change(&mut values[start..end]);
        Ok(())
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
