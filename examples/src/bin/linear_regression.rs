//! The linear regression job.
//!
//! `cargo run --release --bin linear_regression [-- DATA.csv]`

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::device::DeviceChoice;
use sardana_examples::linear_regression::{self, LinearRegression};

/// Fits a linear regression on two worker processes, or as many as `sardana run -n N -- linear_regression` starts, and compares it with the
/// closed form.
#[derive(Parser)]
struct Arguments {
    /// Other data than the built-in ones: a CSV file with names in its first line, and 10 features and the target in each after it
    data: Option<PathBuf>,
    /// What to compute on: `auto` is `cpu`, and `cuda` is refused, since this model is plain Rust
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
}

fn main() -> Result<()> {
    let Arguments { data, device } = Arguments::parse();
    let device = DeviceChoice::said(device)?.on_processors()?;
    let job = linear_regression::job().workers(2).device(device).build()?;
    let summary = sardana::train(&job, move |spec| match data {
        Some(path) => LinearRegression::from_file(spec, &path),
        None => LinearRegression::new(spec),
    })?;
    for (name, value) in &summary.results {
        println!("{name}: {value:.7}");
    }
    println!("final state {} after {} steps", summary.hash, summary.step.get());
    Ok(())
}
