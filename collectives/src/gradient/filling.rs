//! Room for a sum that fills up chunk by chunk, while what is there already is read. Knows not where the chunks come from.

use std::sync::Arc;

use super::{GradientBuffer, GradientView, Resident};
use crate::layout::Layout;

/// A buffer that is being filled.
#[derive(Debug)]
pub(crate) struct Filling<'a> {
    layout: &'a Layout,
    buffer: GradientBuffer,
}

impl<'a> Filling<'a> {
    /// Begins to fill `buffer`: each chunk once, in any order. The view shows each as soon as it is there.
    ///
    /// # Panics
    /// When there is a view of what the buffer holds.
    pub(crate) fn begin(layout: &'a Layout, mut buffer: GradientBuffer) -> (Self, GradientView) {
        buffer.unwrite(|chunk| layout.chunk(chunk).len());
        buffer.forget_elsewhere();
        let view = buffer.view();
        (Self { layout, buffer }, view)
    }

    /// Fills chunk `index`.
    ///
    /// # Panics
    /// When it is filled already.
    pub(crate) fn fill(&mut self, index: u32, fill: impl FnOnce(&mut [u8])) {
        self.buffer.writing().write(self.layout.chunk(index), fill);
    }

    /// As [`GradientBuffer::room_beside`].
    pub(crate) fn room_beside(&self, gradients: &Arc<dyn Resident>) -> Option<Arc<dyn Resident>> {
        self.buffer.room_beside(gradients)
    }

    /// Says that all tensors that are filled lie in `resident` as well.
    pub(crate) fn stays(&mut self, resident: &Arc<dyn Resident>) {
        self.buffer.keep_as_well(self.layout, resident);
    }

    /// The buffer, filled.
    pub(crate) fn finish(self) -> GradientBuffer {
        self.buffer
    }
}
