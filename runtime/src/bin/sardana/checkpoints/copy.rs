//! `sardana checkpoints copy`: to another disk.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use sardana::checkpoints::{Checkpoints, Directory, ManifestKey, Wanted, Which, differ};

use super::words::{count, plain, short, size};
use super::{More, bar, open, tell};
use crate::ending::Failure;

/// Copy checkpoints to another directory: only what is missing there, every byte compared with its hash.
///
/// What is damaged in the other directory is written anew, so that this also heals. A checkpoint is there whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints copy DIR /mnt/backup\n  \
    sardana checkpoints copy HOST1 ALL all --also HOST2 --also HOST3\n\n\
    Exit codes: 0 copied, 1 it failed (what could be copied is), 2 wrong usage.")]
pub(super) struct Copy {
    /// The directory to copy from.
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The directory to copy to; made if it is not there.
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Its step, its id or the beginning of it, `newest`, or `all`.
    #[arg(value_name = "STEP|ID|newest|all", default_value = "newest")]
    which: Chosen,
    #[command(flatten)]
    more: More,
}

/// Which are copied.
#[derive(Debug, Clone)]
enum Chosen {
    All,
    One(Which),
}

impl FromStr for Chosen {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::One),
        }
    }
}

impl Copy {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let also = self.more.also.iter().map(PathBuf::as_path);
        differ([self.from.as_path(), &self.to].into_iter().chain(also)).map_err(Failure::usage)?;
        let from = open(&self.from, &self.more.also)?;
        let keys = match &self.which {
            Chosen::All => from.list().entries.iter().map(|entry| entry.key).collect(),
            Chosen::One(which) => vec![from.find(which, Wanted::State).map_err(Failure::failed)?],
        };
        let to = Directory::open_or_make(&self.to).map_err(Failure::failed)?;
        tell(&to);
        let failed = keys.iter().filter(|&&key| !copy(&from, key, &to)).count();
        if failed == 0 {
            Ok(())
        } else {
            let all = count(keys.len() as u64, "checkpoint");
            let also = "name other directories that have them whole with --also, or copy another checkpoint";
            Err(Failure::Failed(format!("{failed} of {all} could not be copied; {also}")))
        }
    }
}

/// Copies one, and says how that went.
fn copy(from: &Checkpoints, key: ManifestKey, to: &Directory) -> bool {
    let bar = bar(from.show(key).map_or(0, |details| details.manifest.bytes));
    let copied = from.copy(key, to, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    match &copied {
        Ok(copied) => {
            println!(
                "copied {} to {}: {} of {} written, {} already there",
                short(key),
                to.path().display(),
                count(copied.pieces, "piece"),
                size(copied.bytes),
                copied.kept
            );
            if copied.healed > 0 {
                println!("  {} there were damaged, and are whole again", count(copied.healed, "piece"));
            }
        }
        Err(error) => eprintln!("{} was not copied: {}", short(key), plain(&error.to_string())),
    }
    copied.is_ok()
}
