//! The digits job.
//!
//! `cargo run --release --bin digits [-- IMAGES.csv]`; `RUST_LOG=info` shows what happens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana_examples::digits::{self, Digits};
use tracing_subscriber::EnvFilter;

/// Trains a network that reads handwritten digits on two worker processes, or as many as `sardana run -n N -- digits` starts, and says how
/// well it reads.
#[derive(Parser)]
#[command(after_help = "RUST_LOG=info shows what happens.")]
struct Arguments {
    /// Other images than the built-in ones: a CSV file with 64 pixels from 0 to 16 and the digit in each line
    images: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Arguments { images } = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let job = digits::job().workers(2).build()?;
    let summary = sardana::train(&job, move |spec| match images {
        Some(path) => Digits::from_file(spec, &path),
        None => Digits::new(spec),
    })?;
    for (name, value) in &summary.results {
        println!("{name} on held-out images: {:.2} %", 100.0 * value);
    }
    println!("final state {} after {} steps", summary.hash, summary.step.get());
    Ok(())
}
