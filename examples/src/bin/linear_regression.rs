//! Fits a linear regression on worker processes and compares it with the closed form.
//!
//! `cargo run --release --bin linear_regression [-- DATA.csv]`

use std::path::PathBuf;

use anyhow::Result;
use sardana_examples::linear_regression::{self, LinearRegression};

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let job = linear_regression::job().workers(2).build()?;
    let summary = sardana::train(&job, move |spec| match path {
        Some(path) => LinearRegression::from_file(spec, &path),
        None => LinearRegression::new(spec),
    })?;
    for (name, value) in &summary.results {
        println!("{name}: {value:.7}");
    }
    println!("final state {} after {} steps", summary.hash, summary.step.get());
    Ok(())
}
