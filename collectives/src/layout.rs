//! Where each tensor of a gradient lies in its bytes. Knows no values, and not which worker computes them.
//!
//! ```text
//! | tensor 0 | zeros | tensor 1 | zeros | … | auxiliary f64 sums | sample count u64 |
//! ^ 64-byte boundary ^ 64-byte boundary      ^ 64-byte boundary
//! ```
//! Everything is little-endian, and everything is added element by element, the sample count too.

use std::collections::BTreeSet;
use std::ops::Range;

use sardana_protocol::limits::{MAX_AUXILIARY, MAX_GRADIENT_BYTES, MAX_TENSORS, MAX_TEXT_BYTES};
use sardana_protocol::state::{Dtype, TensorSpec};

use crate::limits::{ALIGNMENT, CHUNK_BYTES};

const WORD: usize = 8;

/// The bytes of a gradient: tensors of f32 or f64, then auxiliary f64 sums, then the number of samples. Equal on all workers
/// of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<TensorSpec>,
    offsets: Vec<usize>,
    auxiliary: usize,
    auxiliary_start: usize,
    bytes: usize,
}

/// A run of elements of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Range<usize>,
}

/// Why a list of tensors cannot be a gradient. The caller corrects the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Give the model fewer tensors.
    #[error("a gradient has at most {MAX_TENSORS} tensors, found {0}: join some of them")]
    TooManyTensors(usize),
    /// Report fewer metrics.
    #[error("a gradient has at most {MAX_AUXILIARY} auxiliary sums, found {0}: report fewer")]
    TooManyAuxiliary(usize),
    /// Visit a tensor once, or rename one.
    #[error("two tensors are called `{0}`: give each its own name")]
    DuplicateName(String),
    /// Shorten the name.
    #[error("a tensor's name has at most {MAX_TEXT_BYTES} bytes, found {0}: shorten it")]
    LongName(usize),
    /// Leave counters out of the gradient: they are part of the state only.
    #[error("gradient tensors are f32 or f64, found `{0}`: keep counters in the state only")]
    Dtype(TensorSpec),
    /// Correct the shape.
    #[error("a gradient has at most {MAX_GRADIENT_BYTES} bytes, and `{0}` goes beyond: correct its shape")]
    TooLarge(TensorSpec),
}

impl Layout {
    /// Lays out `tensors` in this order, then `auxiliary` sums and the sample count.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn new(tensors: Vec<TensorSpec>, auxiliary: usize) -> Result<Self, LayoutError> {
        if tensors.len() > MAX_TENSORS {
            return Err(LayoutError::TooManyTensors(tensors.len()));
        }
        if auxiliary > MAX_AUXILIARY {
            return Err(LayoutError::TooManyAuxiliary(auxiliary));
        }
        check_names(&tensors)?;
        let mut offsets = Vec::with_capacity(tensors.len());
        let mut end = 0;
        for spec in &tensors {
            offsets.push(end);
            end = after(spec, end)?;
        }
        Ok(Self {
            offsets,
            auxiliary,
            auxiliary_start: end,
            bytes: end + (auxiliary + 1) * WORD,
            tensors,
        })
    }

    /// The tensors, in order. A tensor's index here is how it is named when it is written or read.
    #[must_use]
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// How many auxiliary sums there are.
    #[must_use]
    pub const fn auxiliary(&self) -> usize {
        self.auxiliary
    }

    /// Bytes of a whole gradient.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many chunks a gradient travels in; at least one.
    ///
    /// # Panics
    /// Never: `MAX_GRADIENT_BYTES` bounds the chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(CHUNK_BYTES)).expect("MAX_GRADIENT_BYTES bounds the chunks")
    }

    /// The bytes of chunk `index`; no element lies in two chunks. Empty when there is no such chunk.
    #[must_use]
    pub fn chunk(&self, index: u32) -> Range<usize> {
        let at = |index: u64| {
            let byte = index.saturating_mul(CHUNK_BYTES as u64);
            usize::try_from(byte).map_or(self.bytes, |byte| byte.min(self.bytes))
        };
        at(u64::from(index))..at(u64::from(index) + 1)
    }

    /// The chunks in the order in which a sum travels. A backward pass writes the last layers' gradients first, so theirs go first; and at the very
    /// end goes the last chunk, since it has the number of samples, which is written last.
    pub fn travel(&self) -> impl Iterator<Item = u32> + use<> {
        let last = self.chunks() - 1;
        (0..last).rev().chain([last])
    }

    /// The bytes of tensor `index`, an index into [`Self::tensors`]. None if there is no such tensor.
    #[must_use]
    pub fn tensor_bytes(&self, index: usize) -> Option<Range<usize>> {
        self.tensor(index).map(|section| section.bytes)
    }

    /// How many bytes all tensors take, from the first byte on: what comes behind them are the sums and the count.
    #[must_use]
    pub const fn tensors_end(&self) -> usize {
        self.auxiliary_start
    }

    /// What all tensors are made of, if it is the same and there are any.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        let first = self.tensors.first()?.dtype;
        self.tensors.iter().all(|spec| spec.dtype == first).then_some(first)
    }

    /// How many bytes of chunk `index` hold elements.
    pub(crate) fn bytes_in_chunk(&self, index: u32) -> usize {
        self.sections(self.chunk(index)).map(|section| section.bytes.len()).sum()
    }

    /// The bytes of tensor `index` without the zeros behind it.
    pub(crate) fn tensor(&self, index: usize) -> Option<Section> {
        let spec = self.tensors.get(index)?;
        let start = *self.offsets.get(index)?;
        Some(Section {
            dtype: spec.dtype,
            bytes: start..start + spec.bytes()?,
        })
    }

    /// The bytes of all auxiliary sums.
    pub(crate) const fn auxiliary_bytes(&self) -> Range<usize> {
        self.auxiliary_start..self.auxiliary_start + self.auxiliary * WORD
    }

    /// The bytes of the sample count.
    pub(crate) const fn samples_bytes(&self) -> Range<usize> {
        self.bytes - WORD..self.bytes
    }

    /// The runs of elements that lie in `range`, cut to it. The zeros between tensors are in none.
    pub(crate) fn sections(&self, range: Range<usize>) -> impl Iterator<Item = Section> + '_ {
        let first = self.offsets.partition_point(|&start| start <= range.start).saturating_sub(1);
        let tensors = (first..self.tensors.len()).map_while(|index| self.tensor(index)).take_while({
            let end = range.end;
            move |section| section.bytes.start < end
        });
        let tail = [
            Section {
                dtype: Dtype::F64,
                bytes: self.auxiliary_bytes(),
            },
            Section {
                dtype: Dtype::U64,
                bytes: self.samples_bytes(),
            },
        ];
        tensors.chain(tail).filter_map(move |section| {
            let bytes = section.bytes.start.max(range.start)..section.bytes.end.min(range.end);
            (!bytes.is_empty()).then_some(Section {
                dtype: section.dtype,
                bytes,
            })
        })
    }
}

/// `range` in parts, each of which lies in one chunk.
pub(crate) fn cut(range: Range<usize>) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let chunks = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
    chunks.map(move |chunk| range.start.max(chunk * CHUNK_BYTES)..range.end.min((chunk + 1) * CHUNK_BYTES))
}

fn check_names(tensors: &[TensorSpec]) -> Result<(), LayoutError> {
    let mut names = BTreeSet::new();
    for spec in tensors {
        if spec.name.len() > MAX_TEXT_BYTES {
            return Err(LayoutError::LongName(spec.name.len()));
        }
        if !names.insert(spec.name.as_str()) {
            return Err(LayoutError::DuplicateName(spec.name.clone()));
        }
        match spec.dtype {
            Dtype::F32 | Dtype::F64 => {}
            Dtype::U64 => return Err(LayoutError::Dtype(spec.clone())),
        }
    }
    Ok(())
}

/// The first aligned byte behind `spec` when it starts at `start`.
fn after(spec: &TensorSpec, start: usize) -> Result<usize, LayoutError> {
    spec.bytes()
        .and_then(|bytes| bytes.checked_add(start))
        .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
        // The auxiliary sums and the count are within this bound too: they are less than a chunk.
        .filter(|&end| end <= MAX_GRADIENT_BYTES - CHUNK_BYTES)
        .ok_or_else(|| LayoutError::TooLarge(spec.clone()))
}

const _: () = assert!((MAX_AUXILIARY + 1) * WORD <= CHUNK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: Dtype, shape: &[usize]) -> TensorSpec {
        TensorSpec::new(name, dtype, shape)
    }

    #[test]
    fn tensors_start_at_cache_lines_and_the_count_comes_last() {
        let layout = Layout::new(vec![spec("a", Dtype::F32, &[3]), spec("b", Dtype::F64, &[2, 5])], 2).unwrap();
        assert_eq!(layout.tensor(0).unwrap().bytes, 0..12);
        assert_eq!(layout.tensor(1).unwrap().bytes, 64..144);
        assert_eq!(layout.tensor(2), None);
        assert_eq!(layout.auxiliary_bytes(), 192..208);
        assert_eq!(layout.samples_bytes(), 208..216);
        assert_eq!(layout.bytes(), 216);
        assert_eq!(layout.chunks(), 1);
        assert_eq!(layout.chunk(0), 0..216);
        assert_eq!(layout.chunk(1), 216..216);
        assert_eq!(layout.chunk(u32::MAX), 216..216);
    }

    #[test]
    fn chunks_and_sections_tile_the_gradient() {
        let tensors = vec![
            spec("a", Dtype::F32, &[100_001]),
            spec("none", Dtype::F32, &[0]),
            spec("b", Dtype::F64, &[40_000]),
            spec("scalar", Dtype::F64, &[]),
        ];
        let layout = Layout::new(tensors, 3).unwrap();
        let mut end = 0;
        let mut elements = [0, 0, 0];
        for index in 0..layout.chunks() {
            let chunk = layout.chunk(index);
            assert_eq!(chunk.start, end);
            assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES);
            end = chunk.end;
            for section in layout.sections(chunk.clone()) {
                assert!(chunk.start <= section.bytes.start && section.bytes.end <= chunk.end);
                let whole = section.bytes.len() / section.dtype.bytes();
                assert_eq!(whole * section.dtype.bytes(), section.bytes.len(), "no element is split");
                elements[section.dtype as usize] += whole;
            }
        }
        assert_eq!(end, layout.bytes());
        assert_eq!(elements, [100_001, 40_000 + 1 + 3, 1]);
    }

    #[test]
    fn a_gradient_without_tensors_still_counts_samples() {
        let layout = Layout::new(Vec::new(), 0).unwrap();
        assert_eq!((layout.bytes(), layout.chunks()), (8, 1));
        assert_eq!(layout.sections(0..8).count(), 1);
    }

    #[test]
    fn what_cannot_be_a_gradient_is_refused() {
        let huge = spec("huge", Dtype::F64, &[usize::MAX, usize::MAX]);
        assert_eq!(Layout::new(vec![huge.clone()], 0), Err(LayoutError::TooLarge(huge)));
        let large = spec("large", Dtype::F64, &[MAX_GRADIENT_BYTES / 8]);
        assert_eq!(Layout::new(vec![large.clone()], 0), Err(LayoutError::TooLarge(large)));
        let counter = spec("counter", Dtype::U64, &[]);
        assert_eq!(Layout::new(vec![counter.clone()], 0), Err(LayoutError::Dtype(counter)));
        let twice = vec![spec("a", Dtype::F32, &[]), spec("a", Dtype::F32, &[])];
        assert_eq!(Layout::new(twice, 0), Err(LayoutError::DuplicateName("a".to_owned())));
        let long = vec![spec(&"x".repeat(MAX_TEXT_BYTES + 1), Dtype::F32, &[])];
        assert_eq!(Layout::new(long, 0), Err(LayoutError::LongName(MAX_TEXT_BYTES + 1)));
        assert_eq!(
            Layout::new(Vec::new(), MAX_AUXILIARY + 1),
            Err(LayoutError::TooManyAuxiliary(MAX_AUXILIARY + 1))
        );
        let many = (0..=MAX_TENSORS)
            .map(|index| spec(&index.to_string(), Dtype::F32, &[]))
            .collect();
        assert_eq!(Layout::new(many, 0), Err(LayoutError::TooManyTensors(MAX_TENSORS + 1)));
    }
}
