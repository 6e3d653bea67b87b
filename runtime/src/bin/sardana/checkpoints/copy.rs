//! `sardana checkpoints copy`: to another disk, or to object storage and back.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use indicatif::ProgressBar;
use sardana::checkpoints::mirror::{Belief, MirrorUrl, Sent};
use sardana::checkpoints::{Checkpoints, Copied, Directory, Listing, ManifestKey, Wanted, Which, differ, short};
use sardana::operator::{count, plain};

use super::place::{self, DirOrMirror, Remote};
use super::words::size;
use super::{More, bar, open, tell};
use crate::ending::Failure;

/// Copy checkpoints to another directory or a mirror, or from a mirror: only what is missing there, every byte compared with its hash.
///
/// What is damaged in the other directory is written anew, so that this also heals; of a mirror only with --compare. A checkpoint is there
/// whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints copy DIR /mnt/backup\n  \
    sardana checkpoints copy DIR s3://bucket/job all\n  \
    sardana checkpoints copy s3://bucket/job DIR 300\n  \
    sardana checkpoints copy HOST1 ALL all --also HOST2 --also HOST3\n\n\
    Exit codes: 0 copied, 1 it failed (what could be copied is), 2 wrong usage.")]
pub(super) struct Copy {
    /// The directory or mirror to copy from.
    #[arg(value_name = "FROM", value_parser = place::parser())]
    from: DirOrMirror,
    /// The directory or mirror to copy to; a directory is made if it is not there.
    #[arg(value_name = "TO", value_parser = place::parser())]
    to: DirOrMirror,
    /// The checkpoint: its step, its id or the beginning of that, `newest`, or `all`.
    #[arg(value_name = "STEP|ID|newest|all", default_value = "newest")]
    which: Chosen,
    /// Do not believe that an object of a mirror is whole because it is as long as it should be: read it, and write it anew if it is damaged.
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    more: More,
}

/// Which checkpoints are copied.
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
        match (&self.from, &self.to) {
            (DirOrMirror::Directory(from), DirOrMirror::Directory(to)) => self.between_directories(from, to),
            (DirOrMirror::Directory(from), DirOrMirror::Mirror(to)) => self.upload(from, to),
            (DirOrMirror::Mirror(from), DirOrMirror::Directory(to)) => self.fetch(from, to),
            (DirOrMirror::Mirror(from), DirOrMirror::Mirror(to)) => Err(Failure::Usage(format!(
                "expected a directory, found two mirrors; copy by way of one: sardana checkpoints copy {from} DIR, then copy DIR {to}"
            ))),
        }
    }

    fn between_directories(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        let also = self.more.also.iter().map(PathBuf::as_path);
        differ([from, to].into_iter().chain(also)).map_err(Failure::usage)?;
        let from = open(from, &self.more.also)?;
        let keys = self.which.keys(&from.list(), from.main().path())?;
        let to = Directory::open_or_make(to).map_err(Failure::failed)?;
        tell(&to);
        each(&keys, to.path().display(), bytes_in(&from), |key, bar| {
            let copied = from.copy(key, &to, &mut |bytes| bar.inc(bytes));
            copied.map(written).map_err(|error| error.to_string())
        })
    }

    fn upload(&self, from: &Path, to: &MirrorUrl) -> Result<(), Failure> {
        let also = self.more.also.iter().map(PathBuf::as_path);
        differ(std::iter::once(from).chain(also)).map_err(Failure::usage)?;
        // Before anything is opened: most mistakes are in the environment.
        let to = Remote::open_or_make(to)?;
        let from = Arc::new(open(from, &self.more.also)?);
        let keys = self.which.keys(&from.list(), from.main().path())?;
        let belief = if self.compare { Belief::Nothing } else { Belief::Lengths };
        each(&keys, &to.mirror, bytes_in(&from), |key, bar| {
            upload(&from, key, &to, belief, bar).map(sent)
        })
    }

    fn fetch(&self, from: &MirrorUrl, to: &Path) -> Result<(), Failure> {
        self.more.none_beside(from)?;
        let from = Remote::open(from)?;
        let listing = from.wait(from.mirror.list()).map_err(Failure::failed)?;
        let keys = self.which.keys(&listing, &from.path())?;
        let to = Directory::open_or_make(to).map_err(Failure::failed)?;
        tell(&to);
        let bytes = |key| {
            let entry = listing.entries.iter().find(|entry| entry.key == key)?;
            entry.manifest.as_ref().map(|manifest| manifest.bytes)
        };
        each(&keys, to.path().display(), bytes, |key, bar| {
            let fetched = from.wait(from.mirror.fetch(key, to.store(), |bytes| bar.inc(bytes)));
            fetched.map(written).map_err(|error| error.to_string())
        })
    }
}

/// How many bytes the state of each checkpoint has.
fn bytes_in(from: &Checkpoints) -> impl Fn(ManifestKey) -> Option<u64> {
    |key| from.show(key).ok().map(|details| details.manifest.bytes)
}

impl Chosen {
    fn keys(&self, listing: &Listing, path: &Path) -> Result<Vec<ManifestKey>, Failure> {
        match self {
            Self::All => Ok(listing.entries.iter().map(|entry| entry.key).collect()),
            Self::One(which) => {
                let found = listing.find(path, which, Wanted::State);
                found.map(|key| vec![key]).map_err(Failure::failed)
            }
        }
    }
}

/// Copies all of these checkpoints, as far as that goes: `copy` is given the key and a bar for `bytes`, and says what it has written.
fn each(
    keys: &[ManifestKey],
    to: impl Display,
    bytes: impl Fn(ManifestKey) -> Option<u64>,
    copy: impl Fn(ManifestKey, &ProgressBar) -> Result<String, String>,
) -> Result<(), Failure> {
    let mut failed = 0;
    for &key in keys {
        let bar = bar(bytes(key).unwrap_or(0));
        let copied = copy(key, &bar);
        bar.finish_and_clear();
        match copied {
            Ok(written) => println!("copied {} to {to}: {written}", short(key)),
            Err(error) => {
                eprintln!("{} was not copied: {}", short(key), plain(&error));
                failed += 1;
            }
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let all = count(keys.len() as u64, "checkpoint");
    let also = "name other directories that have them whole with --also, or copy another checkpoint";
    Err(Failure::Failed(format!("{failed} of {all} could not be copied; {also}")))
}

/// Copies a checkpoint to a mirror.
fn upload(
    from: &Arc<Checkpoints>,
    key: ManifestKey,
    to: &Remote,
    belief: Belief,
    bar: &ProgressBar,
) -> Result<Sent, String> {
    let stored = from.main().store().show(key).map_err(|error| error.to_string())?;
    let sending = to.mirror.upload(key, stored.bytes(), from, belief, |bytes| bar.inc(bytes));
    to.wait(sending).map_err(|error| error.to_string())
}

fn written(copied: Copied) -> String {
    let Copied {
        pieces,
        bytes,
        kept,
        healed,
    } = copied;
    let written = format!("{} of {} written, {kept} already there", count(pieces, "piece"), size(bytes));
    match healed {
        0 => written,
        healed => format!(
            "{written}\n  {} there were damaged, and are whole again",
            count(healed, "piece")
        ),
    }
}

fn sent(sent: Sent) -> String {
    let (objects, bytes) = (count(sent.objects, "object"), size(sent.bytes));
    format!("{objects} of {bytes} written, {} already there", sent.kept)
}
