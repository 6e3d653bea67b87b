//! `sardana data check`: what is there, whether all of it can be read, and what a job will call it.

use std::path::PathBuf;

use clap::Args;
use sardana::operator::plain;

use super::read::Reading;
use super::survey::{Found, Survey};
use super::{bar, json, text};
use crate::ending::Failure;

/// As many samples that are wrong are told of each data set with --all: enough to see what has happened to it.
const MOST_WRONG: usize = 20;

/// Say what data are at a path, read every sample, and print the fingerprint by which workers of a job compare their data.
///
/// What is found out by itself: MNIST and what is kept in its files (idx, plain or .gz), CIFAR-10 (binary version), pictures in a folder for
/// each class (JPEG, PNG), TFRecords, tables (CSV), arrays of numpy (npy), tensors (safetensors). Where a folder has several, all of them are
/// read. TFRecord files get their index beside them, as they do when a job opens them.
///
/// A worker whose fingerprint is another is refused by its job. Run this on two hosts: the first part whose hash differs is what differs.
/// A program that changes or selects samples, or chooses columns or tensors, adds parts of its own after those of the files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana data check mnist\n  \
    sardana data check flowers --all     every picture that cannot be decoded, not only the first\n  \
    sardana data check train.csv test.csv\n  \
    sardana data check records --json | jq -r '.paths[0].data_sets[0].fingerprint.hash'\n\n\
    Exit codes: 0 all is well, 1 something is damaged, missing or not recognised (it is said what, where, and what to do), 2 wrong usage.")]
pub(super) struct Check {
    /// A folder with data, or one file of them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Go on after the first sample of a data set that is damaged, and tell up to 20. Where a format cannot be read on after it, it is the
    /// only one.
    #[arg(long)]
    all: bool,
    /// Print it as JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Reads the data, and says what they are.
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let surveys: Vec<_> = self.paths.iter().map(|path| self.survey(path)).collect();
        if self.json {
            println!("{}", json::json(&surveys));
        } else {
            print!("{}", text::text(&surveys));
        }
        verdict(&surveys)
    }

    fn survey(&self, path: &std::path::Path) -> Survey {
        let bar = bar();
        let mut reading = Reading {
            most_wrong: if self.all { MOST_WRONG } else { 1 },
            progress: &mut |progress| {
                bar.set_length(progress.total_bytes);
                bar.set_position(progress.done_bytes);
            },
        };
        let survey = Survey::of(path, &mut reading);
        bar.finish_and_clear();
        survey
    }
}

/// Whether all is well, or what to do.
fn verdict(surveys: &[Survey]) -> Result<(), Failure> {
    let mut reasons: Vec<_> = surveys.iter().filter_map(unread).collect();
    let sets = || surveys.iter().flat_map(Survey::sets);
    let bad = sets().filter(|set| !set.is_well()).count();
    if bad > 0 {
        let all = match sets().count() {
            1 => "the data set is".to_owned(),
            all => format!("{bad} of {all} data sets are"),
        };
        reasons.push(format!(
            "{all} not well; fetch what is damaged or missing anew, and check again"
        ));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(reasons.join("\n")))
}

/// Why there is no data set at a path.
fn unread(survey: &Survey) -> Option<String> {
    let reason = match &survey.found {
        Found::Sets(_) => return None,
        Found::Nothing(nothing) => format!("{}: no data of a known format: {nothing}", survey.path.display()),
        Found::Refused(error) => format!("{error}; give the path of a data set, or the permission to read it"),
    };
    Some(plain(&reason))
}
