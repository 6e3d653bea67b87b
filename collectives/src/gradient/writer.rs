//! Writing one shard's gradient into a buffer. Knows no values beyond the shard's.

use std::error::Error;
use std::mem::take;
use std::ops::Range;

use sardana_protocol::state::{Dtype, TensorSpec};

#[cfg(doc)]
use super::GradientBuffer;
use super::enqueued::Find;
use super::memory::Writing;
use super::{Enqueued, GradientError, ResidentError, SettleError, TensorPlace, TensorPlaces, WriteMode, locate, read_u64};
use crate::layout::{Layout, Section, cut};
use crate::reduce;
use crate::stores::Stores;

/// Writes one shard's gradient into a buffer. The order in which tensors are written does not matter.
#[derive(Debug)]
#[must_use = "a shard's gradient counts only once `finish`, `enqueue` or `zero` has said that it is whole"]
pub struct GradientWriter<'a> {
    writing: Writing<'a>,
    layout: &'a Layout,
    mode: WriteMode,
    /// How far each tensor is.
    tensors: &'a mut [Written],
    /// Which auxiliary sums are reported.
    auxiliary: &'a mut [Written],
    /// Reported sums, where earlier shards of the buffer owe theirs: these are added after those. Else they are in the buffer.
    held: Vec<f64>,
    /// What finds the sums, once it is computed.
    later: Option<Find>,
    /// How many shards' sums the buffer lacks.
    owed: &'a mut usize,
    samples: usize,
}

/// How far what a gradient is made of is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    No,
    /// It has its [`TensorPlace`].
    Claimed,
    Whole,
}

impl Written {
    /// Whether it was not begun. From now on it is `to`.
    fn begin(&mut self, to: Self) -> bool {
        let is_new = *self == Self::No;
        if is_new {
            *self = to;
        }
        is_new
    }
}

impl<'a> GradientWriter<'a> {
    /// `written` is memory for what is written by and by; `owed` is how many shards' sums the buffer lacks.
    pub(super) fn new(
        writing: Writing<'a>,
        (written, owed): (&'a mut Vec<Written>, &'a mut usize),
        layout: &'a Layout,
        mode: WriteMode,
    ) -> Self {
        let tensors = layout.tensors().len();
        written.clear();
        written.resize(tensors + layout.auxiliary(), Written::No);
        let (tensors, auxiliary) = written.split_at_mut(tensors);
        Self {
            tensors,
            auxiliary,
            held: if *owed > 0 {
                vec![0.0; layout.auxiliary()]
            } else {
                Vec::new()
            },
            later: None,
            owed,
            samples: 0,
            writing,
            layout,
            mode,
        }
    }

    /// Writes all values of the f32 tensor `tensor`, an index into [`Layout::tensors`], row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or it is already written.
    pub fn write_f32(&mut self, tensor: usize, values: &[f32]) -> Result<(), GradientError> {
        let at = self.claim(tensor, Dtype::F32, values.len())?;
        self.put(at, values, WriteMode::put_f32);
        Ok(())
    }

    /// Lets `fill` write the f32 tensor `tensor`, row-major, where it belongs: nothing is copied where this shard's gradient is the first of
    /// its buffer. The values are 0 at first, so that a backward pass may add to them.
    ///
    /// # Errors
    /// When there is no such tensor of that type, or it is already written.
    pub fn fill_f32(&mut self, tensor: usize, fill: impl FnOnce(&mut [f32])) -> Result<(), GradientError> {
        let elements = self.layout.tensors().get(tensor).and_then(TensorSpec::elements).unwrap_or(0);
        let at = self.claim(tensor, Dtype::F32, elements)?;
        let (mode, stores) = (self.mode, Stores::of(self.layout.bytes()));
        self.writing.write(at, |bytes| {
            let own = mode == WriteMode::Store && cfg!(target_endian = "little");
            if own && let Ok(values) = bytemuck::try_cast_slice_mut::<u8, f32>(bytes) {
                values.fill(0.0);
                fill(values);
                return;
            }
            let mut values = vec![0.0; elements];
            fill(&mut values);
            mode.put_f32(stores, bytes, &values);
        });
        Ok(())
    }

    /// Writes all values of the f64 tensor `tensor`, an index into [`Layout::tensors`], row-major.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or it is already written.
    pub fn write_f64(&mut self, tensor: usize, values: &[f64]) -> Result<(), GradientError> {
        let at = self.claim(tensor, Dtype::F64, values.len())?;
        self.put_f64(at, values);
        Ok(())
    }

    /// Claims the tensor `tensor`, an index into [`Layout::tensors`], for what writes it elsewhere, or part by part. It is written once that is done.
    ///
    /// # Errors
    /// When there is no such tensor of that size and type, or it is already written.
    pub fn place(&mut self, tensor: usize, dtype: Dtype, elements: usize) -> Result<TensorPlace<'_, 'a>, GradientError> {
        let at = self.claim_anywhere(tensor, dtype, elements, Written::Claimed)?;
        Ok(TensorPlace::new(
            &mut self.writing,
            &mut self.tensors[tensor],
            at,
            dtype,
            self.mode,
        ))
    }

    /// Claims several tensors of one type, each by its index and its number of elements, as [`Self::place`] does one.
    ///
    /// # Errors
    /// As [`Self::place`], for the first of them that is not as it should be.
    pub fn places(
        &mut self,
        dtype: Dtype,
        tensors: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<TensorPlaces<'_, 'a>, GradientError> {
        let claim = |(tensor, elements)| Ok((tensor, self.claim_anywhere(tensor, dtype, elements, Written::Claimed)?));
        let claimed = tensors.into_iter().map(claim).collect::<Result<_, _>>()?;
        Ok(TensorPlaces::new(&mut self.writing, self.tensors, claimed, dtype, self.mode))
    }

    /// Reports the shard's auxiliary sum `index`; one that is not reported counts as 0.
    ///
    /// # Errors
    /// When there is no such sum, or it is already reported.
    pub fn auxiliary(&mut self, index: usize, value: f64) -> Result<(), GradientError> {
        let auxiliary = self.layout.auxiliary();
        let Some(reported) = self.auxiliary.get_mut(index) else {
            return Err(GradientError::NoSuchAuxiliary { auxiliary, index });
        };
        if !reported.begin(Written::Whole) {
            return Err(GradientError::AuxiliaryTwice(index));
        }
        self.put_auxiliary(index, value);
        Ok(())
    }

    /// Has `find` report all auxiliary sums of the shard, which are 0 at first, once the tensors that it left on a device are computed: on this thread, before the
    /// gradient counts. So a model that computes on a device does not wait for it in its gradient, and the next one can be enqueued meanwhile. What `find` reads of
    /// anything else it waits for itself.
    ///
    /// # Errors
    /// When one is already reported.
    pub fn auxiliary_later<E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        find: impl FnOnce(&mut [f64]) -> Result<(), E> + Send + 'static,
    ) -> Result<(), GradientError> {
        for (index, reported) in self.auxiliary.iter_mut().enumerate() {
            if !reported.begin(Written::Claimed) {
                return Err(GradientError::AuxiliaryTwice(index));
            }
        }
        self.later = Some(Find::by(|sums| find(sums).map_err(Into::into)));
        Ok(())
    }

    /// Whether [`Self::auxiliary_later`] was called.
    #[must_use]
    pub const fn reports_later(&self) -> bool {
        self.later.is_some()
    }

    /// Says how many samples the shard holds.
    ///
    /// # Errors
    /// When it was said before.
    pub fn samples(&mut self, count: u64) -> Result<(), GradientError> {
        self.samples += 1;
        if self.samples > 1 {
            return Err(GradientError::Samples(self.samples));
        }
        self.put_samples(count);
        Ok(())
    }

    /// Ends the shard's gradient, and waits for auxiliary sums that come later. Tensors that lie elsewhere may still be
    /// [computed](GradientBuffer::wait_computed).
    ///
    /// # Errors
    /// When a tensor or the number of samples is missing, or the sums are not found.
    ///
    /// # Panics
    /// When an earlier shard of the buffer is not [settled](Enqueued::settle).
    pub fn finish(mut self) -> Result<(), GradientError> {
        self.check()?;
        self.require_settled();
        match self.later.take() {
            Some(find) => {
                let computing = self.writing.elsewhere().computing();
                let computed = computing.map_or(Ok(()), |computing| computing.wait());
                let sums = computed.map_err(Into::into).and_then(|()| find.find(self.layout));
                let sums = sums.map_err(|reason: SettleError| GradientError::Later(reason.to_string()))?;
                self.writing.write_sums(self.layout, self.mode, 0, &sums);
            }
            None => self.auxiliary_zeros(),
        }
        Ok(())
    }

    /// Ends the shard's gradient, and waits for nothing: what is returned tells when it is there, and puts to it what comes later.
    ///
    /// # Errors
    /// When a tensor or the number of samples is missing.
    pub fn enqueue(mut self) -> Result<Enqueued, GradientError> {
        self.check()?;
        let sums = match self.later.take() {
            Some(find) => Some(find),
            None => {
                self.auxiliary_zeros();
                (*self.owed > 0).then(|| Find::known(take(&mut self.held)))
            }
        };
        *self.owed += usize::from(sums.is_some());
        let computing = self.writing.elsewhere().computing();
        Ok(Enqueued::new(computing, sums.map(|find| (self.mode, find))))
    }

    /// Whether all is written that must be.
    fn check(&self) -> Result<(), GradientError> {
        if let Some(missing) = self.tensors.iter().position(|written| *written != Written::Whole) {
            return Err(GradientError::NotWritten(self.layout.tensors()[missing].clone()));
        }
        if self.samples != 1 {
            return Err(GradientError::Samples(self.samples));
        }
        Ok(())
    }

    fn require_settled(&self) {
        assert_eq!(*self.owed, 0, "shards of one buffer are settled in their order");
    }

    /// Instead of writing anything: the shard is empty. The same bits as storing or adding a buffer of zeros.
    ///
    /// # Errors
    /// When zeros could not be added where the gradient lies: the worker gives up and says so. Until it is stored anew, its readers are told, too.
    ///
    /// # Panics
    /// When an earlier shard of the buffer is not [settled](Enqueued::settle).
    pub fn zero(mut self) -> Result<(), ResidentError> {
        self.require_settled();
        let (layout, mode) = (self.layout, self.mode);
        for tensor in 0..layout.tensors().len() {
            let section = layout.tensor(tensor).filter(|_| self.tensors[tensor] == Written::No);
            let Some(section) = section else { continue };
            if mode == WriteMode::Add && self.zero_elsewhere(&section)? {
                continue;
            }
            self.writing.write_here();
            self.writing.write(section.bytes, |bytes| match (mode, section.dtype) {
                (WriteMode::Store, _) => bytes.fill(0),
                // Not a no-op: -0.0 + 0.0 is 0.0.
                (WriteMode::Add, dtype) => reduce::add_zeros(dtype, bytes),
            });
        }
        self.auxiliary_zeros();
        if self.samples == 0 {
            self.put_samples(0);
        }
        Ok(())
    }

    /// Adds zeros to what lies elsewhere. Whether it does.
    fn zero_elsewhere(&mut self, section: &Section) -> Result<bool, ResidentError> {
        let elsewhere = self.writing.elsewhere();
        let Some(resident) = elsewhere.resident().filter(|_| elsewhere.has(&section.bytes)).cloned() else {
            return Ok(false);
        };
        drop(elsewhere);
        let added = resident.add_zeros(section.dtype, section.bytes.clone());
        added.inspect_err(|reason| self.writing.lose(reason))?;
        self.writing.keep(section.bytes.clone(), resident);
        Ok(true)
    }

    /// Claims a tensor that is written here.
    fn claim(&mut self, tensor: usize, dtype: Dtype, elements: usize) -> Result<Range<usize>, GradientError> {
        let at = self.claim_anywhere(tensor, dtype, elements, Written::Whole)?;
        if self.writing.elsewhere().has(&at) {
            return Err(GradientError::LiesElsewhere(self.layout.tensors()[tensor].clone()));
        }
        self.writing.write_here();
        Ok(at)
    }

    fn claim_anywhere(
        &mut self,
        tensor: usize,
        dtype: Dtype,
        elements: usize,
        to: Written,
    ) -> Result<Range<usize>, GradientError> {
        let at = locate(self.layout, tensor, dtype, elements)?;
        if !self.tensors[tensor].begin(to) {
            return Err(GradientError::WrittenTwice(self.layout.tensors()[tensor].clone()));
        }
        Ok(at)
    }

    /// Reports 0 for the auxiliary sums that were not reported.
    fn auxiliary_zeros(&mut self) {
        for index in 0..self.auxiliary.len() {
            if self.auxiliary[index].begin(Written::Whole) {
                self.put_auxiliary(index, 0.0);
            }
        }
    }

    /// The number of samples is what a gradient counts with, as the auxiliary sums are: not shown until the buffer is said to be complete.
    fn put_samples(&mut self, count: u64) {
        let mode = self.mode;
        self.writing.write_unseen(self.layout.samples_bytes(), |bytes| {
            let total = match mode {
                WriteMode::Store => count,
                WriteMode::Add => read_u64(bytes).wrapping_add(count),
            };
            bytes.copy_from_slice(&total.to_le_bytes());
        });
    }

    fn put_auxiliary(&mut self, index: usize, value: f64) {
        match self.held.get_mut(index) {
            Some(held) => *held = value,
            None => self.writing.write_sums(self.layout, self.mode, index, &[value]),
        }
    }

    fn put_f64(&mut self, at: Range<usize>, values: &[f64]) {
        self.put(at, values, WriteMode::put_f64);
    }

    /// Writes `values` to `at` chunk by chunk, in the order in which chunks travel, so that each can be read while the next is written.
    pub(super) fn put<T>(&mut self, at: Range<usize>, mut values: &[T], put: impl Fn(WriteMode, Stores, &mut [u8], &[T])) {
        let (mode, stores) = (self.mode, Stores::of(self.layout.bytes()));
        for part in cut(at).rev() {
            let (later, now) = values.split_at(values.len() - part.len() / size_of::<T>());
            self.writing.write(part, |bytes| put(mode, stores, bytes, now));
            values = later;
        }
    }
}

impl Writing<'_> {
    /// Stores or adds the auxiliary sums from number `first` on, which are not shown until the gradient counts.
    pub(super) fn write_sums(&mut self, layout: &Layout, mode: WriteMode, first: usize, sums: &[f64]) {
        let start = layout.auxiliary_bytes().start + first * size_of::<f64>();
        let stores = Stores::of(layout.bytes());
        self.write_unseen(start..start + size_of_val(sums), |bytes| mode.put_f64(stores, bytes, sums));
    }
}
