//! Trains the digits network in a plain loop and says how well it reads.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release --bin digits [-- IMAGES.csv]`; without the variable it takes six times as long, see
//! [`sardana_examples::candle_adapter`].

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, anyhow};
use sardana::reference;
use sardana_examples::digits::{self, Digits};

fn main() -> Result<()> {
    let spec = digits::spec();
    let model = match std::env::args_os().nth(1).map(PathBuf::from) {
        Some(path) => Digits::from_file(&spec, &path),
        None => Digits::new(&spec),
    };
    let mut model = model.map_err(|error| anyhow!(error))?;
    println!(
        "job {}: {} images, batches of {} in {} shards, {} steps",
        spec.name,
        spec.samples,
        spec.batch,
        spec.shards,
        spec.steps.get()
    );
    let start = Instant::now();
    let run = reference::train(&spec, &mut model)?;
    let seconds = start.elapsed().as_secs_f64();

    let steps_per_epoch = spec.samples.div_ceil(spec.batch) as usize;
    for (epoch, reports) in run
        .reports
        .chunks(steps_per_epoch)
        .enumerate()
        .filter(|(epoch, _)| (epoch + 1) % 5 == 0)
    {
        let samples: u64 = reports.iter().map(|report| report.samples).sum();
        let mean = |sum: usize| reports.iter().map(|report| report.sums[sum]).sum::<f64>() / samples as f64;
        println!(
            "epoch {:>2}  loss {:.4}  correct {:5.1} %",
            epoch + 1,
            mean(0),
            100.0 * mean(1)
        );
    }
    for (name, value) in &run.results {
        println!("{name} on held-out images: {:.2} %", 100.0 * value);
    }
    println!("{seconds:.2} s, {:.0} steps a second", spec.steps.get() as f64 / seconds);
    println!("final state {}", run.hash);
    Ok(())
}
