//! The worker program of these tests: this very test program, asked to run the one test that becomes a worker.

use sardana::data::Shard;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable};
use sardana::worker::serve_if_started_by_agent;
use sardana::{Job, JobSpec};

/// Fits one number to the mean of 0 … n-1.
struct Line {
    w: f64,
}

/// A job that does not end by itself.
pub(crate) fn job() -> Job {
    let builder = Job::builder("endless").seed(7).shards(4).data(64, 16);
    builder.steps(1 << 40).build().unwrap()
}

pub(crate) fn build(_: &JobSpec) -> Result<impl Trainable + use<>, ModelError> {
    Ok(Line { w: 0.0 })
}

/// Not a test: a worker, if an agent started it, or `SARDANA_JOIN` names a join file.
#[test]
fn becomes_a_worker() {
    if std::env::var_os(sardana_actors::agent::BUNDLE_VARIABLE).is_some() {
        println!("a worker is here");
    }
    serve_if_started_by_agent(&job(), build);
}

impl Trainable for Line {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new("w", Dtype::F64, &[1])]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        // As long as a small model takes: a step of nothing would leave joiners no time to follow.
        std::thread::sleep(std::time::Duration::from_micros(500));
        let slope: f64 = shard.samples().iter().map(|&sample| self.w - sample as f64).sum();
        out.write_f64(0, &[slope])?;
        Ok(out.samples(shard.samples().len() as u64)?)
    }

    fn apply(&mut self, _: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.w -= 0.5 * mean.f64(0)?[0];
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        visitor(&TensorSpec::new("w", Dtype::F64, &[1]), &self.w.to_le_bytes());
        Ok(())
    }

    fn load(&mut self, _: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.w = f64::from_le_bytes(bytes.try_into()?);
        Ok(())
    }
}
