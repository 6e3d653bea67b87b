//! A job whose state is large and whose gradient is one number: what moves in it is the state. Its gradients sleep, so that the host's processors
//! are there for the copying, as they would be if each worker had its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use sardana::data::Shard;
use sardana::job::JobBuilder;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, SharedState, TensorSpec, Trainable};
use sardana::{Balance, Job, Step, serve_if_started_by_agent};

use super::diary::{Pen, now};
use crate::ending::Failure;

/// What is trained, as each worker process is told.
#[derive(Debug, Clone, Args)]
pub(super) struct Carrying {
    /// Bytes of the state.
    #[arg(long)]
    pub(super) state: u64,
    /// K: gradients in a step.
    #[arg(long)]
    pub(super) shards: u32,
    /// How long one of them sleeps, in microseconds.
    #[arg(long)]
    pub(super) rest_us: u64,
    /// Whether updates wait for a copy of the state.
    #[arg(long)]
    pub(super) trained: bool,
    /// Where each process keeps its diary.
    #[arg(long)]
    pub(super) folder: PathBuf,
}

/// A worker process of that job.
#[derive(Debug, Args)]
pub(in crate::bench) struct Member {
    #[command(flatten)]
    carrying: Carrying,
}

impl Member {
    pub(in crate::bench) fn carry_out(self) -> Result<(), Failure> {
        let job = self.carrying.job().build().map_err(Failure::failed)?;
        serve_if_started_by_agent(&job, |_| Ok(Model::new(&self.carrying)?));
        Err(Failure::Usage("this is what `sardana bench copy` starts".to_owned()))
    }
}

impl Carrying {
    /// The arguments by which a worker is told of it.
    pub(super) fn arguments(&self) -> Vec<std::ffi::OsString> {
        let number = |name: &str, value: u64| [name.into(), value.to_string().into()];
        let mut arguments = vec!["bench".into(), "member".into()];
        arguments.extend(number("--state", self.state));
        arguments.extend(number("--shards", self.shards.into()));
        arguments.extend(number("--rest-us", self.rest_us));
        arguments.extend(self.trained.then(|| "--trained".into()));
        arguments.extend(["--folder".into(), self.folder.clone().into()]);
        arguments
    }

    fn job(&self) -> JobBuilder {
        let samples = u64::from(self.shards);
        Job::builder("copy")
            .seed(0)
            .shards(self.shards)
            .data(samples, samples)
            // It is stopped.
            .steps(1 << 40)
            .balance(Balance::Off)
    }
}

/// The model: a number that is trained, and what is only carried along.
struct Model {
    weight: f32,
    carried: Arc<Vec<u8>>,
    trained: bool,
    rest: Duration,
    pen: Pen,
}

/// Bytes that are the same nowhere: what is alike would be stored once. Made at the speed of memory, since a model's own beginning is not what is measured.
fn carried(bytes: usize) -> Vec<u8> {
    // Multiples of an odd number are all different.
    let word = |index: u64| index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut carried = vec![0; bytes];
    let (words, rest) = carried.as_chunks_mut::<8>();
    for (index, place) in (0..).zip(&mut *words) {
        *place = word(index);
    }
    rest.copy_from_slice(&word(words.len() as u64)[..rest.len()]);
    carried
}

impl Model {
    fn new(carrying: &Carrying) -> std::io::Result<Self> {
        let bytes = usize::try_from(carrying.state).map_err(std::io::Error::other)?;
        Ok(Self {
            weight: 0.0,
            carried: Arc::new(carried(bytes)),
            trained: carrying.trained,
            rest: Duration::from_micros(carrying.rest_us),
            pen: Pen::new(&carrying.folder)?,
        })
    }

    fn shared(&self) -> Shared {
        Shared {
            weight: self.weight.to_le_bytes(),
            carried: Arc::clone(&self.carried),
            trained: self.trained,
        }
    }
}

/// The state at a boundary.
struct Shared {
    weight: [u8; 4],
    carried: Arc<Vec<u8>>,
    trained: bool,
}

impl SharedState for Shared {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        visitor(&TensorSpec::new("weight", Dtype::F32, &[1]), &self.weight);
        visitor(
            &TensorSpec::new("carried", Dtype::F32, &[self.carried.len() / 4]),
            &self.carried,
        );
        Ok(())
    }

    fn outlives_updates(&self) -> bool {
        !self.trained
    }
}

impl Trainable for Model {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new("weight", Dtype::F32, &[1])]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        thread::sleep(self.rest);
        out.write_f32(0, &[self.weight + shard.index() as f32])?;
        out.samples(shard.samples().len() as u64)?;
        Ok(())
    }

    fn apply(&mut self, _: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let slope = mean.f32(0)?.first().copied().unwrap_or_default();
        self.weight = 0.5 * self.weight - slope / 16.0;
        Ok(self.pen.updated()?)
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.shared().visit(visitor)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        Some(Box::new(self.shared()))
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        if tensor.name == "weight" {
            self.weight = f32::from_le_bytes(bytes.try_into()?);
            return Ok(());
        }
        let begin = now();
        Arc::make_mut(&mut self.carried).copy_from_slice(bytes);
        Ok(self.pen.loaded(begin)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sardana::model::probe;
    use sardana_data::Sampler;

    use super::*;

    #[test]
    fn the_model_keeps_its_promises_and_no_part_of_its_state_is_like_another() {
        let folder = tempfile::tempdir().unwrap();
        let carrying = Carrying {
            state: 4_100,
            shards: 3,
            rest_us: 0,
            trained: false,
            folder: folder.path().to_owned(),
        };
        let mut model = Model::new(&carrying).unwrap();
        let job = carrying.job().build().unwrap();
        probe(&mut model, &Sampler::new(job.spec()).unwrap()).unwrap();
        assert_eq!(model.carried.len(), 4_100);
        let words: BTreeSet<&[u8]> = model.carried.chunks_exact(8).collect();
        assert_eq!(words.len(), 512);
    }
}
