//! `sardana bench gpu`: how fast this machine's GPU moves bytes as a job does, beside what it could do at most.

#[cfg(feature = "cuda")]
mod measured;
#[cfg(feature = "cuda")]
mod ring;
#[cfg(feature = "cuda")]
mod row;

use clap::Args;

use super::sizes;
use crate::ending::Failure;

/// Measure the kernels of this machine's first GPU, and copies between it and the host
///
/// Gradients of SIZE bytes of f32 are packed from many tensors, summed in order, divided, applied by AdamW and hashed, each by the kernel that
/// jobs use, and timed by the GPU's own clock: the median of five times. Each counts the bytes that it reads and writes, and is compared with a copy
/// within the GPU's memory, measured in the same run, which counts both, too. Copies up and down are from and to pinned memory of the host. The
/// last row is a step of two workers that share the GPU, in which their gradients lie: the running sum comes down at the first, passes the GPU at the
/// second, and comes up at the first, until both have it there for an update. It is compared with copies of the same bytes, one after the other.
///
/// The program needs the feature `cuda`, and builds without CUDA.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    sardana bench gpu\n  \
    sardana bench gpu --size 256MiB --json | jq '.rows[] | [.what, .of_limit]'"
)]
pub(super) struct Gpu {
    /// Bytes of a gradient; the GPU has room for five, and the host for four.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::size)]
    size: u64,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Gpu {
    #[cfg(feature = "cuda")]
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        use super::progress::Progress;
        use row::{HEAD, Row};

        let progress = Progress::new();
        let machine = measured::Machine::new(self.size).map_err(Failure::failed)?;
        let (title, mut rows) = (machine.title(), Vec::new());
        if !self.json {
            progress.print(&format!("{title}, gradients of {}\n{HEAD}", sizes::words(self.size)));
        }
        let mut took = |row: Row| {
            if !self.json {
                progress.print(&row.line());
            }
            rows.push(row);
        };
        machine
            .measure(|what| progress.say(what), &mut took)
            .map_err(Failure::failed)?;
        drop(progress);
        if self.json {
            let rows: Vec<_> = rows.iter().map(Row::json).collect();
            println!("{}", serde_json::json!({ "device": title, "size": self.size, "rows": rows }));
        }
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let Self { size: _, json: _ } = self;
        Err(Failure::Failed(
            "expected a program that can compute on a GPU, found one that was built without: build it with \
             `cargo build --release -p sardana --bin sardana --features cuda`, which needs no CUDA"
                .to_owned(),
        ))
    }
}
