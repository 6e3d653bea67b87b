//! Room for a sum that fills up chunk by chunk, while what is there already is read. Knows not where the chunks come from.

use std::sync::Arc;

use super::{GradientBuffer, GradientView, Places, Resident};
use crate::borrowed::Borrowed;
use crate::coming::Coming;
use crate::layout::Layout;
use crate::stores::{Destination, Stores};

/// A buffer that is being filled: each chunk once, in any order.
///
/// It is written only from the first chunk on that is written here. Other processes may have borrowed what it held before; they have returned that by the time
/// at which there is something to write, as a chunk of the next sum holds gradients that they have computed since.
#[derive(Debug)]
pub(crate) struct Filling<'a> {
    layout: &'a Layout,
    buffer: GradientBuffer,
    view: &'a Coming<GradientView>,
    begun: bool,
}

impl<'a> Filling<'a> {
    /// A buffer of which nothing is filled. The view shows each chunk that is written here as soon as it is there, and comes with the first one.
    pub(crate) fn new(layout: &'a Layout, mut buffer: GradientBuffer, view: &'a Coming<GradientView>) -> Self {
        buffer.forget();
        Self {
            layout,
            buffer,
            view,
            begun: false,
        }
    }

    /// Fills chunk `index`.
    ///
    /// # Panics
    /// When it is filled already, or there is a view of what the buffer held before.
    pub(crate) fn fill(&mut self, index: u32, fill: impl FnOnce(&mut Destination<'_>)) {
        self.begin();
        let stores = Stores::of(self.layout.bytes());
        let chunk = self.layout.chunk(index);
        self.buffer.writing().write(chunk, |out| stores.write(out, fill));
    }

    /// Chunk `index` stays where another process has it, if it may, and the view does not show it then.
    ///
    /// # Panics
    /// As [`Self::fill`].
    pub(crate) fn borrow(&mut self, index: u32, chunk: Borrowed) {
        if self.buffer.may_borrow() {
            self.buffer.borrow(self.layout, index, chunk);
        } else {
            self.fill(index, |out| out.put(&chunk));
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.buffer.renew(self.layout);
            self.view.come(self.buffer.view());
        }
    }

    /// For chunks that come from elsewhere, and are not filled otherwise.
    pub(crate) fn places(&mut self) -> Places {
        self.begin();
        self.buffer.places()
    }

    /// As [`GradientBuffer::room_beside`].
    pub(crate) fn room_beside(&mut self, gradients: &Arc<dyn Resident>) -> Option<Arc<dyn Resident>> {
        self.begin();
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
