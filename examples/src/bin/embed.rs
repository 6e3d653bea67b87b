//! The example of the README: a model of two numbers, trained on four worker processes.
//!
//! `cargo run --release --bin embed`; it must know no more of Sardana than a user has to.

use sardana::Job;
use sardana::data::Shard;
use sardana::device::DeviceChoice;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable};

/// Fits y = a + b x to points on y = 1 + 2 x.
struct Line([f64; 2]);

impl Trainable for Line {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new("a, b", Dtype::F64, &[2])]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let mut sum = [0.0; 2];
        for &sample in shard.samples() {
            let x = sample as f64 / 1_000.0;
            let residual = self.0[0] + self.0[1] * x - (1.0 + 2.0 * x);
            sum = [sum[0] + residual, sum[1] + residual * x];
        }
        out.write_f64(0, &sum)?;
        Ok(out.samples(shard.samples().len() as u64)?)
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let slopes = mean.f64(0)?;
        self.0 = [self.0[0] - slopes[0], self.0[1] - slopes[1]];
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        visitor(&self.gradients()[0], &self.0.map(f64::to_le_bytes).concat());
        Ok(())
    }

    fn load(&mut self, _: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let (numbers, _) = bytes.as_chunks::<8>();
        self.0 = [f64::from_le_bytes(numbers[0]), f64::from_le_bytes(numbers[1])];
        Ok(())
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        Ok(vec![("a".to_owned(), self.0[0]), ("b".to_owned(), self.0[1])])
    }
}

fn main() -> anyhow::Result<()> {
    // Plain Rust, so that `--device cuda` is refused.
    let device = DeviceChoice::of_arguments()?.on_processors()?;
    // 1,000 samples, 100 of them a step, each step cut into 8 shards: for 4 workers or any other number.
    let job = Job::builder("line")
        .seed(7)
        .shards(8)
        .data(1_000, 100)
        .steps(400)
        .workers(4)
        .device(device)
        .build()?;
    let summary = sardana::train(&job, |_| Ok(Line([0.0, 0.0])))?;
    for (name, value) in summary.results {
        println!("{name} = {value:.6}");
    }
    println!("state {}", summary.hash);
    Ok(())
}
