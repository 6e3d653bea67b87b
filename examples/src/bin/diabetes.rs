//! The diabetes job.
//!
//! `cargo run --release --bin diabetes [-- --data FILE.csv]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::device::DeviceChoice;
use sardana_examples::diabetes::Patients;
use sardana_examples::showing;

/// Trains a linear layer on 422 patients, and says how well it explains 20 others: least squares has a mean squared error of 2004.51869 there.
#[derive(Parser)]
#[command(after_help = "RUST_LOG=info shows what happens.")]
struct Arguments {
    /// Other data than the built-in ones: a CSV file with names in its first line, and some variables and the target in each after it
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
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
    let patients = match arguments.data {
        Some(file) => Patients::read(&file)?,
        None => Patients::built_in()?,
    };
    let job = patients.job()?.workers(arguments.workers).build()?;
    showing::train_on(&job, device, &["loss", "absolute"], |spec| patients.model(spec, device))?;
    Ok(())
}
