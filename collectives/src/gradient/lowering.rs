//! A part of a gradient on its way from elsewhere to the memory that it has here. Knows not where it comes from.

#![expect(unsafe_code, reason = "parts of the memory are written while others are read")]

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use super::ResidentError;
use super::memory::Memory;
use super::on_their_way::{Counted, OnTheirWay};
use super::shown::Shown;
use crate::mapping::Mapping;

/// Room for a part of a gradient that comes from elsewhere, at most [`LOWERED_BYTES`](crate::limits::LOWERED_BYTES). One that is dropped unwritten fails.
#[derive(Debug)]
pub struct Lowering {
    range: Range<usize>,
    /// Until it is written, or has failed.
    memory: Option<(Arc<Memory>, Counted)>,
    shown: Arc<Shown>,
}

/// A buffer of which parts come from elsewhere, each once.
#[derive(Debug)]
pub(crate) struct Places(pub(super) Arc<Memory>);

impl Places {
    /// Room for these bytes, of which none is there yet, nor comes otherwise.
    pub(crate) fn place(&self, range: Range<usize>) -> Lowering {
        let counted = OnTheirWay::one_more(&self.0.on_their_way);
        Lowering::new(range, Arc::clone(&self.0), counted)
    }
}

impl Lowering {
    /// Room for these bytes of tensors, which lie elsewhere and were not asked for before.
    pub(super) fn new(range: Range<usize>, memory: Arc<Memory>, counted: Counted) -> Self {
        Self {
            range,
            shown: Arc::clone(&memory.shown),
            memory: Some((memory, counted)),
        }
    }

    /// Which bytes of the gradient come: some of one tensor, or of several.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn memory(&self) -> &Memory {
        let (memory, _) = self.memory.as_ref().expect("it is neither written nor given up");
        memory
    }

    /// As what the gradient's memory is mapped, if it is.
    #[must_use]
    pub fn mapping(&self) -> Option<&Mapping> {
        self.memory().room.mapping()
    }

    /// Where the bytes go, for what writes there by itself: nothing else reads or writes there as long as this value is neither written nor given up.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        // SAFETY: the range lies within its room's bytes: it is a part of a tensor's.
        unsafe { self.memory().room.start().add(self.range.start) }
    }

    /// Lets `write` write what of them is not there yet, and shows the chunks that are whole by it.
    pub fn write(mut self, write: impl FnOnce(&mut [u8])) {
        let start = self.start();
        // SAFETY: the range lies within its room's bytes. Each byte that lies elsewhere is asked for once, so that no other has these, and the `Writing` has
        // left them out. Their chunks lack them, so that no view reads there; and as long as the memory is shared, nothing is written anew.
        write(unsafe { slice::from_raw_parts_mut(start, self.range.len()) });
        // First the memory and then the count, both before it is shown: who knows of it finds that nothing here has the memory.
        drop(self.memory.take());
        self.shown.show(self.range.clone());
    }

    /// They do not come.
    pub fn fail(mut self, reason: ResidentError) {
        drop(self.memory.take());
        self.shown.fail(reason);
    }
}

impl Drop for Lowering {
    fn drop(&mut self) {
        if self.memory.take().is_some() {
            self.shown.fail(ResidentError::new("what was to bring it is gone"));
        }
    }
}
