//! Gradients whose tensors lie elsewhere than in their buffer's memory, such as in a GPU's, and are brought there as they are asked for. Knows not what
//! that memory is, nor how bytes come from it.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sardana_protocol::state::Dtype;

use super::lowering::Lowering;
use super::passing::{Passing, PlainSlot, Slot};
use crate::layout::Layout;
use crate::limits::{LOWERED_AHEAD, LOWERED_BYTES};

/// Memory elsewhere for the tensors of one gradient, laid out as that is. A [`TensorPlace`](super::TensorPlace) gives it to a buffer.
pub trait Resident: Any + fmt::Debug + Send + Sync {
    /// What was written there so far, to be waited for whatever is written there later. None where writing waits until it is computed.
    fn computing(&self) -> Option<Box<dyn Computing>>;

    /// Brings a part of what was written there last to the host: returns at once, and writes what it is told to, or fails it, once that is known.
    /// Until then nothing else is written to that part.
    fn lower(self: Arc<Self>, lowering: Lowering);

    /// Whether [`Self::pass`] takes what the other one holds.
    fn adds_with(&self, other: &dyn Resident) -> bool;

    /// Memory like this one, for a finished sum that stays where these lie. None if there is no room.
    fn another(&self) -> Option<Arc<dyn Resident>> {
        None
    }

    /// Memory for a part of a running sum that is to [`pass`](Self::pass). A ring asks for it part by part, and drops it when that is passed on.
    ///
    /// # Errors
    /// When there is none.
    fn slot(&self) -> Result<Box<dyn Slot>, ResidentError> {
        Ok(Box::new(PlainSlot::new()))
    }

    /// Adds to a part of a running sum what these hold there, this one first and the others in their order, where they lie. Returns at once, and finishes the
    /// part, or fails it, once that is known. Nothing is changed in these; where the part [stays](Passing::stays) it is written as well.
    fn pass(self: Arc<Self>, others: &[Arc<dyn Resident>], passing: Passing);

    /// Adds 0.0 to the elements `range`, in bytes: -0.0 becomes 0.0, and a NaN the one.
    ///
    /// # Errors
    /// When it cannot.
    fn add_zeros(&self, dtype: Dtype, range: Range<usize>) -> Result<(), ResidentError>;
}

/// What is computed elsewhere.
pub trait Computing: fmt::Debug + Send {
    /// Waits until it is computed.
    ///
    /// # Errors
    /// When it could not be.
    fn wait(&self) -> Result<(), ResidentError>;
}

/// Why a part of a gradient did not come from where it lies: the worker gives up and says so. Its clones are the same.
#[derive(Clone, Debug, thiserror::Error)]
#[error("a gradient did not come from where it lies: {0}")]
pub struct ResidentError(Arc<dyn Error + Send + Sync>);

impl ResidentError {
    /// For this reason.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(reason.into().into())
    }
}

/// Which bytes of a gradient lie elsewhere.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    resident: Option<Arc<dyn Resident>>,
    /// Tensors that lie there, whether or not they were brought here as well.
    kept: Ranges,
    /// Whether there are some, for those that do not lock this.
    some: Arc<AtomicBool>,
    /// What of them was not asked for yet.
    waiting: Ranges,
    /// How many tensors were left there since the gradient began to be written.
    left_there: usize,
    /// Whether one was written here since then.
    wrote_here: bool,
    /// Why what lies there is not what was to be written.
    lost: Option<ResidentError>,
}

impl Elsewhere {
    pub(super) fn resident(&self) -> Option<&Arc<dyn Resident>> {
        self.resident.as_ref()
    }

    /// Whether something lies there: told by this, too.
    pub(super) fn is_some(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.some)
    }

    /// The resident, if a tensor lies there.
    pub(super) fn lying_there(&self) -> Option<&Arc<dyn Resident>> {
        self.resident.as_ref().filter(|_| !self.is_empty())
    }

    /// What is computed there.
    pub(super) fn computing(&self) -> Option<Box<dyn Computing>> {
        self.lying_there()?.computing()
    }

    /// The resident, if all tensors lie there.
    pub(super) fn resident_of_all(&self, layout: &Layout) -> Option<&Arc<dyn Resident>> {
        let tensors = (0..layout.tensors().len()).filter_map(|tensor| layout.tensor(tensor));
        let all = tensors
            .filter(|section| !section.bytes.is_empty())
            .all(|section| self.has(&section.bytes));
        self.lying_there().filter(|_| all)
    }

    pub(super) fn has(&self, tensor: &Range<usize>) -> bool {
        self.kept.0.get(&tensor.start).is_some_and(|end| *end == tensor.end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.0.is_empty()
    }

    /// From now on this tensor lies in `resident`, and can be asked for.
    ///
    /// # Panics
    /// When others lie in another.
    pub(super) fn keep(&mut self, tensor: Range<usize>, resident: Arc<dyn Resident>) {
        let is_same = self.resident.as_ref().is_some_and(|own| Arc::ptr_eq(own, &resident));
        assert!(
            is_same || self.is_empty(),
            "the tensors of one gradient lie in one memory elsewhere"
        );
        self.resident = Some(resident);
        self.left_there += usize::from(!tensor.is_empty());
        self.kept.insert(tensor.clone());
        self.some.store(!self.is_empty(), Ordering::Release);
        self.waiting.insert(tensor);
    }

    /// This tensor, which is written here, lies in `resident` as well.
    pub(super) fn keep_as_well(&mut self, tensor: Range<usize>, resident: &Arc<dyn Resident>) {
        self.resident = Some(Arc::clone(resident));
        self.kept.insert(tensor);
    }

    /// A tensor is written here. Whether it is the first.
    pub(super) const fn write_here(&mut self) -> bool {
        !std::mem::replace(&mut self.wrote_here, true)
    }

    pub(super) const fn has_written_here(&self) -> bool {
        self.wrote_here
    }

    /// Where a gradient of so many tensors that have elements lies: all of them in the resident, or not. None while that is not known.
    pub(super) fn lies(&self, tensors: usize) -> Option<Option<Arc<dyn Resident>>> {
        if self.wrote_here || tensors == 0 {
            return Some(None);
        }
        (self.left_there == tensors).then(|| self.resident.clone())
    }

    /// Whether some of these bytes lie there.
    pub(super) fn has_some_of(&self, range: &Range<usize>) -> bool {
        self.kept
            .0
            .range(..range.end)
            .next_back()
            .is_some_and(|(_, end)| *end > range.start)
    }

    /// What lies there is written anew: nothing can be asked for.
    pub(super) fn rewrite(&mut self) {
        self.waiting.0.clear();
        (self.left_there, self.wrote_here) = (0, false);
    }

    /// From now on nothing lies there. Its memory is kept, for the next gradient.
    pub(super) fn forget(&mut self) {
        self.kept.0.clear();
        self.waiting.0.clear();
        self.some.store(false, Ordering::Release);
        self.lost = None;
    }

    /// Likewise, and its memory is not kept.
    pub(super) fn let_go(&mut self) {
        self.forget();
        self.resident = None;
    }

    /// What lies there is not what was to be written.
    pub(super) fn lose(&mut self, reason: ResidentError) {
        self.lost = Some(reason);
    }

    pub(super) const fn lost(&self) -> Option<&ResidentError> {
        self.lost.as_ref()
    }

    /// What is to be asked for because `chunk` is, from which; it counts as asked for from now on. Sums travel from the end to the start, so what lies
    /// before comes next.
    pub(super) fn ask(&mut self, chunk: Range<usize>) -> Vec<(Arc<dyn Resident>, Range<usize>)> {
        let Some(resident) = &self.resident else {
            return Vec::new();
        };
        let group = chunk.start / LOWERED_BYTES;
        let groups = (group.saturating_sub(LOWERED_AHEAD)..=group).rev();
        let parts = groups.flat_map(|group| self.waiting.take(&(group * LOWERED_BYTES..(group + 1) * LOWERED_BYTES)));
        parts.map(|part| (Arc::clone(resident), part)).collect()
    }
}

/// Ranges that do not overlap: where each starts, and where it ends.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }

    /// Takes out what lies in `of`, in order.
    fn take(&mut self, of: &Range<usize>) -> Vec<Range<usize>> {
        let before = self.0.range(..of.start).next_back().filter(|(_, end)| **end > of.start);
        let first = before.map_or(of.start, |(start, _)| *start);
        let touched: Vec<_> = self.0.range(first..of.end).map(|(start, end)| *start..*end).collect();
        let mut taken = Vec::with_capacity(touched.len());
        for range in touched {
            self.0.remove(&range.start);
            self.insert(range.start..of.start.min(range.end));
            self.insert(of.end.max(range.start)..range.end);
            taken.push(range.start.max(of.start)..range.end.min(of.end));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_taken_out_of_ranges_is_what_was_in_them(
            lengths in prop::collection::vec((0..9_usize, 0..9_usize), 0..12),
            takes in prop::collection::vec((0..150_usize, 0..60_usize), 0..8),
        ) {
            let (mut ranges, mut bytes, mut end) = (Ranges::default(), std::collections::BTreeSet::new(), 0);
            for (gap, length) in lengths {
                let range = end + gap..end + gap + length;
                end = range.end;
                bytes.extend(range.clone());
                ranges.insert(range);
            }
            for (start, length) in takes {
                let of = start..start + length;
                let taken: Vec<usize> = ranges.take(&of).into_iter().flatten().collect();
                let expected: Vec<usize> = bytes.iter().copied().filter(|byte| of.contains(byte)).collect();
                prop_assert_eq!(taken, expected);
                bytes.retain(|byte| !of.contains(byte));
            }
            let left: Vec<usize> = ranges.0.iter().flat_map(|(start, end)| *start..*end).collect();
            prop_assert_eq!(left, bytes.into_iter().collect::<Vec<_>>());
        }
    }
}
