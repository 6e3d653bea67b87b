//! What a shard of the digits job costs in one process, beside the bare matrix products in it, measured in the same run.
//!
//! `RAYON_NUM_THREADS=1 cargo bench -p sardana-examples --bench digits`

use std::hint::black_box;
use std::time::Instant;

use candle_core::{Device, Tensor};
use sardana::data::Sampler;
use sardana::model::{GradientBuffer, Layout, Step, Sum, Trainable, WriteMode};
use sardana_examples::digits;

/// Median of the microseconds that `run` takes.
fn median_us(mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    const RUNS: usize = 2_001;
    let mut each = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        each.push(start.elapsed().as_secs_f64() * 1e6);
    }
    each.sort_by(f64::total_cmp);
    Ok(each[RUNS / 2])
}

/// The eight products that a gradient needs: three forwards, three for the weights, two for the layers' inputs.
fn products(samples: usize) -> anyhow::Result<()> {
    let tensor = |rows, columns| Tensor::ones((rows, columns), candle_core::DType::F32, &Device::Cpu);
    for (layer, (inputs, outputs)) in [(64, 128), (128, 60), (60, 10)].into_iter().enumerate() {
        let (input, weights, output) = (tensor(samples, inputs)?, tensor(inputs, outputs)?, tensor(samples, outputs)?);
        black_box(input.matmul(&weights)?);
        black_box(input.t()?.matmul(&output)?);
        if layer > 0 {
            black_box(output.matmul(&weights.t()?)?);
        }
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let spec = digits::spec();
    let mut model = digits::model(&spec).map_err(anyhow::Error::from_boxed)?;
    let sampler = Sampler::new(&spec)?;
    let shard = sampler.shard(Step::ZERO, 0);
    let layout = Layout::new(model.gradients(), model.auxiliary().len())?;
    let mut buffer = GradientBuffer::zeros(&layout);

    let deal = median_us(|| {
        black_box(sampler.shard(Step::ZERO, 0));
        Ok(())
    })?;
    let limit = median_us(|| products(shard.samples().len()))?;
    let gradient = median_us(|| {
        let mut writer = buffer.writer(&layout, WriteMode::Store);
        model.gradient(&shard, &mut writer).map_err(anyhow::Error::from_boxed)?;
        Ok(writer.finish()?)
    })?;
    let sum = Sum::from_buffer(Step::ZERO, buffer);
    let apply = median_us(|| model.apply(Step::ZERO, &sum.mean(&layout)).map_err(anyhow::Error::from_boxed))?;
    println!("sampler/digits/8      {deal:>8.1} us");
    println!("products/digits/8     {limit:>8.1} us");
    println!(
        "gradient/digits/8     {gradient:>8.1} us  {:.2} times the products",
        gradient / limit
    );
    println!("apply/digits          {apply:>8.1} us");
    Ok(())
}
