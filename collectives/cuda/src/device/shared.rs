//! Tensors that another thread may read as they were at one moment, while this one goes on. Must not know what they are for.

use std::ops::Range;
use std::sync::Arc;

use super::{DeviceError, DeviceTensor, Element, Moment, Stream, Transfer};

/// A tensor whose values may be lent to other threads as they are. It is changed in place as long as none has them; else a copy is changed, and takes as
/// much memory again until they are let go.
#[derive(Debug)]
pub struct SharedTensor<T>(Arc<DeviceTensor<T>>);

/// Values of a [`SharedTensor`] as they were when they were lent.
#[derive(Debug, Clone)]
pub struct LentTensor<T> {
    tensor: Arc<DeviceTensor<T>>,
    ready: Moment,
}

impl<T: Element> SharedTensor<T> {
    /// Of a tensor that is at home on [`Stream::Compute`].
    #[must_use]
    pub fn new(tensor: DeviceTensor<T>) -> Self {
        Self(Arc::new(tensor))
    }

    /// The tensor, to be read by what is enqueued on [`Stream::Compute`].
    #[must_use]
    pub fn tensor(&self) -> &DeviceTensor<T> {
        &self.0
    }

    /// The tensor, to be written by what is enqueued on [`Stream::Compute`].
    ///
    /// # Errors
    /// When its values are lent and memory for a copy is refused; or the device has failed.
    #[expect(clippy::missing_panics_doc, reason = "a copy that was just made is not lent")]
    pub fn change(&mut self) -> Result<&mut DeviceTensor<T>, DeviceError> {
        if Arc::get_mut(&mut self.0).is_none() {
            let device = self.0.device();
            let mut copy = DeviceTensor::unset(device, Stream::Compute, self.0.len())?;
            device.on(Stream::Compute).copy(&mut copy.view_mut(), &self.0.view())?;
            self.0 = Arc::new(copy);
        }
        Ok(Arc::get_mut(&mut self.0).expect("a copy is not lent yet"))
    }

    /// Its values as what was enqueued on [`Stream::Compute`] before `ready` has left them: a moment that is recorded on that stream after the last change.
    #[must_use]
    pub fn lend(&self, ready: &Moment) -> LentTensor<T> {
        LentTensor {
            tensor: Arc::clone(&self.0),
            ready: ready.clone(),
        }
    }
}

impl<T: Element> LentTensor<T> {
    /// The values of `range`, once they are there, on any thread.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    ///
    /// # Panics
    /// When `range` lies beyond the tensor, or `by` is another device's.
    pub fn part_to_vec(&self, range: Range<usize>, by: &mut Transfer) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::zeroed(); range.len()];
        self.tensor.device().wait(Stream::Copies, &self.ready)?;
        by.down(&self.tensor.part(range), &mut values)?;
        Ok(values)
    }

    /// All values, as [`Self::part_to_vec`].
    ///
    /// # Errors
    /// As [`Self::part_to_vec`].
    ///
    /// # Panics
    /// When `by` is another device's.
    pub fn to_vec(&self, by: &mut Transfer) -> Result<Vec<T>, DeviceError> {
        self.part_to_vec(0..self.tensor.len(), by)
    }
}
