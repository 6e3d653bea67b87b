//! TFRecord files, by number. The format is a row of records and no more, so each file has an index beside it, made once.
//!
//! ```no_run
//! use sardana_data::formats::tfrecords::TfRecords;
//! use sardana_data::{DataError, DatasetExt};
//!
//! # fn main() -> Result<(), DataError> {
//! let data = TfRecords::open_folder("mnist", None)?.examples().map("image and label", |example, _| {
//!     let label = example.int("label")?;
//!     Ok((example.bytes("image")?.to_vec(), label))
//! });
//! # let _ = data;
//! # Ok(())
//! # }
//! ```
//!
//! - [`framing`]: one record in a file, reading and writing;
//! - [`index`]: where records begin, made once and kept beside the file;
//! - [`example`]: `tf.train.Example`, which records mostly are.

pub mod example;
mod folder;
pub mod framing;
pub mod index;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use self::framing::{HEAD_BYTES, RecordFile};
use self::index::Index;
use crate::fingerprint::Fingerprinting;
use crate::{DataError, DataFingerprint, Dataset, SampleRandom};

pub use example::{Example, Feature};
pub use folder::{files, is_named};
pub use index::{IndexSummary, Kept, Verify, index_file};

/// As many files stay open. A process may often have 256 or 1024 open, and sockets need some of these; large sets have thousands of
/// files. The files beyond are opened for each record, which costs a few system calls.
const MAX_OPEN_FILES: usize = 128;

/// The records of TFRecord files, one file after the other. A sample is a record's bytes.
///
/// In memory it takes 8 bytes a record. Each record is verified by its checksum whenever it is read.
#[derive(Debug)]
pub struct TfRecords {
    files: Vec<DataFile>,
    records: u64,
}

/// One file of several.
#[derive(Debug)]
struct DataFile {
    path: PathBuf,
    index: Index,
    /// The number of its first record in the whole.
    first: u64,
    /// Unless there are too many.
    open: Option<RecordFile>,
}

impl TfRecords {
    /// Opens `files`, in this order. A file without an index is walked through, which takes a while where it is large (see
    /// [`index_file`]); the index is then kept beside it, if that can be written.
    ///
    /// # Errors
    /// When there are none, or one is damaged, packed, or cannot be read.
    pub fn open(files: impl IntoIterator<Item = PathBuf>) -> Result<Self, DataError> {
        let (mut parts, mut records) = (Vec::new(), 0);
        for path in files {
            let file = RecordFile::open(&path)?;
            let index = Index::of(&file)?;
            let first = records;
            records += index.records();
            let open = (parts.len() < MAX_OPEN_FILES).then_some(file);
            parts.push(DataFile {
                path,
                index,
                first,
                open,
            });
        }
        if parts.is_empty() {
            return Err(DataError::Own(
                "expected at least one TFRecord file, found none; name the files".into(),
            ));
        }
        Ok(Self { files: parts, records })
    }

    /// Opens the files in `folder` whose names end with `suffix`, in the order of the bytes of their names. Without a suffix: those
    /// that are named `*.tfrecord`, `*.tfrecords` or `name-00000-of-00010`. Where a folder has sets for several purposes, a suffix
    /// tells them apart (`-of-00128`), or [`TfRecords::open`] takes what the program chooses.
    ///
    /// # Errors
    /// As for [`TfRecords::open`]; and when no file has such a name, or one is missing of a set that is numbered.
    pub fn open_folder(folder: impl AsRef<Path>, suffix: Option<&str>) -> Result<Self, DataError> {
        Self::open(files(folder.as_ref(), suffix)?)
    }

    /// The same samples, each read as a `tf.train.Example`.
    #[must_use]
    pub fn examples(self) -> Examples {
        Examples { records: self }
    }

    /// The file that record `index` is in, and where in it: from where to where.
    fn find(&self, index: u64) -> Result<(&DataFile, Range<u64>), DataError> {
        let after = self.files.partition_point(|part| part.first <= index);
        let part = after.checked_sub(1).map(|at| &self.files[at]);
        let found = part.and_then(|part| Some((part, part.index.frame(index - part.first)?)));
        found.ok_or(DataError::NoSample {
            samples: self.records,
            index,
        })
    }
}

impl DataFile {
    fn read(&self, frame: Range<u64>) -> Result<Vec<u8>, DataError> {
        if let Some(file) = &self.open {
            return file.read_to(frame.start, frame.end);
        }
        let file = RecordFile::open(&self.path)?;
        if file.stamp() != self.index.stamp() {
            let expected = format!("the file of {} bytes that was there at first", self.index.stamp().bytes);
            let found = format!("one of {} bytes that was written since; start again", file.stamp().bytes);
            return Err(DataError::malformed(&self.path, 0, expected, found));
        }
        file.read_to(frame.start, frame.end)
    }
}

impl Dataset for TfRecords {
    type Item = Vec<u8>;

    fn len(&self) -> u64 {
        self.records
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Vec<u8>, DataError> {
        let (part, frame) = self.find(index)?;
        part.read(frame)
    }

    /// One part for each file: its name, and a hash over the lengths and the stored checksums of its records. That is cheap, since
    /// no record is read for it, and tells other data from these: but it is no defence against somebody who makes other records
    /// with the same CRC32C. Names count without their folders, which differ from host to host.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let parts = self.files.iter().fold(Fingerprinting::default(), |parts, part| {
            let name = part.path.file_name().unwrap_or(part.path.as_os_str());
            parts.part(name.to_string_lossy(), part.index.hash())
        });
        Ok(parts.finish())
    }
}

/// The records of TFRecord files, read as `tf.train.Example`. See [`TfRecords::examples`].
#[derive(Debug)]
pub struct Examples {
    records: TfRecords,
}

impl Dataset for Examples {
    type Item = Example;

    fn len(&self) -> u64 {
        self.records.len()
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Example, DataError> {
        let (file, frame) = self.records.find(index)?;
        let offset = frame.start;
        let record = file.read(frame)?;
        Example::parse(&record)
            .map_err(|found| DataError::malformed(&file.path, offset + HEAD_BYTES, example::EXPECTED, found))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        self.records.fingerprint()
    }
}
