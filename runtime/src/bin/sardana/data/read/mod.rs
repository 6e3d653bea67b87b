//! Reads every sample of a data set. What is wrong is collected, not printed.

mod arrays;
mod images;
mod records;
mod table;

use std::fmt;
use std::fs;
use std::path::Path;

use sardana::data::{DataError, Dataset, SampleRandom};

use super::recognise::Candidate;
use super::survey::{DataSet, Format};

/// How data are read.
pub(super) struct Reading<'a> {
    /// After so many samples that are wrong, a data set is not read on.
    pub(super) most_wrong: usize,
    /// Is told how much of the present data set has been read.
    pub(super) progress: &'a mut dyn FnMut(Progress),
}

/// How much of a data set has been read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Bytes so far.
    pub(super) done_bytes: u64,
    /// Bytes of all of it.
    pub(super) total_bytes: u64,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most_wrong, progress: _ } = self;
        f.debug_struct("Reading")
            .field("most_wrong", most_wrong)
            .finish_non_exhaustive()
    }
}

/// Reads all of `data`.
pub(super) fn all(data: &Candidate, reading: &mut Reading<'_>) -> DataSet {
    let Candidate { format, at } = data;
    let mut set = DataSet::new(*format, at);
    let read = match *format {
        Format::Mnist(part) => images::mnist(part, &mut set, reading),
        Format::Cifar10(part) => images::cifar10(part, &mut set, reading),
        Format::ImageFolder => images::folder(&mut set, reading),
        Format::TfRecords => records::records(&mut set, reading),
        Format::Csv => table::csv(&mut set, reading),
        Format::Npy => arrays::npy(&mut set, reading),
        Format::Safetensors => arrays::safetensors(&mut set, reading),
    };
    set.wrong.extend(read.err());
    set
}

impl Reading<'_> {
    /// Gives each sample of `data` to `see`, and what it is called to `set`.
    ///
    /// # Errors
    /// When the fingerprint cannot be made. Samples that cannot be read are counted in `set`.
    fn each<D: Dataset>(&mut self, data: &D, set: &mut DataSet, mut see: impl FnMut(D::Item)) -> Result<(), DataError> {
        let (samples, bytes) = (data.len(), set.bytes.unwrap_or(0));
        // No transform draws from it.
        let random = SampleRandom::held_out(0, 0);
        set.samples = Some(samples);
        for index in 0..samples {
            match data.get(index, &random) {
                Ok(item) => {
                    see(item);
                    set.read += 1;
                }
                Err(error) => set.wrong.push(error),
            }
            if set.wrong.len() >= self.most_wrong {
                break;
            }
            self.tell(share(bytes, index + 1, samples), bytes);
        }
        set.fingerprint = Some(data.fingerprint()?);
        Ok(())
    }

    fn tell(&mut self, done_bytes: u64, total_bytes: u64) {
        (self.progress)(Progress { done_bytes, total_bytes });
    }
}

/// The bytes that `part` of `whole` samples have, if all have as many.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}

/// How many bytes these files have.
fn bytes<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Result<u64, DataError> {
    let length = |file: P| {
        let file = file.as_ref();
        let metadata = fs::metadata(file).map_err(DataError::io(file, "read its length"))?;
        Ok(metadata.len())
    };
    files.into_iter().map(length).sum()
}
