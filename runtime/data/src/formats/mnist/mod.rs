//! MNIST and what is kept in its format (Fashion-MNIST, KMNIST, EMNIST): grey images with a label each, in two idx files of a folder.
//!
//! | part | images | labels |
//! |---|---|---|
//! | [`Part::Train`] | `train-images-idx3-ubyte` | `train-labels-idx1-ubyte` |
//! | [`Part::Test`] | `t10k-images-idx3-ubyte` | `t10k-labels-idx1-ubyte` |
//!
//! Each may be packed (`.gz`), and may have a dot in place of the last dash but one (`train-images.idx3-ubyte`): both are in circulation.
//! The format is described at <http://yann.lecun.com/exdb/mnist/>.

mod idx;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::Part;
use crate::fingerprint::Fingerprinting;
use crate::{DataError, DataFingerprint, Dataset, Image, SampleRandom};
use idx::Idx;

/// Grey images with labels from 0 to 255, held in memory. An item is an image of shape (1, height, width) and its label.
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::formats::{Part, mnist::Mnist};
/// use sardana_data::{Dataset, DatasetExt};
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let train = Mnist::open(Path::new("data/mnist"), Part::Train)?;
/// let train = train.map("mean 0.13, deviation 0.31", |(image, label), _| {
///     Ok((image.normalise(&[0.1307], &[0.3081])?, label))
/// });
/// assert_eq!(train.len(), 60_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mnist {
    images: Idx<3>,
    labels: Idx<1>,
}

impl Mnist {
    /// Reads one part of the data set in `folder`, and checks it.
    ///
    /// # Errors
    /// When the folder lacks a file, or a file is not an idx file of the length that its header states, or there are not as many labels
    /// as images.
    pub fn open(folder: &Path, part: Part) -> Result<Self, DataError> {
        let (images, labels) = (idx::read(folder, images_of(part))?, idx::read(folder, labels_of(part))?);
        let (count, labelled) = (images.sizes[0], labels.sizes[0]);
        if count != labelled {
            return Err(DataError::malformed(
                &labels.path,
                idx::COUNT_AT,
                format!("a label for each of the {count} images"),
                format!("labels for {labelled}"),
            ));
        }
        Ok(Self { images, labels })
    }

    /// Rows of each image.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.images.sizes[1]
    }

    /// Pixels in a row of each image.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.images.sizes[2]
    }

    /// The two files that were read: the images, the labels.
    #[must_use]
    pub fn files(&self) -> [&Path; 2] {
        [&self.images.path, &self.labels.path]
    }
}

impl Dataset for Mnist {
    type Item = (Image, u32);

    fn len(&self) -> u64 {
        self.labels.values.len() as u64
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let area = self.height() * self.width();
        let at = usize::try_from(index).ok();
        let sample = at.and_then(|at| Some((*self.labels.values.get(at)?, self.images.values.chunks_exact(area).nth(at)?)));
        let (label, bytes) = sample.ok_or(DataError::NoSample {
            samples: self.len(),
            index,
        })?;
        Ok((Image::new(1, self.height(), self.width(), bytes.to_vec())?, u32::from(label)))
    }

    /// The two files, as they are unpacked: a host that keeps them packed may train with one that does not.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let Self { images, labels } = self;
        Ok(Fingerprinting::default()
            .part(&images.name, images.hash)
            .part(&labels.name, labels.hash)
            .finish())
    }
}

/// Writes `images` of `height` x `width` bytes, row by row, with a label each, as one part of a data set in `folder`, which is made if it is
/// not there. Files that are there are replaced.
///
/// # Errors
/// When an image has another size, or there is not one label for each image, or the system refuses.
pub fn write(
    folder: &Path,
    part: Part,
    height: usize,
    width: usize,
    images: &[Vec<u8>],
    labels: &[u8],
) -> Result<(), DataError> {
    if images.len() != labels.len() {
        return Err(DataError::unfit(
            format!("a label for each of {} images", images.len()),
            format!("{} labels", labels.len()),
        ));
    }
    let area = height.checked_mul(width);
    if let Some(image) = images.iter().find(|image| Some(image.len()) != area) {
        return Err(DataError::unfit(
            format!("images of {height} x {width} bytes"),
            format!("one of {} bytes", image.len()),
        ));
    }
    idx::write(folder, images_of(part), [images.len(), height, width], &images.concat())?;
    idx::write(folder, labels_of(part), [labels.len()], labels)
}

const fn images_of(part: Part) -> &'static str {
    match part {
        Part::Train => "train-images",
        Part::Test => "t10k-images",
    }
}

const fn labels_of(part: Part) -> &'static str {
    match part {
        Part::Train => "train-labels",
        Part::Test => "t10k-labels",
    }
}
