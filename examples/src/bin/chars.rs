//! The letters job.
//!
//! `cargo run --release --bin chars [-- --data TEXT]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::device::DeviceChoice;
use sardana_examples::{chars::Text, showing};

/// Trains a small transformer that predicts the next letter of a text, and says how well it predicts the last tenth of it.
#[derive(Parser)]
#[command(after_help = "Without --data it trains on the texts of this repository. RUST_LOG=info shows what happens.")]
struct Arguments {
    /// A text file of any kind
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// How often each stretch is seen
    #[arg(long, default_value_t = 10)]
    epochs: u64,
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
    let text = match &arguments.data {
        Some(file) => Text::read(file)?,
        None => Text::built_in()?,
    };
    let job = text.job(arguments.epochs)?.workers(arguments.workers).build()?;
    showing::train_on(&job, device, &["loss", "accuracy"], |spec| text.model(spec, device))?;
    Ok(())
}
