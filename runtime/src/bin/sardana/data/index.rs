//! `sardana data index`: where the records of TFRecord files begin, found out before a job has to.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{HumanBytes, ProgressBar};
use sardana::data::formats::tfrecords::{IndexSummary, Kept, Verify, files, index_file};
use sardana::operator::{count, plain};

use super::bar;
use crate::ending::Failure;

/// Find out where each record of TFRecord files begins, and keep that beside them, so that no job waits for it.
///
/// A TFRecord file does not say where its records are: it must be walked through once. The index of train.tfrecord is train.tfrecord.index.
/// It is made anew where there is one, and by every job where there is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana data index train.tfrecord\n  \
    sardana data index records           all TFRecord files of a folder\n  \
    sardana data index train-*-of-00010 --verify\n\n\
    Exit codes: 0 every file has its index, 1 one has none (it is said why, and what to do), 2 wrong usage.")]
pub(super) struct Index {
    /// A TFRecord file, or a folder with files named *.tfrecord, *.tfrecords or name-00000-of-00010.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Read the records too, and compare their checksums. Otherwise only their lengths are, and each record when it is trained on.
    #[arg(long)]
    verify: bool,
}

impl Index {
    /// Makes the indexes, as far as that goes.
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let verify = if self.verify { Verify::Payloads } else { Verify::Lengths };
        let (mut all, mut failed) = (0_u64, 0_u64);
        for path in &self.files {
            let found = if path.is_dir() {
                files(path, None)
            } else {
                Ok(vec![path.clone()])
            };
            let found = found.unwrap_or_else(|error| {
                tell(&error.to_string());
                (all, failed) = (all + 1, failed + 1);
                Vec::new()
            });
            for file in found {
                all += 1;
                failed += u64::from(!indexed(&file, verify));
            }
        }
        if failed == 0 {
            return Ok(());
        }
        let all = count(all, "file");
        let also = "fetch what is damaged anew, give what is missing, or let this user write beside the data";
        Err(Failure::Failed(format!("{failed} of {all} could not be indexed; {also}")))
    }
}

/// Makes the index of one file, and says so. Whether it is kept.
fn indexed(file: &Path, verify: Verify) -> bool {
    let bar = bar();
    let made = index_file(file, verify, &mut progress(file, &bar));
    bar.finish_and_clear();
    match made {
        Ok(summary) => {
            println!("{}: {}", plain(&file.display().to_string()), plain(&words(&summary, verify)));
            matches!(summary.kept, Kept::Beside(_))
        }
        Err(error) => {
            tell(&error.to_string());
            false
        }
    }
}

fn progress<'a>(file: &Path, bar: &'a ProgressBar) -> impl FnMut(u64) + use<'a> {
    // What cannot be looked at is refused soon.
    bar.set_length(file.metadata().map_or(0, |metadata| metadata.len()));
    |done| bar.set_position(done)
}

fn words(summary: &IndexSummary, verify: Verify) -> String {
    let records = count(summary.records, "record");
    let verified = match verify {
        Verify::Payloads => ", all of them read and whole",
        Verify::Lengths => "",
    };
    let kept = match &summary.kept {
        Kept::Beside(at) => format!("the index is {}", at.display()),
        Kept::Not { at, reason } => format!(
            "the index cannot be kept in {}: {reason}; it is made again each time that the data are opened",
            at.display()
        ),
    };
    format!(
        "{records} in {} ({} bytes){verified}; {kept}",
        HumanBytes(summary.bytes),
        summary.bytes
    )
}

fn tell(reason: &str) {
    eprintln!("not indexed: {}", plain(reason));
}
