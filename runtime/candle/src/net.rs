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
mod tests {
    use candle_core::Module;
    use candle_nn::{Linear, linear};
    use sardana::data::{Array, Sampler};
    use sardana::job::Job;
    use sardana::model::Dtype;
    use sardana::model::{GradientBuffer, Layout as GradientLayout, Step, Sum, TensorSpec, WriteMode};

    use super::*;
    use crate::{BatchNorm2d, CrossEntropy, Dropout};

    type Items = Vec<(Array<f32>, u32)>;

    /// A dense layer, dropout, normalisation, and a layer that may not be used.
    struct Three {
        dense: Linear,
        norm: BatchNorm2d,
        dropout: Dropout,
        extra: Linear,
        uses_extra: bool,
    }

    impl ModuleT for Three {
        fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
            let values = self.norm.forward_t(&self.dense.forward(input)?, train)?;
            let values = self.dropout.forward_t(&values, train)?;
            if self.uses_extra {
                self.extra.forward(&values)
            } else {
                Ok(values)
            }
        }
    }

    fn net(uses_extra: bool, may_be_unused: bool) -> Net<Three, CrossEntropy, Array<f32>, u32> {
        let module = |builder: &Builder| {
            let part = if may_be_unused {
                builder.may_be_unused()
            } else {
                builder.clone()
            };
            Ok(Three {
                dense: linear(4, 3, builder.pp("dense").vb())?,
                norm: BatchNorm2d::new(3, 1e-5, 0.1, &builder.pp("norm"))?,
                dropout: Dropout::new(0.25, builder)?,
                extra: linear(3, 3, part.pp("extra").vb())?,
                uses_extra,
            })
        };
        build(7, CrossEntropy::new(), module).unwrap()
    }

    fn shard(step: u64, index: u32) -> Shard {
        let spec = Job::builder("net")
            .shards(4)
            .data(64, 32)
            .steps(9)
            .build()
            .unwrap()
            .spec()
            .clone();
        Sampler::new(&spec).unwrap().shard(Step::new(step), index)
    }

    fn items(shard: &Shard) -> Items {
        let item = |&sample: &u64| {
            (
                Array::row((0..4).map(|at| ((sample * 5 + at) as f32 * 0.7).sin()).collect()),
                (sample % 3) as u32,
            )
        };
        shard.samples().iter().map(item).collect()
    }

    fn layout(net: &impl Network) -> GradientLayout {
        let spec = |parameter: &Parameter| TensorSpec::new(&parameter.name, Dtype::F32, &parameter.shape);
        GradientLayout::new(net.parameters().iter().map(spec).collect(), 0).unwrap()
    }

    fn gradient(
        net: &Net<Three, CrossEntropy, Array<f32>, u32>,
        shard: &Shard,
    ) -> std::result::Result<(Sum, Vec<f64>), ModelError> {
        let layout = layout(net);
        let mut buffer = GradientBuffer::zeros(&layout);
        let (mut writer, items, mut sums) = (buffer.writer(&layout, WriteMode::Store), items(shard), vec![0.0; 2]);
        net.gradient(shard, &items, &mut writer, &mut sums)?;
        writer.samples(items.len() as u64)?;
        writer.finish()?;
        Ok((Sum::from_buffer(shard.step(), buffer), sums))
    }

    #[test]
    fn a_gradient_depends_on_the_state_and_the_shard_alone() {
        let net = net(true, false);
        let first = gradient(&net, &shard(0, 1)).unwrap();
        // Whatever was computed in between.
        gradient(&net, &shard(0, 2)).unwrap();
        net.measure(&items(&shard(1, 0)), &mut [0.0; 2]).unwrap();
        assert_eq!(gradient(&net, &shard(0, 1)).unwrap(), first);
        assert_ne!(gradient(&net, &shard(1, 1)).unwrap().0.bytes(), first.0.bytes());
    }

    #[test]
    fn what_layers_tell_is_summed_over_samples() {
        let net = net(true, false);
        let (sum, _) = gradient(&net, &shard(0, 0)).unwrap();
        let (layout, parameters) = (layout(&net), net.parameters());
        let at = parameters
            .iter()
            .position(|parameter| parameter.name == "norm.running_mean")
            .unwrap();
        assert!(matches!(parameters[at].role, Role::RunningMean { .. }));
        assert_eq!(parameters[at + 1].role, Role::RunningVariance { momentum: 0.1, mean: at });
        // The mean over the shard, which is all that this sum has: the running mean is 0.
        let (input, _) = Net::<Three, CrossEntropy, Array<f32>, u32>::tensors(&items(&shard(0, 0))).unwrap();
        let dense = net.module().dense.forward(&input).unwrap();
        let expected = dense.mean(0).unwrap().to_vec1::<f32>().unwrap();
        let found = sum.mean(&layout).f32(at).unwrap();
        assert!(
            found
                .iter()
                .zip(&expected)
                .all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{found:?} {expected:?}"
        );
    }

    #[test]
    fn a_tensor_without_a_gradient_is_an_error_unless_it_may_be_unused() {
        let refusal = gradient(&net(false, false), &shard(0, 0)).unwrap_err().to_string();
        assert!(
            refusal.contains("`extra.weight`") && refusal.contains("softmax_last_dim"),
            "{refusal}"
        );
        let net = net(false, true);
        let (sum, _) = gradient(&net, &shard(0, 0)).unwrap();
        let at = net
            .parameters()
            .iter()
            .position(|parameter| parameter.name == "extra.weight")
            .unwrap();
        assert_eq!(sum.mean(&layout(&net)).f32(at).unwrap(), [0.0; 9]);
    }

    #[test]
    fn values_are_changed_where_they_lie_and_seen_by_another_thread() {
        let mut net = net(true, false);
        let before = net.module().dense.weight().clone();
        net.change(0, &mut |values| values.fill(2.5)).unwrap();
        assert_eq!(before.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [2.5; 12]);
        let values = net.values();
        let seen = std::thread::spawn(move || {
            let mut seen = Vec::new();
            values.see(0, &mut |values| seen.extend_from_slice(values)).unwrap();
            seen
        });
        assert_eq!(seen.join().unwrap(), [2.5; 12]);
        assert_eq!(net.trained_values(), 12 + 3 + 6 + 12);
    }

    #[test]
    fn a_network_that_asks_for_nothing_is_refused() {
        let empty = build::<_, _, Array<f32>, u32>(1, CrossEntropy::new(), |_| Ok(candle_nn::seq()));
        assert!(empty.unwrap_err().to_string().contains("found none"));
    }

    #[test]
    fn samples_of_different_shapes_are_refused_with_both() {
        let all = [Array::row(vec![0.0_f32; 3]), Array::row(vec![0.0; 4])];
        let error = Array::stack(all.iter()).unwrap_err().to_string();
        assert!(error.contains("[3]") && error.contains("[4]"), "{error}");
        let images = [sardana::data::Image::new(1, 1, 2, vec![0, 255]).unwrap()];
        let stacked = sardana::data::Image::stack(images.iter()).unwrap();
        assert_eq!(stacked.dims(), [1, 1, 1, 2]);
        assert_eq!(stacked.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [0.0, 1.0]);
    }
}
