//! Trains the digits network on worker processes and says how well it reads.
//!
//! `cargo run --release --bin digits [-- IMAGES.csv]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use sardana_examples::digits::{self, Digits};
use tracing_subscriber::EnvFilter;

fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let job = digits::job().workers(2).build()?;
    let summary = sardana::train(&job, move |spec| match path {
        Some(path) => Digits::from_file(spec, &path),
        None => Digits::new(spec),
    })?;
    for (name, value) in &summary.results {
        println!("{name} on held-out images: {:.2} %", 100.0 * value);
    }
    println!("final state {} after {} steps", summary.hash, summary.step.get());
    Ok(())
}
