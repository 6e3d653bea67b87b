//! A part of a running sum on its way through memory elsewhere, where gradients lie that are added to it. Knows not where that is.

use std::ops::Range;
use std::sync::Arc;

use sardana_protocol::state::Dtype;
use tokio::sync::oneshot;

use super::{Resident, ResidentError};

/// A part of a running sum, or room for one that begins: at most [`LOWERED_BYTES`](crate::limits::LOWERED_BYTES) of the tensors, all of whose elements are of one
/// type, and zeros between them. One that is dropped unfinished fails.
#[derive(Debug)]
pub struct Passing {
    range: Range<usize>,
    dtype: Dtype,
    begins: bool,
    bytes: Vec<u8>,
    stays: Option<Arc<dyn Resident>>,
    done: oneshot::Sender<Result<Vec<u8>, ResidentError>>,
}

/// Where it comes when it is finished.
pub(crate) type Passed = oneshot::Receiver<Result<Vec<u8>, ResidentError>>;

impl Passing {
    /// The bytes `range` of a gradient, which `bytes` begins with. What else is there stays.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn new(
        range: Range<usize>,
        dtype: Dtype,
        begins: bool,
        bytes: Vec<u8>,
        stays: Option<Arc<dyn Resident>>,
    ) -> (Self, Passed) {
        assert!(range.len() <= bytes.len(), "what passes is here");
        let (done, passed) = oneshot::channel();
        let passing = Self {
            range,
            dtype,
            begins,
            bytes,
            stays,
            done,
        };
        (passing, passed)
    }

    /// Which bytes of the gradient they are.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// What their elements are.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sum so far. None where it begins with the first gradient, bit for bit.
    #[must_use]
    pub fn running(&self) -> Option<&[u8]> {
        (!self.begins).then(|| &self.bytes[..self.range.len()])
    }

    /// In what the sum is to stay as well, if it is finished here: memory that [`Resident::another`] gave. It is told once.
    #[must_use]
    pub const fn stays(&mut self) -> Option<Arc<dyn Resident>> {
        self.stays.take()
    }

    /// Lets `write` write the sum.
    pub fn finish(mut self, write: impl FnOnce(&mut [u8])) {
        write(&mut self.bytes[..self.range.len()]);
        // A ring that was given up does not want it any more.
        let _ = self.done.send(Ok(self.bytes));
    }

    /// It could not be added up.
    pub fn fail(self, reason: ResidentError) {
        // As above.
        let _ = self.done.send(Err(reason));
    }
}
