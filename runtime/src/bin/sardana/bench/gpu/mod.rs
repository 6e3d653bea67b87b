//! `sardana bench gpu`: how fast this machine's GPU moves bytes as a job does, beside what it could do at most.

#[cfg(feature = "cuda")]
mod backward;
#[cfg(feature = "cuda")]
mod error;
#[cfg(feature = "cuda")]
mod exposed;
#[cfg(feature = "cuda")]
mod measured;
#[cfg(feature = "cuda")]
mod nccl;
#[cfg(feature = "nccl")]
pub(super) mod rank;
#[cfg(feature = "nccl")]
mod ranks;
#[cfg(feature = "cuda")]
mod ring;
#[cfg(feature = "cuda")]
mod row;
#[cfg(feature = "cuda")]
mod snapshot;
#[cfg(feature = "cuda")]
mod worker;

use clap::Args;

use super::sizes;
use crate::ending::Failure;

/// Measure the kernels of this machine's first GPU, copies between it and the host, and what of a step a job makes of them
///
/// Gradients of SIZE bytes of f32 are packed from many tensors, summed in order, divided, squared for a norm, applied by AdamW and hashed, each by the kernel that
/// jobs use, and timed by the GPU's own clock: the median of five times. Each counts the bytes that it reads and writes, and is compared with a copy
/// within the GPU's memory, measured in the same run, which counts both, too. Copies up and down are from and to pinned memory of the host. Then, each the
/// median of three, where workers are threads of this program, over links as processes of a host have them:
///
///   ring of two workers     a sum of two workers that share the GPU, in which their gradients lie: the running sum comes down at the first, passes
///                           the GPU at the second, and comes up at the first, until both have it there for an update; beside copies of the same
///                           bytes, one after the other. Processes take turns on a GPU that they share (without NVIDIA's MPS), threads do not: that of
///                           two processes is what `sardana bench all-reduce --device cuda` measures
///   backward pass           of those two, at once: 64 samples each through dense layers, from the last one on, whose gradients have SIZE bytes in all
///   exposed behind it       what summing costs a step: from the end of the last kernel of the backward pass, by the GPU's clock, until the sum is where
///                           the update takes it, while parts of the sum were passed on as soon as their tensors were computed; the longer of both
///                           workers', beside copies up and down of the same bytes
///   step of one worker      that trains alone: backward pass, sum, AdamW, by the host's clock
///   stall by a snapshot     by how much its step takes longer at whose beginning another thread begins to copy parameters and AdamW's moments to the
///                           host, as for a checkpoint: gradient and sum are computed meanwhile, and the update waits until all of it is copied. Of N
///                           workers each copies two Nths of the state; here one copies all. It is neither hashed nor written to a disk, which a job
///                           does beside its steps
///   snapshot, beside a step that copy, beside one to pinned memory: the host copies what comes from there twice
///   NCCL abort              how long `ncclCommAbort` takes while the GPU waits in a sum for a process that was killed; with one GPU there is one
///                           rank, which waits for no other
///   NCCL next generation    a communicator of those that are left, with its id, until all are ready
///
/// Rows of NCCL need the feature `nccl` of the program, and NCCL; where one is missing the row says so, and all else is measured.
/// The program needs the feature `cuda`, and builds without CUDA.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    sardana bench gpu\n  \
    sardana bench gpu --size 256MiB --json | jq '.rows[] | [.what, .of_limit // .times // .missing]'"
)]
pub(super) struct Gpu {
    /// Bytes of a gradient; the GPU has room for six, and the host for five.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::size)]
    size: u64,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// Seconds of a copy of so many bytes from pinned memory to the GPU of this number, and of one back.
///
/// # Errors
/// When there is none, or the program was built without.
pub(super) fn pinned_copies(ordinal: usize, bytes: u64) -> Result<[f64; 2], Failure> {
    #[cfg(feature = "cuda")]
    return measured::pinned_copies(ordinal, bytes).map_err(Failure::failed);
    #[cfg(not(feature = "cuda"))]
    Err(Failure::Failed(format!(
        "expected to copy {bytes} bytes to GPU {ordinal}, found a program without `cuda`"
    )))
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
