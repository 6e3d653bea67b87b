//! A tensor while NCCL sums it: lent to the communicator, and given back once no other work may come between. Must not know how anything is summed.
//!
//! A call of NCCL's that does not wait may return before the sum is on its stream: another thread puts it there. Were the tensor at hand meanwhile, it could be freed, or
//! be used by what is enqueued in front of its own sum. So it is here until then.

use std::error::Error;
use std::fmt;

use super::{Communicator, NcclError};
use crate::device::DeviceTensor;

/// A sum that was asked for, and its tensor. One that ends before its tensor was given back aborts the communicator, whatever that waits for.
#[must_use = "without its tensor the communicator is aborted"]
#[derive(Debug)]
pub struct Summing<'a, T> {
    group: &'a Communicator,
    number: u64,
    /// None once it was given back.
    tensor: Option<DeviceTensor<T>>,
}

impl<'a, T> Summing<'a, T> {
    pub(super) const fn new(group: &'a Communicator, number: u64, tensor: DeviceTensor<T>) -> Self {
        let tensor = Some(tensor);
        Self { group, number, tensor }
    }

    /// Asks how far it is, once, without waiting: the tensor, as soon as the sum is enqueued, so that what is enqueued on its stream from then on comes behind it. None
    /// before, and once the tensor was given back. On another stream it is valid once that waits for this one, and so it is at home, if that is the other.
    ///
    /// # Errors
    /// When the communicator has failed or was aborted. The tensor is freed at this one's end.
    pub fn poll(&mut self) -> Result<Option<DeviceTensor<T>>, NcclError> {
        if self.group.has_enqueued(self.number)? {
            return Ok(self.tensor.take());
        }
        Ok(None)
    }
}

impl<T> Drop for Summing<'_, T> {
    fn drop(&mut self) {
        if self.tensor.is_some() && self.group.has_enqueued(self.number) != Ok(true) {
            // From here on nothing is put on any stream. A caller that wants to know asks the communicator.
            let _ = self.group.abort();
        }
    }
}

/// A sum that was not begun: why, and the tensor. Its values are as they were, unless NCCL has refused the call: then they are of no use.
pub struct Refused<T> {
    error: NcclError,
    tensor: Box<DeviceTensor<T>>,
}

impl<T> Refused<T> {
    pub(super) fn new(error: NcclError, tensor: DeviceTensor<T>) -> Self {
        let tensor = Box::new(tensor);
        Self { error, tensor }
    }

    /// Why.
    #[must_use]
    pub const fn error(&self) -> &NcclError {
        &self.error
    }

    /// The tensor.
    #[must_use]
    pub fn into_tensor(self) -> DeviceTensor<T> {
        *self.tensor
    }
}

impl<T> From<Refused<T>> for NcclError {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Refused").field(&self.error).finish()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl<T> Error for Refused<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
