//! A multi-layer perceptron on MNIST, on GPUs or processors.
//!
//! `cargo run --release --features cuda --bin cuda_mlp [-- --data DIR --device cuda]`; `RUST_LOG=info` shows what happens. Without the feature it
//! computes on processors. With the feature `nccl` in its place and `--nccl` GPUs sum gradients by NCCL.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sardana::Order;
use sardana::device::DeviceChoice;
use sardana_examples::cuda_mlp::{self, Sums};
use sardana_examples::{mnist::Data, showing};

/// Trains a multi-layer perceptron that reads handwritten digits by Sardana's kernels alone, on GPUs or processors: the final state has the same bits.
#[derive(Parser)]
#[command(
    after_help = "Without --data it trains on 1,437 digits that come with this program. RUST_LOG=info shows what happens."
)]
struct Arguments {
    /// MNIST's four files, packed (.gz) or not; or files of another set in this form, such as Fashion-MNIST
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What to compute on: `cuda` is a GPU for each worker, `auto` that if there are any
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
    /// Sums gradients over GPUs by NCCL, in fast order: the final state then depends on the workers
    #[cfg(feature = "nccl")]
    #[arg(long)]
    nccl: bool,
    /// How large the hidden layers are
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "128,64", value_parser = clap::value_parser!(u32).range(1..=65536))]
    hidden: Vec<u32>,
    /// How often each image is seen: 4 times, or 30 times without --data
    #[arg(long)]
    epochs: Option<u64>,
    /// Ends with exit code 1 if it reads a smaller part than this of the held-out images, such as 0.95
    #[arg(long, value_name = "PART")]
    at_least: Option<f64>,
    /// How many worker processes, unless `sardana run -n` says so
    #[arg(long, short = 'n', default_value_t = 2)]
    workers: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    showing::logs();
    let data = match &arguments.data {
        Some(folder) => Data::in_folder(folder),
        None => Data::from_digits()?,
    };
    let device = DeviceChoice::said(arguments.device)?;
    let epochs = arguments.epochs.unwrap_or(if arguments.data.is_some() { 4 } else { 30 });
    #[cfg(feature = "nccl")]
    let nccl = arguments.nccl;
    #[cfg(not(feature = "nccl"))]
    let nccl = false;
    let (order, sums) = if nccl {
        (Order::Fast, Sums::WhereTheyLie)
    } else {
        (Order::Exact, Sums::ByLinks)
    };
    let job = cuda_mlp::job(&data, epochs)?
        .order(order)
        .workers(arguments.workers)
        .build()?;
    let hidden: Vec<usize> = arguments.hidden.iter().map(|&size| size as usize).collect();
    let summary = showing::train_on(&job, device, &["loss", "accuracy"], |spec| {
        cuda_mlp::fit(spec, &data, &hidden, device, sums)
    })?;
    showing::check_accuracy(&summary, arguments.at_least)
}
