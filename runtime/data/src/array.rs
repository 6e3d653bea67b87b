//! Numbers with a shape.

use super::error::DataError;

/// Numbers with a shape, row-major: an input, or a target that is more than a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    shape: Vec<usize>,
    values: Vec<T>,
}

impl<T> Array<T> {
    /// `values` in this shape, row-major.
    ///
    /// # Errors
    /// When the shape has another number of elements.
    pub fn new(shape: &[usize], values: Vec<T>) -> Result<Self, DataError> {
        let elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        if elements != Some(values.len()) {
            return Err(DataError::unfit(
                format!("as many values as the shape {shape:?} has elements"),
                format!("{} values", values.len()),
            ));
        }
        Ok(Self {
            shape: shape.to_vec(),
            values,
        })
    }

    /// A row of values.
    #[must_use]
    pub fn row(values: Vec<T>) -> Self {
        Self {
            shape: vec![values.len()],
            values,
        }
    }

    /// Sizes of its dimensions, slowest first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its values, row-major.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Bytes of memory that its values take, with those that are to spare.
    pub(crate) const fn room(&self) -> usize {
        self.values.capacity() * size_of::<T>()
    }

    /// Its values, to be changed.
    #[must_use]
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Its values, to keep.
    #[must_use]
    pub fn into_values(self) -> Vec<T> {
        self.values
    }
}

/// One number of `classes` as a row that is 1 at it and 0 elsewhere.
///
/// # Errors
/// When `class` is not below `classes`.
pub fn one_hot(class: u32, classes: usize) -> Result<Array<f32>, DataError> {
    let mut values = vec![0.0; classes];
    match values.get_mut(class as usize) {
        Some(value) => *value = 1.0,
        None => return Err(DataError::unfit(format!("a class below {classes}"), class.to_string())),
    }
    Ok(Array::row(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_as_many_elements_as_there_are_values() {
        assert_eq!(Array::new(&[2, 3], vec![0; 6]).unwrap().shape(), [2, 3]);
        let error = Array::new(&[2, 3], vec![0; 5]).unwrap_err().to_string();
        assert!(error.contains("[2, 3]") && error.contains("5 values"), "{error}");
        assert!(Array::new(&[usize::MAX, 2], vec![0_u8]).is_err(), "no overflow");
    }

    #[test]
    fn one_hot_is_one_at_the_class() {
        assert_eq!(one_hot(2, 4).unwrap().values(), [0.0, 0.0, 1.0, 0.0]);
        assert!(one_hot(4, 4).is_err());
    }
}
