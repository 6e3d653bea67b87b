//! What was found at a path, as a value: one printer says it in words, another in JSON, and neither decides anything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use sardana::data::formats::Part;
use sardana::data::formats::safetensors::Tensor;
use sardana::data::formats::tfrecords::Kept;
use sardana::data::{DataError, DataFingerprint, Image};

use super::read::{self, Reading};
use super::recognise::{self, Nothing, Recognised};

/// What is at a path.
#[derive(Debug)]
pub(super) struct Survey {
    /// The path as it was given.
    pub(super) path: PathBuf,
    /// What is there.
    pub(super) found: Found,
}

/// What was found.
#[derive(Debug)]
pub(super) enum Found {
    /// Data sets: one for each format, and for each part of a format that is published in two.
    Sets(Vec<DataSet>),
    /// Nothing of a known format.
    Nothing(Nothing),
    /// The system does not show what is there.
    Refused(DataError),
}

/// A data set, all of whose samples were read as far as they can be.
#[derive(Debug)]
pub(super) struct DataSet {
    /// Its format.
    pub(super) format: Format,
    /// Its folder or file.
    pub(super) at: PathBuf,
    /// How many samples it has. None where it could not be opened, or where a program decides what a sample is.
    pub(super) samples: Option<u64>,
    /// How many of them were read and are whole.
    pub(super) read: u64,
    /// How many bytes its files have. None where it could not be opened.
    pub(super) bytes: Option<u64>,
    /// What its samples consist of.
    pub(super) contents: Contents,
    /// How many of the samples that were read have which label. None where samples have no classes.
    pub(super) labels: Option<Vec<(String, u64)>>,
    /// What a worker would say of it.
    pub(super) fingerprint: Option<DataFingerprint>,
    /// What is wrong with it: the first, or as many as were asked for.
    pub(super) wrong: Vec<DataError>,
}

/// What is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Two idx files.
    Mnist(Part),
    /// Batches of records.
    Cifar10(Part),
    /// A folder of pictures for each class.
    ImageFolder,
    /// Records, which any program may have filled.
    TfRecords,
    /// A table.
    Csv,
    /// An array.
    Npy,
    /// Tensors by name.
    Safetensors,
}

/// What the samples of a data set consist of.
#[derive(Debug)]
pub(super) enum Contents {
    /// Nothing could be learned of them.
    Unknown,
    /// Images, each with a label.
    Images(Extent),
    /// Rows of numbers.
    Table(Table),
    /// Rows of an array.
    Array {
        /// What numpy calls the numbers.
        dtype: String,
        /// Of the whole array, slowest first.
        shape: Vec<u64>,
    },
    /// Tensors, of which a program chooses two.
    Tensors(Vec<Tensor>),
    /// Records.
    Records(Records),
}

/// The sizes of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Of each image.
    pub(super) channels: usize,
    /// Height and width of the one with the fewest pixels.
    pub(super) smallest: (usize, usize),
    /// Height and width of the one with the most pixels.
    pub(super) largest: (usize, usize),
}

/// How a table was read.
#[derive(Debug)]
pub(super) struct Table {
    /// The names of all columns, in order. None where the file has no header.
    pub(super) names: Option<Vec<String>>,
    /// How many columns there are.
    pub(super) columns: usize,
    /// What is between cells.
    pub(super) delimiter: char,
    /// The numbers of the columns that were read as input.
    pub(super) inputs: Vec<usize>,
    /// The number of the column that was read as target.
    pub(super) target: Option<usize>,
}

/// What is known of records.
#[derive(Debug)]
pub(super) struct Records {
    /// How many files they are in.
    pub(super) files: usize,
    /// How long the longest is of the files that are whole. None where no file is.
    pub(super) longest_bytes: Option<u64>,
    /// Where the index of each file that was read is kept, or why it is not.
    pub(super) indexes: Vec<Kept>,
    /// The features of the first record, if that is a `tf.train.Example` with any.
    pub(super) features: Option<Vec<FeatureOfFirst>>,
}

/// A feature of the first record.
#[derive(Debug)]
pub(super) struct FeatureOfFirst {
    /// What it is called.
    pub(super) name: String,
    /// Of which kind its values are.
    pub(super) kind: FeatureKind,
    /// How many values it has.
    pub(super) values: usize,
    /// How many bytes all its values have together.
    pub(super) bytes: usize,
}

/// What a feature's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(super) enum FeatureKind {
    /// Byte strings.
    Bytes,
    /// Numbers.
    Floats,
    /// Integers.
    Ints,
    /// No list of any kind.
    Nothing,
}

impl Survey {
    /// Finds out what is at `path`, and reads all of it.
    pub(super) fn of(path: &Path, reading: &mut Reading<'_>) -> Self {
        let found = match recognise::at(path) {
            Ok(Recognised::Data(data)) => Found::Sets(data.iter().map(|data| read::all(data, reading)).collect()),
            Ok(Recognised::Nothing(nothing)) => Found::Nothing(nothing),
            Err(error) => Found::Refused(error),
        };
        let path = path.to_owned();
        Self { path, found }
    }

    /// The data sets there.
    pub(super) fn sets(&self) -> &[DataSet] {
        match &self.found {
            Found::Sets(sets) => sets,
            Found::Nothing(_) | Found::Refused(_) => &[],
        }
    }

    /// Whether there are data, and all of them are whole.
    pub(super) fn is_well(&self) -> bool {
        !self.sets().is_empty() && self.sets().iter().all(DataSet::is_well)
    }
}

impl DataSet {
    /// One of which nothing is known yet.
    pub(super) fn new(format: Format, at: &Path) -> Self {
        Self {
            format,
            at: at.to_owned(),
            samples: None,
            read: 0,
            bytes: None,
            contents: Contents::Unknown,
            labels: None,
            fingerprint: None,
            wrong: Vec::new(),
        }
    }

    /// Whether nothing is wrong with it.
    pub(super) fn is_well(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl Format {
    /// A word for programs.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Mnist(_) => "mnist",
            Self::Cifar10(_) => "cifar10",
            Self::ImageFolder => "image_folder",
            Self::TfRecords => "tfrecords",
            Self::Csv => "csv",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
        }
    }

    /// Which part it is of what is published in two, as a word for programs.
    pub(super) const fn part(self) -> Option<&'static str> {
        match self {
            Self::Mnist(Part::Train) | Self::Cifar10(Part::Train) => Some("train"),
            Self::Mnist(Part::Test) | Self::Cifar10(Part::Test) => Some("test"),
            Self::ImageFolder | Self::TfRecords | Self::Csv | Self::Npy | Self::Safetensors => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mnist(Part::Train) => "MNIST (idx files), what to train on",
            Self::Mnist(Part::Test) => "MNIST (idx files), what to test on",
            Self::Cifar10(Part::Train) => "CIFAR-10 (binary version), what to train on",
            Self::Cifar10(Part::Test) => "CIFAR-10 (binary version), what to test on",
            Self::ImageFolder => "pictures in a folder for each class",
            Self::TfRecords => "TFRecords",
            Self::Csv => "a table (CSV)",
            Self::Npy => "an array of numpy (npy)",
            Self::Safetensors => "tensors (safetensors)",
        })
    }
}

impl Extent {
    /// Of `image`, and of those that `before` is of.
    pub(super) fn with(before: Option<Self>, image: &Image) -> Self {
        let size = (image.height(), image.width());
        let before = before.unwrap_or(Self {
            channels: image.channels(),
            smallest: size,
            largest: size,
        });
        let pixels = |(height, width)| height * width;
        Self {
            smallest: if pixels(size) < pixels(before.smallest) {
                size
            } else {
                before.smallest
            },
            largest: if pixels(size) > pixels(before.largest) {
                size
            } else {
                before.largest
            },
            ..before
        }
    }
}

/// How many samples have which label, while they are read.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<i64, u64>);

impl Labels {
    /// One more sample with this label.
    pub(super) fn count(&mut self, label: i64) {
        *self.0.entry(label).or_default() += 1;
    }

    /// How many labels there are.
    pub(super) fn classes(&self) -> usize {
        self.0.len()
    }

    /// In the order of their numbers, each by its name.
    pub(super) fn named(self, name: impl Fn(i64) -> String) -> Vec<(String, u64)> {
        self.0.into_iter().map(|(label, samples)| (name(label), samples)).collect()
    }
}
