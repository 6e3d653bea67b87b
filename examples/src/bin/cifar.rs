//! The CIFAR-10 job.
//!
//! `cargo run --release --bin cifar -- --data DIR`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::device::DeviceChoice;
use sardana_examples::{cifar::Data, showing};

/// Trains a residual network on CIFAR-10, and says how well it tells the kinds of things apart that it has not seen.
#[derive(Parser)]
#[command(
    after_help = "Without --data it trains on pictures that it makes: stripes, which show that all of it works. On a CPU ResNet-20 takes \
                        hours on the real set. RUST_LOG=info shows what happens."
)]
struct Arguments {
    /// The folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Layers with weights: 20, 32, 44, 56, 110, or another 6 n + 2
    #[arg(long, default_value_t = 20)]
    depth: usize,
    /// Channels of the first third of the network
    #[arg(long, default_value_t = 16)]
    width: usize,
    /// How often each image is seen
    #[arg(long, default_value_t = 24)]
    epochs: u64,
    /// How many images are made where there are no files
    #[arg(long, default_value_t = 1_000)]
    made: usize,
    /// What to compute on: `cuda` is a GPU for each worker, for which this program needs its feature `candle-cuda`; `auto` is that where it can be
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
    /// How many worker processes, unless `sardana run -n` says so
    #[arg(long, short = 'n', default_value_t = 2)]
    workers: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    showing::logs();
    let device = DeviceChoice::said(arguments.device)?;
    // Before data are read for it.
    device.require()?;
    let data = match &arguments.data {
        Some(folder) => Data::in_folder(folder),
        None => Data::made(arguments.made)?,
    };
    let job = data.job(arguments.epochs)?.workers(arguments.workers).build()?;
    let Arguments { depth, width, .. } = arguments;
    showing::train_on(&job, device, &["loss", "accuracy"], |spec| {
        data.model(spec, depth, width, device)
    })?;
    Ok(())
}
