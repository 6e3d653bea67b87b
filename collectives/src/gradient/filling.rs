//! Room for a sum that fills up chunk by chunk, while what is there already is read. Knows not where the chunks come from.

use super::{GradientBuffer, GradientView};
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

    /// The buffer, filled.
    pub(crate) fn finish(self) -> GradientBuffer {
        self.buffer
    }
}
