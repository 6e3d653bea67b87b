//! `sardana data`: looks after data sets before anybody trains on them. What they are made of is known by the formats themselves.

mod check;
mod index;
mod json;
mod read;
mod recognise;
mod survey;
mod table_guess;
mod text;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::ending::Failure;

/// Look after data: what is there, whether all of it can be read, and what a job will call it.
///
/// No job need run. What is found is what a worker of a job would find on this host.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana data check mnist             what it is, and whether every sample can be read\n  \
    sardana data index train.tfrecord    so that no job waits for it\n\n\
    Exit codes: 0 done, 1 it failed or something is wrong, 2 wrong usage.")]
pub(crate) struct Data {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(check::Check),
    Index(index::Index),
}

impl Data {
    /// Whether it does nothing else than what it prints.
    pub(crate) const fn is_for_its_words(&self) -> bool {
        match self.action {
            Action::Check(_) => true,
            Action::Index(_) => false,
        }
    }

    /// Does what was asked.
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        match self.action {
            Action::Check(check) => check.carry_out(),
            Action::Index(index) => index.carry_out(),
        }
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} to go");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
