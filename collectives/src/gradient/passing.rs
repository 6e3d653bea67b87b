//! A part of a running sum on its way through memory elsewhere, where gradients lie that are added to it. Knows not where that is.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use sardana_protocol::state::Dtype;
use tokio::sync::oneshot;

use super::{Lowering, Resident, ResidentError};
use crate::borrowed::Borrowed;
use crate::limits::LOWERED_BYTES;
use crate::mapping::Mapping;
use crate::pages::InPlace;

/// Memory of the host through which parts of a running sum pass, one after the other. What they pass copies from it and to it.
pub trait Slot: Any + Debug + Send {
    /// Its bytes, [`LOWERED_BYTES`] or more, once nothing copies from it or to it any more. A ring asks for those of slots that it was just given, or that have come
    /// back, on the thread of the network: it is not to wait there.
    ///
    /// # Errors
    /// When what copies has failed.
    fn bytes(&mut self) -> Result<&mut [u8], ResidentError>;

    /// The same bytes, with the pages in which they lie, if they do: another process may read them there for longer than the slot is held, so that
    /// what gives slots gives none again that [is read](crate::pages::Pages::are_read).
    ///
    /// # Errors
    /// As [`Self::bytes`].
    fn in_place(&mut self) -> Result<InPlace<'_>, ResidentError> {
        Ok(InPlace::new(self.bytes()?, None))
    }
}

/// Memory that nothing copies from or to by itself.
#[derive(Debug)]
pub(super) struct PlainSlot(Box<[u8]>);

impl PlainSlot {
    pub(super) fn new() -> Self {
        Self(vec![0; LOWERED_BYTES].into())
    }
}

impl Slot for PlainSlot {
    fn bytes(&mut self) -> Result<&mut [u8], ResidentError> {
        Ok(&mut self.0)
    }
}

/// A part of a running sum where the rank before has it, another process of the host, in chunks that are returned by being dropped.
#[derive(Debug)]
pub struct Lent {
    /// Where each begins in the part, from the first on.
    chunks: Vec<(usize, Borrowed)>,
}

impl Lent {
    /// Its bytes in the runs in which they lie, each with where it begins in the part.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let together = |one: &(usize, Borrowed), next: &(usize, Borrowed)| {
            one.0 + one.1.len() == next.0 && Borrowed::lie_together(Some(&one.1), Some(&next.1))
        };
        self.chunks.chunk_by(together).map(|run| {
            let (at, first) = &run[0];
            let bytes = run.iter().map(|(_, chunk)| chunk.len()).sum();
            (*at, first.and_what_follows(0, bytes))
        })
    }

    /// What they are mapped as.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.chunks.iter().map(|(_, chunk)| chunk.mapping())
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().map(|(_, chunk)| chunk.len()).sum()
    }
}

/// A part of a running sum, or room for one that begins: at most [`LOWERED_BYTES`] of the tensors, all of whose elements are of one
/// type, and zeros between them. One that is dropped unfinished fails.
#[derive(Debug)]
pub struct Passing {
    range: Range<usize>,
    dtype: Dtype,
    begins: bool,
    slot: Box<dyn Slot>,
    lent: Lent,
    goes: Option<Lowering>,
    stays: Option<Arc<dyn Resident>>,
    done: oneshot::Sender<Result<Box<dyn Slot>, ResidentError>>,
}

/// Where it comes when it is finished.
pub(crate) type Passed = oneshot::Receiver<Result<Box<dyn Slot>, ResidentError>>;

impl Passing {
    /// The bytes `range` of a gradient, which `slot` begins with. What else is there stays.
    pub(crate) fn new(range: Range<usize>, dtype: Dtype, begins: bool, slot: Box<dyn Slot>) -> (Self, Passed) {
        let (done, passed) = oneshot::channel();
        let passing = Self {
            range,
            dtype,
            begins,
            slot,
            lent: Lent { chunks: Vec::new() },
            goes: None,
            stays: None,
            done,
        };
        (passing, passed)
    }

    /// These chunks of the sum so far are not in the slot: each with where it begins in the part.
    pub(crate) fn lent(self, mut chunks: Vec<(usize, Borrowed)>) -> Self {
        chunks.sort_unstable_by_key(|(at, _)| *at);
        let lent = Lent { chunks };
        Self { lent, ..self }
    }

    /// It is finished here: it goes to `goes`, which has as many bytes, and stays in `stays` as well.
    pub(crate) fn finished_in(self, goes: Option<Lowering>, stays: Option<Arc<dyn Resident>>) -> Self {
        Self { goes, stays, ..self }
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

    /// Whether the sum begins with the first gradient, bit for bit: then there is none so far.
    #[must_use]
    pub const fn begins(&self) -> bool {
        self.begins
    }

    /// The sum so far, if the rank before has lent all of it and `reaches` says so of each place where it lies: then it is not in the slot.
    #[must_use]
    pub fn lent_if(&mut self, reaches: impl Fn(&Mapping) -> bool) -> Option<Lent> {
        let taken = self.lent.bytes() == self.range.len() && self.lent.mappings().all(reaches);
        let none = Lent { chunks: Vec::new() };
        taken.then(|| std::mem::replace(&mut self.lent, none))
    }

    /// Where the sum so far is, unless it was [lent](Self::lent_if), in as many bytes as the range has, and where the new one is to be, unless it
    /// [goes](Self::goes_if) elsewhere: a slot of the [`Resident`] that the part is to pass.
    #[must_use]
    pub fn slot(&mut self) -> &mut dyn Slot {
        if !self.lent.chunks.is_empty()
            && let Ok(bytes) = self.slot.bytes()
        {
            for (at, chunk) in self.lent.chunks.drain(..) {
                bytes[at..at + chunk.len()].copy_from_slice(&chunk);
            }
        }
        &mut *self.slot
    }

    /// Where the sum goes, if it is finished here and `reaches` says so. What takes this has written it there before it [finishes](Self::finish) the part, and leaves the
    /// slot as it is; else it goes there from its slot.
    #[must_use]
    pub fn goes_if(&mut self, reaches: impl FnOnce(&Lowering) -> bool) -> Option<Lowering> {
        self.goes.take_if(|goes| reaches(goes))
    }

    /// In what the sum is to stay as well, if it is finished here: memory that [`Resident::another`] gave. It is told once.
    #[must_use]
    pub const fn stays(&mut self) -> Option<Arc<dyn Resident>> {
        self.stays.take()
    }

    /// The sum is in its slot, or where it goes.
    pub fn finish(mut self) {
        let placed = match self.goes.take() {
            Some(goes) => self.place(goes),
            None => Ok(()),
        };
        // A ring that was given up does not want it any more.
        let _ = self.done.send(placed.map(|()| self.slot));
    }

    fn place(&mut self, goes: Lowering) -> Result<(), ResidentError> {
        match self.slot.bytes() {
            Ok(sum) => {
                goes.write(|here| here.copy_from_slice(&sum[..here.len()]));
                Ok(())
            }
            Err(error) => {
                goes.fail(error.clone());
                Err(error)
            }
        }
    }

    /// It could not be added up.
    pub fn fail(self, reason: ResidentError) {
        // Those that wait for the sum itself are told the same.
        if let Some(goes) = self.goes {
            goes.fail(reason.clone());
        }
        // As above.
        let _ = self.done.send(Err(reason));
    }
}
