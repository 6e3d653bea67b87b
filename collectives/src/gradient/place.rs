//! A tensor's place in a gradient, for what writes it elsewhere or part by part. Knows no memory but its buffer's.

use std::ops::Range;
use std::sync::Arc;

use sardana_protocol::state::Dtype;

use super::memory::Writing;
use super::writer::Written;
use super::{Resident, WriteMode};
use crate::layout::cut;
use crate::mapping::Mapping;
use crate::stores::Stores;

/// Where a tensor goes that a [`GradientWriter`](super::GradientWriter) has claimed: it is either written to a [`Resident`] and [kept](Self::keep) there, or
/// written here, [copied](Self::write_next) or [filled](Self::fill_next), from its first byte to its last. If neither is done it is [not written](super::GradientError::NotWritten).
#[derive(Debug)]
#[must_use = "a tensor is kept elsewhere or written here"]
pub struct TensorPlace<'w, 'a> {
    writing: &'w mut Writing<'a>,
    /// How far its writer finds it.
    found: &'w mut Written,
    bytes: Range<usize>,
    dtype: Dtype,
    mode: WriteMode,
    written: usize,
}

/// Where several tensors of one type go that a [`GradientWriter`](super::GradientWriter) has claimed together, so that one launch may write them all.
#[derive(Debug)]
#[must_use = "each tensor is kept elsewhere or written here"]
pub struct TensorPlaces<'w, 'a> {
    writing: &'w mut Writing<'a>,
    found: &'w mut [Written],
    /// Each one's index into the layout's tensors, and its bytes.
    claimed: Vec<(usize, Range<usize>)>,
    dtype: Dtype,
    mode: WriteMode,
}

impl<'w, 'a> TensorPlaces<'w, 'a> {
    pub(super) const fn new(
        writing: &'w mut Writing<'a>,
        found: &'w mut [Written],
        claimed: Vec<(usize, Range<usize>)>,
        dtype: Dtype,
        mode: WriteMode,
    ) -> Self {
        Self {
            writing,
            found,
            claimed,
            dtype,
            mode,
        }
    }

    /// The place of the tensor that was claimed as number `which`, from 0 on. It may be asked for until the tensor is written.
    ///
    /// # Panics
    /// When there are not so many, or it is written.
    pub fn at(&mut self, which: usize) -> TensorPlace<'_, 'a> {
        let (tensor, bytes) = self.claimed[which].clone();
        let found = &mut self.found[tensor];
        assert!(bytes.is_empty() || *found == Written::Claimed, "a tensor is written once");
        TensorPlace::new(self.writing, found, bytes, self.dtype, self.mode)
    }
}

impl<'w, 'a> TensorPlace<'w, 'a> {
    pub(super) const fn new(
        writing: &'w mut Writing<'a>,
        found: &'w mut Written,
        bytes: Range<usize>,
        dtype: Dtype,
        mode: WriteMode,
    ) -> Self {
        if bytes.start == bytes.end {
            *found = Written::Whole;
        }
        Self {
            writing,
            found,
            bytes,
            dtype,
            mode,
            written: 0,
        }
    }

    /// Its bytes in the gradient.
    #[must_use]
    pub const fn bytes(&self) -> &Range<usize> {
        &self.bytes
    }

    /// How many bytes the whole gradient has.
    #[must_use]
    pub fn gradient_bytes(&self) -> usize {
        self.writing.bytes()
    }

    /// Whether it replaces what is there, or is added to it.
    #[must_use]
    pub const fn mode(&self) -> WriteMode {
        self.mode
    }

    /// The memory elsewhere that its buffer has, whatever lies there now.
    #[must_use]
    pub fn resident(&self) -> Option<Arc<dyn Resident>> {
        self.writing.elsewhere().resident().cloned()
    }

    /// Whether it may be kept in that memory: not if it is added to what lies here.
    #[must_use]
    pub fn may_be_kept(&self) -> bool {
        match self.mode {
            WriteMode::Store => true,
            WriteMode::Add => self.bytes.is_empty() || self.writing.elsewhere().has(&self.bytes),
        }
    }

    /// Whether its buffer may have another memory elsewhere: not if tensors of the gradient lie in the one that it has.
    #[must_use]
    pub fn may_have_another(&self) -> bool {
        self.writing.elsewhere().is_empty()
    }

    /// It is written to `resident`, or will be before that brings it: from there it is asked for. The buffer has this memory from now on.
    ///
    /// # Panics
    /// When it may not be kept there, a part of it was written here, or other tensors of the gradient lie in another memory.
    pub fn keep(self, resident: Arc<dyn Resident>) {
        assert!(self.may_be_kept() && self.written == 0, "a tensor lies in one place");
        self.writing.keep(self.bytes, resident);
        *self.found = Written::Whole;
    }

    /// As what the gradient's memory is mapped, if it is.
    #[must_use]
    pub fn mapping(&self) -> Option<&Mapping> {
        self.writing.mapping()
    }

    /// Writes its next bytes here, or adds them. No element is split.
    ///
    /// # Panics
    /// When there are more than it has left, or it lies elsewhere.
    pub fn write_next(&mut self, bytes: &[u8]) {
        let range = self.next(bytes.len());
        let stores = Stores::of(self.gradient_bytes());
        for part in cut(range.clone()) {
            let values = &bytes[part.start - range.start..part.end - range.start];
            self.writing
                .write(part, |here| self.mode.put_bytes(self.dtype, stores, here, values));
        }
        self.wrote(range);
    }

    /// Lets `fill` store so many next bytes here. No element is split.
    ///
    /// # Errors
    /// What `fill` says: they are not written then.
    ///
    /// # Panics
    /// As [`Self::write_next`], or when it is added to what is there.
    pub fn fill_next<E>(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        assert!(self.mode == WriteMode::Store, "what is stored replaces what is there");
        let range = self.next(bytes);
        self.writing.try_write(range.clone(), fill)?;
        self.wrote(range);
        Ok(())
    }

    /// Where so many next bytes go.
    fn next(&self, bytes: usize) -> Range<usize> {
        let start = self.bytes.start + self.written;
        let end = start + bytes;
        let fits = end <= self.bytes.end && bytes.is_multiple_of(self.dtype.bytes());
        assert!(fits, "{} bytes are left of a tensor", self.bytes.end - start);
        assert!(!self.writing.elsewhere().has(&self.bytes), "a tensor lies in one place");
        self.writing.write_here();
        start..end
    }

    fn wrote(&mut self, range: Range<usize>) {
        self.written += range.len();
        if range.end == self.bytes.end {
            *self.found = Written::Whole;
        }
    }
}
