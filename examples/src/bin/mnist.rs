//! The MNIST job.
//!
//! `cargo run --release --bin mnist [-- --data DIR --network cnn]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use sardana::device::DeviceChoice;
use sardana_examples::{mnist::Data, showing};

/// Trains a network that reads handwritten digits of 28 × 28 pixels, and says how well it reads those that it has not seen.
#[derive(Parser)]
#[command(
    after_help = "Without --data it trains on 1,437 digits that come with this program. RUST_LOG=info shows what happens."
)]
struct Arguments {
    /// MNIST's four files, packed (.gz) or not; or files of another set in this form, such as Fashion-MNIST
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Which network
    #[arg(long, value_enum, default_value_t = Network::Dense)]
    network: Network,
    /// How often each image is seen: 12 times, or 30 times without --data
    #[arg(long)]
    epochs: Option<u64>,
    /// Ends with exit code 1 if it reads a smaller part than this of the held-out images, such as 0.985
    #[arg(long, value_name = "PART")]
    at_least: Option<f64>,
    /// What to compute on: `cuda` is a GPU for each worker, for which this program needs its feature `candle-cuda`; `auto` is that where it can be
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
    /// How many worker processes, unless `sardana run -n` says so
    #[arg(long, short = 'n', default_value_t = 2)]
    workers: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Network {
    /// 784-128-60-10
    Dense,
    /// Convolutions to 32 and 64 channels, pooling, dropout, 128-10: 1,199,882 parameters
    Cnn,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    showing::logs();
    let device = DeviceChoice::said(arguments.device)?;
    // Before data are read for it.
    device.require()?;
    let data = match &arguments.data {
        Some(folder) => Data::in_folder(folder),
        None => Data::from_digits()?,
    };
    let epochs = arguments.epochs.unwrap_or(if arguments.data.is_some() { 12 } else { 30 });
    let job = data.job(epochs)?.workers(arguments.workers).build()?;
    let metrics = ["loss", "accuracy"];
    let summary = match arguments.network {
        Network::Dense => showing::train_on(&job, device, &metrics, |spec| data.dense(spec, device))?,
        Network::Cnn => showing::train_on(&job, device, &metrics, |spec| data.cnn(spec, device))?,
    };
    showing::check_accuracy(&summary, arguments.at_least)
}
