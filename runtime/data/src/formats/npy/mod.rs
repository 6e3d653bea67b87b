//! An array that numpy has saved (`np.save`), row by row along its first axis.
//!
//! The format is that of <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>, versions 1 to 3; arrays are in C order and
//! little-endian, as `np.save` writes them of `np.ascontiguousarray(array)` on today's machines.

mod header;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::element::Element;
use super::positioned::Positioned;
use super::rows::Rows;
use crate::fingerprint::Fingerprinting;
use crate::{Array, DataError, DataFingerprint, Dataset, SampleRandom};

/// The rows of an array of `T`, read when they are asked for. An item has the shape of the array without its first axis: of an array of one
/// dimension, it is a single number of shape ().
///
/// Two files make a data set of pairs:
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::DatasetExt;
/// use sardana_data::formats::npy::Npy;
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let images = Npy::<f32>::open(Path::new("images.npy"))?;
/// let labels = Npy::<i64>::open(Path::new("labels.npy"))?;
/// let train = images.zip(labels)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Npy<T> {
    file: Positioned,
    rows: Rows<T>,
}

impl<T: Element> Npy<T> {
    /// Opens an array.
    ///
    /// # Errors
    /// When it is not an array of `T` in C order, or the file is not as long as its header states.
    pub fn open(file: &Path) -> Result<Self, DataError> {
        let opened = Positioned::open(file)?;
        let header = header::read::<T>(&opened)?;
        let bytes = opened.bytes() - header.bytes;
        let rows = Rows::new(header.bytes, bytes, &header.shape);
        let rows = rows.map_err(|(expected, found)| DataError::malformed(file, header.shape_at, expected, found))?;
        Ok(Self { file: opened, rows })
    }

    /// The shape of each item.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.rows.shape()
    }
}

/// What numpy calls the numbers of an array (`<f4` are those of an [`Npy<f32>`](Npy)), and the byte of the file at which that is stated.
///
/// # Errors
/// When it is not an array of numbers in C order.
pub fn descr(file: &Path) -> Result<(String, u64), DataError> {
    header::descr(&Positioned::open(file)?)
}

impl<T: Element> Dataset for Npy<T> {
    type Item = Array<T>;

    fn len(&self) -> u64 {
        self.rows.count()
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Array<T>, DataError> {
        self.rows.get(&self.file, index)
    }

    /// The file by its name and hash; all of it is read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(Fingerprinting::default().part(self.file.name(), self.file.hash()?).finish())
    }
}
