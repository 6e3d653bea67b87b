//! The digits job.
//!
//! `cargo run --release --bin digits [-- IMAGES.csv]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::device::DeviceChoice;
use sardana_examples::{digits::Digits, showing};

/// Trains a network that reads handwritten digits on two worker processes, or as many as `sardana run -n N -- digits` starts, and says how
/// well it reads.
#[derive(Parser)]
#[command(after_help = "RUST_LOG=info shows what happens.")]
struct Arguments {
    /// Other images than the built-in ones: a CSV file with 64 pixels from 0 to 16 and the digit in each line
    images: Option<PathBuf>,
    /// What to compute on: `cuda` is a GPU for each worker, for which this program needs its feature `candle-cuda`; `auto` is that where it can be
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
}

fn main() -> Result<()> {
    let Arguments { images, device } = Arguments::parse();
    showing::logs();
    let device = DeviceChoice::said(device)?;
    // Before data are read for it.
    device.require()?;
    let digits = match images {
        Some(path) => Digits::read(&path)?,
        None => Digits::built_in(),
    };
    let job = digits.job()?.workers(2).build()?;
    showing::train_on(&job, device, &["loss", "accuracy"], |spec| digits.model(spec, device))?;
    Ok(())
}
