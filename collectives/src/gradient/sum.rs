//! A finished sum and its mean. Knows not how it was added.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;

use super::{GradientBuffer, GradientError, Resident, locate, read_u64};
use crate::layout::Layout;
use crate::mapping::Mapping;

/// Bytes that cannot be a sum of a layout: the peer that sent them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sum of {step} has {expected} bytes, found {found}: fetch it from another rank")]
pub struct SumLengthError {
    /// The sum's step.
    pub step: Step,
    /// Bytes of the layout.
    pub expected: usize,
    /// Bytes found.
    pub found: usize,
}

/// A finished sum over all shards of one step. Some of it may lie where another process of this host has it.
#[derive(Debug)]
pub struct Sum {
    step: Step,
    buffer: GradientBuffer,
    /// All of it at one place, if it is not and somebody has asked for that.
    gathered: OnceLock<Box<[u8]>>,
}

impl Sum {
    /// The sum of `step` with these bytes, as another rank sent them.
    ///
    /// # Errors
    /// When there are not as many as `layout` has.
    pub fn from_bytes(step: Step, layout: &Layout, bytes: Vec<u8>) -> Result<Self, SumLengthError> {
        if bytes.len() != layout.bytes() {
            return Err(SumLengthError {
                step,
                expected: layout.bytes(),
                found: bytes.len(),
            });
        }
        Ok(Self::from_buffer(step, GradientBuffer::of(bytes)))
    }

    /// The sum of `step` that fills `buffer`: a running sum over all shards, and [here](GradientBuffer::lower).
    #[must_use]
    pub const fn from_buffer(step: Step, buffer: GradientBuffer) -> Self {
        let gathered = OnceLock::new();
        Self { step, buffer, gathered }
    }

    /// The step it updates: from `step` to `step + 1`.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Its bytes, laid out by its layout. Where they do not lie at one place the first call copies them, which takes memory and time: whatever can read them
    /// [in runs](Self::runs) does so.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if !self.buffer.borrows() {
            return self.buffer.bytes();
        }
        self.gathered.get_or_init(|| {
            let mut all = Vec::with_capacity(self.buffer.length());
            self.runs(0..self.buffer.length()).for_each(|run| all.extend_from_slice(run));
            all.into_boxed_slice()
        })
    }

    /// Whether other processes of this host have some of it, and this one reads it there. They cannot write there before it is dropped, or
    /// [its buffer](Self::into_buffer) is taken.
    #[must_use]
    pub const fn is_borrowed(&self) -> bool {
        self.buffer.borrows()
    }

    /// The bytes `range` in the runs in which they lie, one after the other. No element of a tensor lies in two.
    ///
    /// # Panics
    /// When the sum has not so many.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.mapped_runs(range).map(|(run, _)| run)
    }

    /// The same, each with what it is mapped as, if it is: for what can be told of that, and copies from there by itself.
    ///
    /// # Panics
    /// As [`Self::runs`].
    pub fn mapped_runs(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], Option<&Mapping>)> {
        self.buffer.runs(range)
    }

    /// Reads the elements in `range`, run after run: within one the compiler has several at once.
    fn read<const BYTES: usize, T>(&self, range: Range<usize>, out: &mut [T], value: impl Fn([u8; BYTES]) -> T) {
        let mut left = out;
        for run in self.runs(range) {
            let (elements, _) = run.as_chunks::<BYTES>();
            let (here, rest) = left.split_at_mut(elements.len());
            here.iter_mut().zip(elements).for_each(|(out, bytes)| *out = value(*bytes));
            left = rest;
        }
    }

    /// What holds all tensors of the sum elsewhere as well, where a worker was alone and added them there.
    #[must_use]
    pub fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.buffer.resident(layout)
    }

    /// It lies here alone from now on: for a sum that is kept after it was applied.
    pub fn let_go_elsewhere(&self) {
        self.buffer.let_go_elsewhere();
    }

    /// The buffer, to be used again.
    #[must_use]
    pub fn into_buffer(mut self) -> GradientBuffer {
        self.buffer.give_back();
        self.buffer
    }

    /// n: samples in the global batch.
    ///
    /// # Panics
    /// When `layout` is longer than the sum's.
    #[must_use]
    pub fn samples(&self, layout: &Layout) -> u64 {
        let mut count = self.runs(layout.samples_bytes());
        read_u64(count.next().expect("a count lies in one chunk"))
    }

    /// The auxiliary sums over all shards.
    ///
    /// # Panics
    /// When `layout` is longer than the sum's.
    #[must_use]
    pub fn auxiliary(&self, layout: &Layout) -> Vec<f64> {
        let runs = self.runs(layout.auxiliary_bytes());
        let elements = runs.flat_map(|run| run.as_chunks::<8>().0);
        elements.map(|bytes| f64::from_le_bytes(*bytes)).collect()
    }

    /// G / n, read tensor by tensor.
    ///
    /// # Panics
    /// When `layout` is not as long as the sum's.
    #[must_use]
    pub fn mean<'a>(&'a self, layout: &'a Layout) -> Mean<'a> {
        assert_eq!(self.buffer.length(), layout.bytes(), "a sum is read with its own layout");
        Mean { sum: self, layout }
    }
}

impl Clone for Sum {
    fn clone(&self) -> Self {
        Self::from_buffer(self.step, GradientBuffer::of(self.bytes().to_vec()))
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.step == other.step && self.bytes() == other.bytes()
    }
}

impl Eq for Sum {}

/// Most elements of a run of [`Mean::runs_f32`].
pub const RUN_ELEMENTS: usize = 1_024;

/// A finished sum divided by its number of samples, element by element while it is copied out.
#[derive(Clone, Copy, Debug)]
pub struct Mean<'a> {
    sum: &'a Sum,
    layout: &'a Layout,
}

impl Mean<'_> {
    /// n: samples in the global batch.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.sum.samples(self.layout)
    }

    /// The sum, not divided.
    #[must_use]
    pub const fn sum(&self) -> &Sum {
        self.sum
    }

    /// Where its tensors lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        self.layout
    }

    /// The auxiliary sums, not divided.
    #[must_use]
    pub fn auxiliary(&self) -> Vec<f64> {
        self.sum.auxiliary(self.layout)
    }

    /// Copies the f32 tensor `tensor` divided by n, row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or n is 0.
    #[expect(clippy::cast_precision_loss, reason = "n is divided by as f32 on every worker alike")]
    pub fn copy_f32(&self, tensor: usize, out: &mut [f32]) -> Result<(), GradientError> {
        let at = locate(self.layout, tensor, Dtype::F32, out.len())?;
        let n = self.divisor()? as f32;
        self.sum.read(at, out, |bytes| f32::from_le_bytes(bytes) / n);
        Ok(())
    }

    /// Copies the f64 tensor `tensor` divided by n, row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or n is 0.
    #[expect(clippy::cast_precision_loss, reason = "n is divided by as f64 on every worker alike")]
    pub fn copy_f64(&self, tensor: usize, out: &mut [f64]) -> Result<(), GradientError> {
        let at = locate(self.layout, tensor, Dtype::F64, out.len())?;
        let n = self.divisor()? as f64;
        self.sum.read(at, out, |bytes| f64::from_le_bytes(bytes) / n);
        Ok(())
    }

    /// Lends the f32 tensor `tensor` divided by n, row-major, in runs of at most [`RUN_ELEMENTS`]: nothing is allocated, and each run is
    /// in the processor's nearest cache while it is used. Each run comes with the place of its first element. Runs are the same on every worker.
    ///
    /// # Errors
    /// When there is no such tensor of that type, or n is 0.
    #[expect(clippy::cast_precision_loss, reason = "n is divided by as f32 on every worker alike")]
    pub fn runs_f32(&self, tensor: usize, mut see: impl FnMut(usize, &mut [f32])) -> Result<(), GradientError> {
        let at = locate(self.layout, tensor, Dtype::F32, elements(self.layout, tensor))?;
        let n = self.divisor()? as f32;
        let mut values = [0.0; RUN_ELEMENTS];
        for first in at.clone().step_by(RUN_ELEMENTS * size_of::<f32>()) {
            // The same runs on every rank, wherever a rank has the sum: what is reckoned from them must not differ.
            let end = at.end.min(first + RUN_ELEMENTS * size_of::<f32>());
            let run = &mut values[..(end - first) / size_of::<f32>()];
            self.sum.read(first..end, run, |bytes| f32::from_le_bytes(bytes) / n);
            see((first - at.start) / size_of::<f32>(), run);
        }
        Ok(())
    }

    /// The f32 tensor `tensor` divided by n, row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that type, or n is 0.
    pub fn f32(&self, tensor: usize) -> Result<Vec<f32>, GradientError> {
        let mut out = vec![0.0; elements(self.layout, tensor)];
        self.copy_f32(tensor, &mut out)?;
        Ok(out)
    }

    /// The f64 tensor `tensor` divided by n, row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that type, or n is 0.
    pub fn f64(&self, tensor: usize) -> Result<Vec<f64>, GradientError> {
        let mut out = vec![0.0; elements(self.layout, tensor)];
        self.copy_f64(tensor, &mut out)?;
        Ok(out)
    }

    /// What the sum is divided by, n, once in the type of each tensor: for what divides where the parameters lie, and not here.
    ///
    /// # Errors
    /// When n is 0.
    pub fn divisor(&self) -> Result<u64, GradientError> {
        match self.samples() {
            0 => Err(GradientError::NoSamples),
            samples => Ok(samples),
        }
    }
}

fn elements(layout: &Layout, tensor: usize) -> usize {
    layout.tensors().get(tensor).and_then(TensorSpec::elements).unwrap_or(0)
}
