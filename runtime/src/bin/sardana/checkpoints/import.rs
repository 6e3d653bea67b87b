//! `sardana checkpoints import`: a state of another program becomes a checkpoint.

use std::path::PathBuf;

use clap::Args;
use sardana::Step;
use sardana::checkpoints::{Checkpoints, Imported, Like, Wanted, Which, differ, short};

use super::{open, tell};
use crate::ending::Failure;

/// Make a checkpoint of a safetensors file, which a job then goes on from.
///
/// A file of tensors does not say what job it is a state of. That is taken from a checkpoint that it is like, and whose tensors it must have
/// exactly: the same names, dtypes and shapes. To copy a checkpoint as it is, use `copy`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints import DIR weights.safetensors --like newest --step 301\n  \
    sardana checkpoints import NEW weights.safetensors --like 300 --like-dir DIR\n\n\
    Exit codes: 0 imported, 1 it failed, 2 wrong usage.")]
pub(super) struct Import {
    /// The directory of checkpoints; made if it is not there and --like-dir is given.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The checkpoint that it is like: its step, its id or the beginning of it, or `newest`.
    #[arg(long, value_name = "STEP|ID|newest")]
    like: Which,
    /// Where that one is, if not in DIR.
    #[arg(long, value_name = "DIR")]
    like_dir: Option<PathBuf>,
    /// The step of the state, if it is not the one that the file says.
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,
}

impl Import {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let step = self.step.map(Step::new);
        let find = |source: &Checkpoints| source.find(&self.like, Wanted::Manifest).map_err(Failure::failed);
        let imported = match &self.like_dir {
            None => {
                let checkpoints = open(&self.dir, &[])?;
                let like = find(&checkpoints)?;
                checkpoints.import(&self.file, like, step)
            }
            Some(other) => {
                differ([self.dir.as_path(), other]).map_err(Failure::usage)?;
                let source = &open(other, &[])?;
                let like = Like {
                    source,
                    key: find(source)?,
                };
                let into = Checkpoints::open_or_make(&self.dir).map_err(Failure::failed)?;
                tell(into.main());
                into.main().import(&self.file, like, step)
            }
        };
        let imported = imported.map_err(Failure::failed)?;
        println!(
            "imported {} as {}: {}",
            self.file.display(),
            short(imported.key),
            state(&imported)
        );
        Ok(())
    }
}

fn state(imported: &Imported) -> String {
    let state = imported.state.to_string();
    match &imported.exported {
        Some(exported) if *exported == state => format!("state {state}, as it was exported"),
        Some(_) => format!("state {state}, another one than was exported"),
        None => format!("state {state}"),
    }
}
