//! Fits a linear regression in a plain loop and compares it with the closed form.
//!
//! `cargo run --release --bin linear_regression [-- DATA.csv]`

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use sardana::reference;
use sardana_examples::linear_regression::{self, LinearRegression};

const NAMES: [&str; linear_regression::COEFFICIENTS] =
    ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6", "intercept"];

fn main() -> Result<()> {
    let spec = linear_regression::spec();
    let model = match std::env::args_os().nth(1).map(PathBuf::from) {
        Some(path) => LinearRegression::from_file(&spec, &path),
        None => LinearRegression::new(&spec),
    };
    let mut model = model.map_err(|error| anyhow!(error))?;
    println!(
        "job {}: {} rows in {} shards, {} steps",
        spec.name,
        spec.samples,
        spec.shards,
        spec.steps.get()
    );
    let run = reference::train(&spec, &mut model)?;

    println!("{:<10} {:>12} {:>12}", "", "descent", "closed form");
    let closed_form = model.patients().least_squares()?;
    for ((name, found), expected) in NAMES.iter().zip(model.coefficients()).zip(&closed_form) {
        println!("{name:<10} {found:>12.6} {expected:>12.6}");
    }
    for (name, value) in &run.results {
        println!("{name}: {value:.7}");
    }
    println!("final state {}", run.hash);
    Ok(())
}
