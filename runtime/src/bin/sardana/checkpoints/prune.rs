//! `sardana checkpoints prune`: what is old goes.

use clap::Args;
use sardana::checkpoints::mirror::Expiry;
use sardana::checkpoints::{Keep, ManifestKey, Pruning, Wanted, Which, short};
use sardana::operator::{count, plain};

use super::place::Remote;
use super::words::size;
use super::{Opened, Source};
use crate::ending::Failure;

/// Delete old checkpoints for good, and give their room back.
///
/// Only those count that are complete in the directories given, and the newest of them, which is read for it, is never deleted. Only DIR is
/// changed. Copies of a deleted one that come back later are known as deleted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints prune DIR --keep last=3,every=1000 --dry-run\n  \
    sardana checkpoints prune HOST1 --keep last=3 --also HOST2 --also HOST3\n  \
    sardana checkpoints prune DIR --delete 4f1c22ab90de\n\n\
    Exit codes: 0 deleted, or nothing to delete, 1 it failed, 2 wrong usage.")]
pub(super) struct Prune {
    #[command(flatten)]
    source: Source,
    /// Which checkpoints are kept: the newest N, and besides the first at or after each multiple of STEPS.
    #[arg(long, value_name = "last=N[,every=STEPS]", required_unless_present = "delete")]
    keep: Option<Keep>,
    /// Delete this checkpoint, whole or not: its step, or the beginning of its id. May be given several times.
    #[arg(long, value_name = "STEP|ID")]
    delete: Vec<Which>,
    /// Only say what would be deleted.
    #[arg(long)]
    dry_run: bool,
}

impl Prune {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let checkpoints = match self.source.open()? {
            Opened::Here(checkpoints) => checkpoints,
            Opened::Remote(remote) => return self.carry_out_remotely(&remote),
        };
        let named = self
            .delete
            .iter()
            .map(|which| checkpoints.find(which, Wanted::Manifest).map_err(Failure::failed));
        let named: Vec<ManifestKey> = named.collect::<Result<_, _>>()?;
        let pruning = checkpoints.prunable(self.keep, &named).map_err(Failure::failed)?;
        tell(&pruning);
        if self.dry_run {
            tell_what_would_be(&pruning);
            return Ok(());
        }
        let pruned = checkpoints.prune(&pruning.delete).map_err(Failure::failed)?;
        pruned.deleted.iter().for_each(|key| println!("deleted {}", short(*key)));
        println!(
            "deleted {}; {} let go of, {} given back to the disk",
            count(pruned.deleted.len() as u64, "checkpoint"),
            count(pruned.collected.pieces, "piece"),
            size(pruned.collected.freed_bytes)
        );
        if pruned.collected.pieces > 0 && pruned.collected.freed_bytes == 0 {
            println!("the files that they were in are given back once more of each is needed no longer");
        }
        Ok(())
    }

    fn carry_out_remotely(&self, remote: &Remote) -> Result<(), Failure> {
        let listing = remote.wait(remote.mirror.list()).map_err(Failure::failed)?;
        let path = remote.path();
        let named = self.delete.iter().map(|which| listing.find(&path, which, Wanted::Manifest));
        let expiry = Expiry {
            keep: self.keep,
            only: None,
            named: named.collect::<Result<_, _>>().map_err(Failure::failed)?,
        };
        let pruning = remote.wait(remote.mirror.prunable(&expiry)).map_err(Failure::failed)?;
        tell(&pruning);
        if self.dry_run {
            tell_what_would_be(&pruning);
            return Ok(());
        }
        let freed = remote.wait(remote.mirror.prune(&expiry)).map_err(Failure::failed)?;
        freed.deleted.iter().for_each(|key| println!("deleted {}", short(*key)));
        println!(
            "deleted {}; {} of {} removed",
            count(freed.deleted.len() as u64, "checkpoint"),
            count(freed.objects, "object"),
            size(freed.bytes)
        );
        let Some((key, reason)) = freed.unreadable else {
            return Ok(());
        };
        Err(Failure::Failed(format!(
            "what {} needs is not known, so no objects were removed: {}; delete it too (--delete {})",
            short(key),
            plain(&reason),
            key.id
        )))
    }
}

fn tell(pruning: &Pruning) {
    for (key, reason) in &pruning.incomplete {
        println!("{} is left alone, since it is not complete: {}", short(*key), plain(reason));
    }
}

fn tell_what_would_be(pruning: &Pruning) {
    pruning.delete.iter().for_each(|key| println!("would delete {}", short(*key)));
    println!(
        "would delete {}, which alone need {}",
        count(pruning.delete.len() as u64, "checkpoint"),
        size(pruning.bytes)
    );
}
