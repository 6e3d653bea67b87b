//! An array in a file, read row by row: what lies at one place of its first axis.

use std::marker::PhantomData;

use super::element::Element;
use super::excerpt::excerpt;
use super::positioned::Positioned;
use crate::{Array, DataError};

/// Where the rows of an array of `T` are.
#[derive(Debug)]
pub(super) struct Rows<T> {
    /// Where in the file the first begins.
    at: u64,
    count: u64,
    /// The shape of each.
    shape: Vec<usize>,
    row_bytes: u64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Rows<T> {
    /// Of an array of this shape in the `bytes` bytes from `at` on, or what is wrong: (expected, found).
    pub(super) fn new(at: u64, bytes: u64, shape: &[u64]) -> Result<Self, (String, String)> {
        let Some((&count, row)) = shape.split_first() else {
            return Err(("an array of rows".to_owned(), "a single number".to_owned()));
        };
        let row_bytes = row.iter().try_fold(T::BYTES, |product, &size| product.checked_mul(size));
        let row_bytes = row_bytes.filter(|&row_bytes| row_bytes > 0 && row_bytes.checked_mul(count) == Some(bytes));
        let row = row.iter().map(|&size| usize::try_from(size).ok()).collect();
        let (Some(row_bytes), Some(shape)) = (row_bytes, row) else {
            let expected = format!("a shape of rows of {} in {bytes} bytes, as many as there are", T::RUST);
            let shown = format!("{shape:?}");
            return Err((expected, format!("the shape {}", excerpt(shown.as_bytes()))));
        };
        Ok(Self {
            at,
            count,
            shape,
            row_bytes,
            element: PhantomData,
        })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The shape of each.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Row number `index`.
    pub(super) fn get(&self, file: &Positioned, index: u64) -> Result<Array<T>, DataError> {
        let samples = self.count;
        if index >= samples {
            return Err(DataError::NoSample { samples, index });
        }
        let bytes = file.read(self.at + index * self.row_bytes, self.row_bytes, "a row")?;
        Array::new(&self.shape, T::decode(&bytes))
    }
}
