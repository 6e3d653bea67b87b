//! `sardana checkpoints`: what jobs have saved, looked after while none of them runs here.

mod copy;
mod export;
mod import;
mod list;
mod place;
mod prune;
mod show;
mod verify;
mod words;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sardana::checkpoints::mirror::MirrorUrl;
use sardana::checkpoints::{self, Directory, Finding, Listing};

use crate::ending::Failure;
use place::{DirOrMirror, Remote};

/// Look after checkpoints: list, verify, prune and copy them, and exchange them with other programs.
///
/// DIR is what a job was given with --checkpoint-dir. No job may have it open meanwhile. Where it says DIR|URL, it may also be what a job
/// was given with --mirror, at any time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints list DIR\n  \
    sardana checkpoints verify DIR\n  \
    sardana checkpoints copy s3://bucket/job DIR\n  \
    sardana checkpoints export DIR newest --out weights.safetensors\n\n\
    Exit codes: 0 done, 1 it failed or something is wrong, 2 wrong usage.")]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Verify(verify::Verify),
    Export(export::Export),
    Import(import::Import),
    Prune(prune::Prune),
    Copy(copy::Copy),
}

impl Checkpoints {
    /// Whether it does nothing else than what it prints.
    pub(crate) const fn is_for_its_words(&self) -> bool {
        match self.action {
            Action::List(_) | Action::Show(_) | Action::Verify(_) => true,
            Action::Export(_) | Action::Import(_) | Action::Prune(_) | Action::Copy(_) => false,
        }
    }

    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        match self.action {
            Action::List(list) => list.carry_out(),
            Action::Show(show) => show.carry_out(),
            Action::Verify(verify) => verify.carry_out(),
            Action::Export(export) => export.carry_out(),
            Action::Import(import) => import.carry_out(),
            Action::Prune(prune) => prune.carry_out(),
            Action::Copy(copy) => copy.carry_out(),
        }
    }
}

/// Which directory, and which others may have what is missing there.
#[derive(Debug, Args)]
struct Source {
    /// The directory of checkpoints, or the mirror.
    #[arg(value_name = "DIR|URL", value_parser = place::parser())]
    place: DirOrMirror,
    #[command(flatten)]
    more: More,
}

/// Directories that may have what is missing in another one.
#[derive(Debug, Args)]
struct More {
    /// Another directory of the same job's checkpoints, that may have pieces which are missing or damaged in the first: a copy of that of
    /// another host. May be given several times.
    #[arg(long, value_name = "DIR")]
    also: Vec<PathBuf>,
}

/// What is there, to be looked at.
enum Opened {
    Here(checkpoints::Checkpoints),
    Remote(Remote),
}

impl Source {
    fn open(&self) -> Result<Opened, Failure> {
        let opened = self.open_quietly()?;
        if let Opened::Here(checkpoints) = &opened {
            checkpoints.directories().for_each(tell);
        }
        Ok(opened)
    }

    /// The same, without a word of what was noticed.
    fn open_quietly(&self) -> Result<Opened, Failure> {
        match &self.place {
            DirOrMirror::Directory(dir) => {
                let opened = checkpoints::Checkpoints::open(dir, &self.more.also);
                opened.map(Opened::Here).map_err(Failure::failed)
            }
            DirOrMirror::Mirror(url) => {
                self.more.none_beside(url)?;
                Remote::open(url).map(Opened::Remote)
            }
        }
    }

    /// The directory that it is.
    fn open_directory(&self) -> Result<checkpoints::Checkpoints, Failure> {
        open(self.place.directory()?, &self.more.also)
    }
}

impl More {
    /// A mirror has everything: no other directory may be given.
    fn none_beside(&self, url: &MirrorUrl) -> Result<(), Failure> {
        if self.also.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "expected no --also with the mirror {url}, found some: its checkpoints are whole without others"
        )))
    }
}

impl Opened {
    fn list(&self) -> Result<Listing, Failure> {
        match self {
            Self::Here(checkpoints) => Ok(checkpoints.list()),
            Self::Remote(remote) => remote.wait(remote.mirror.list()).map_err(Failure::failed),
        }
    }
}

fn open(dir: &std::path::Path, also: &[PathBuf]) -> Result<checkpoints::Checkpoints, Failure> {
    let opened = checkpoints::Checkpoints::open(dir, also).map_err(Failure::failed)?;
    opened.directories().for_each(tell);
    Ok(opened)
}

/// Says what was noticed when a directory was opened, but for what is said of each checkpoint in any case.
fn tell(directory: &Directory) {
    for finding in directory.findings() {
        if !matches!(finding, Finding::Manifest { .. }) {
            eprintln!("note: {finding}");
        }
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} to go");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
