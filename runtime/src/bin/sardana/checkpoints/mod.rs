//! `sardana checkpoints`: what jobs have saved, looked after while none of them runs here.

mod copy;
mod export;
mod import;
mod list;
mod prune;
mod show;
mod verify;
mod words;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sardana::checkpoints::{self, Directory, Finding};

use crate::ending::Failure;

/// Look after checkpoints: list, verify, prune and copy them, and exchange them with other programs.
///
/// DIR is what a job was given with --checkpoint-dir. No job may have it open meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints list DIR\n  \
    sardana checkpoints verify DIR\n  \
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
    /// The directory of checkpoints.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
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

impl Source {
    fn open(&self) -> Result<checkpoints::Checkpoints, Failure> {
        open(&self.dir, &self.more.also)
    }

    /// The same, without a word of what was noticed.
    fn open_quietly(&self) -> Result<checkpoints::Checkpoints, Failure> {
        checkpoints::Checkpoints::open(&self.dir, &self.more.also).map_err(Failure::failed)
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
