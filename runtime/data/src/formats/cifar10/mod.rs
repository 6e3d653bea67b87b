//! CIFAR-10 in its binary version: pictures of 32 x 32 pixels in ten classes, in files of records.
//!
//! A record has 3,073 bytes: the label, then 1,024 bytes each of red, green and blue, row by row. What to train on is in
//! `data_batch_1.bin` to `data_batch_5.bin`, what to test on in `test_batch.bin`; all are in `cifar-10-batches-bin` when they are unpacked.
//! The format is described at <https://www.cs.toronto.edu/~kriz/cifar.html>.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use super::Part;
use super::positioned::Positioned;
use crate::fingerprint::Fingerprinting;
use crate::{DataError, DataFingerprint, Dataset, Image, SampleRandom};

/// The files of [`Part::Train`].
pub const TRAIN_FILES: [&str; 5] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
];

/// The file of [`Part::Test`].
pub const TEST_FILE: &str = "test_batch.bin";

/// How many classes there are: airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck.
pub const CLASSES: u8 = 10;

/// The folder that the files are in when they are unpacked.
pub const CHILD: &str = "cifar-10-batches-bin";
const SIDE: usize = 32;
const IMAGE_BYTES: usize = 3 * SIDE * SIDE;
const RECORD_BYTES: u64 = 1 + IMAGE_BYTES as u64;

/// Pictures with labels from 0 to 9, read when they are asked for. An item is an image of shape (3, 32, 32) and its label.
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::formats::{Part, cifar10::Cifar10};
/// use sardana_data::{Dataset, DatasetExt};
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let train = Cifar10::open(Path::new("data"), Part::Train)?;
/// let train = train.map("pad 4, crop, flip", |(image, label), rng| Ok((image.pad_crop(4, rng).flip(rng), label)));
/// assert_eq!(train.len(), 50_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cifar10 {
    batches: Vec<Batch>,
}

/// A file of records.
#[derive(Debug)]
struct Batch {
    file: Positioned,
    records: u64,
}

impl Cifar10 {
    /// Opens one part of the data set in `folder`, or in its `cifar-10-batches-bin`. Every file is read once, to check the labels.
    ///
    /// # Errors
    /// When the folder lacks a file, or one does not consist of whole records, or has a label above 9.
    pub fn open(folder: &Path, part: Part) -> Result<Self, DataError> {
        fs::metadata(folder).map_err(DataError::io(folder, "look into it"))?;
        let files = match part {
            Part::Train => &TRAIN_FILES[..],
            Part::Test => &[TEST_FILE],
        };
        let child = folder.join(CHILD);
        let inner = if child.is_dir() { &child } else { folder };
        let batch = |name: &&str| {
            let path = inner.join(name);
            if !path.try_exists().map_err(DataError::io(&path, "look for it"))? {
                let expected = format!("`{name}`, here or in `{CHILD}`");
                return Err(DataError::folder(folder, expected, "no such file"));
            }
            Batch::open(&path)
        };
        let batches = files.iter().map(batch).collect::<Result<_, _>>()?;
        Ok(Self { batches })
    }

    /// The files of the part, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.batches.iter().map(|batch| batch.file.path())
    }
}

impl Batch {
    fn open(path: &Path) -> Result<Self, DataError> {
        /// About 200 KB at a time.
        const AT_ONCE: u64 = 64;
        let file = Positioned::open(path)?;
        let (records, rest) = (file.bytes() / RECORD_BYTES, file.bytes() % RECORD_BYTES);
        if records == 0 || rest > 0 {
            return Err(DataError::malformed(
                path,
                file.bytes() - rest,
                format!("a record of {RECORD_BYTES} bytes"),
                format!("{rest} bytes up to the end of the file"),
            ));
        }
        for first in (0..records).step_by(AT_ONCE as usize) {
            let offset = first * RECORD_BYTES;
            let bytes = file.read(offset, RECORD_BYTES * AT_ONCE.min(records - first), "records")?;
            let labels = (offset..)
                .step_by(RECORD_BYTES as usize)
                .zip(bytes.iter().step_by(RECORD_BYTES as usize));
            labels
                .into_iter()
                .try_for_each(|(offset, &label)| check(&file, offset, label))?;
        }
        Ok(Self { file, records })
    }
}

impl Dataset for Cifar10 {
    type Item = (Image, u32);

    fn len(&self) -> u64 {
        self.batches.iter().map(|batch| batch.records).sum()
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let mut place = index;
        for Batch { file, records } in &self.batches {
            if place < *records {
                let offset = place * RECORD_BYTES;
                let mut bytes = file.read(offset, RECORD_BYTES, "a record")?;
                let label = bytes.remove(0);
                // The file may have been written to since it was opened.
                check(file, offset, label)?;
                return Ok((Image::new(3, SIDE, SIDE, bytes)?, u32::from(label)));
            }
            place -= records;
        }
        let samples = self.len();
        Err(DataError::NoSample { samples, index })
    }

    /// Each file by its name and hash; all of them are read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let mut print = Fingerprinting::default();
        for Batch { file, .. } in &self.batches {
            print = print.part(file.name(), file.hash()?);
        }
        Ok(print.finish())
    }
}

fn check(file: &Positioned, offset: u64, label: u8) -> Result<(), DataError> {
    if label < CLASSES {
        return Ok(());
    }
    let expected = format!("a label below {CLASSES}");
    Err(DataError::malformed(file.path(), offset, expected, label.to_string()))
}

/// Writes `images`, each of 3 x 32 x 32 bytes (red, green, blue; row by row), with a label each, as the file `batch`: one of
/// [`TRAIN_FILES`], or [`TEST_FILE`]. A file that is there is replaced.
///
/// # Errors
/// When an image has another size, or there is not one label below 10 for each image, or the system refuses.
pub fn write_batch(batch: &Path, images: &[Vec<u8>], labels: &[u8]) -> Result<(), DataError> {
    if images.len() != labels.len() {
        return Err(DataError::unfit(
            format!("a label for each of {} images", images.len()),
            format!("{} labels", labels.len()),
        ));
    }
    let mut bytes = Vec::new();
    for (image, &label) in images.iter().zip(labels) {
        if image.len() != IMAGE_BYTES || label >= CLASSES {
            return Err(DataError::unfit(
                format!("images of {IMAGE_BYTES} bytes with labels below {CLASSES}"),
                format!("one of {} bytes with the label {label}", image.len()),
            ));
        }
        bytes.push(label);
        bytes.extend(image);
    }
    fs::write(batch, bytes).map_err(DataError::io(batch, "write it"))
}
