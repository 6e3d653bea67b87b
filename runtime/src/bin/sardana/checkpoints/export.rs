//! `sardana checkpoints export`: a state for other programs.

use std::path::PathBuf;

use clap::Args;
use sardana::checkpoints::{Wanted, Which, short};
use sardana::operator::count;

use super::words::size;
use super::{Source, bar};
use crate::ending::Failure;

/// Write the state of a checkpoint to a safetensors file, which PyTorch, JAX and others read.
///
/// The file tells the step, the job and the state's hash in its metadata (sardana.step, sardana.job, sardana.state). It is there whole or
/// not at all, and takes little memory to write, however large the state.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints export DIR newest --out weights.safetensors\n  \
    sardana checkpoints export DIR 300 --out s300.safetensors --also COPY\n\n\
    Exit codes: 0 exported, 1 it failed, 2 wrong usage.")]
pub(super) struct Export {
    #[command(flatten)]
    source: Source,
    /// The checkpoint: its step, its id or the beginning of that, or `newest`.
    #[arg(value_name = "STEP|ID|newest")]
    which: Which,
    /// The file, which must not be there yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Export {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let checkpoints = self.source.open_directory()?;
        let key = checkpoints.find(&self.which, Wanted::State).map_err(Failure::failed)?;
        let details = checkpoints.show(key).map_err(Failure::failed)?;
        let bar = bar(details.manifest.bytes);
        let exported = checkpoints.export(key, &self.out, &mut |bytes| bar.inc(bytes));
        bar.finish_and_clear();
        let exported = exported.map_err(|error| Failure::Failed(format!("{} was not exported: {error}", short(key))))?;
        println!(
            "exported {} to {}: {}, {}, state {}",
            short(key),
            self.out.display(),
            count(exported.tensors as u64, "tensor"),
            size(exported.bytes),
            exported.state
        );
        Ok(())
    }
}
