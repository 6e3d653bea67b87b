//! The memory on a device that one buffer of gradients has. Must not know the tensors' names.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_collectives::gradient::{Computing, Lowering, Passing, Resident, ResidentError, Slot, WriteMode};
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_protocol::state::Dtype;

use super::carrier::{Carrier, Order, Part};
use super::on_device;
use crate::device::{Device, DeviceError, DeviceTensor, Float, MemoryKind, Moment, Stream, View};
use crate::parameters::Tensor;

/// Tensors of one launch: their table has 64 KiB, the most that a host hands to a device without waiting for it (CUDA's "API synchronization behavior").
pub(super) const PACKED_AT_ONCE: usize = (64 << 10) / size_of::<Tensor>();

/// A gradient's bytes, as its layout has them, at home on the stream of computing.
#[derive(Debug)]
pub(super) struct OnDevice {
    memory: Arc<Mutex<DeviceTensor<u8>>>,
    computed: Mutex<Computed>,
    bytes: u64,
    carrier: Arc<Carrier>,
}

/// When what was written last from each byte on is computed. What was written later has a higher number.
#[derive(Debug, Default)]
struct Computed {
    next: u64,
    at: BTreeMap<usize, (u64, Moment)>,
}

impl OnDevice {
    /// Memory for so many bytes. None if gradients may not have as many more, or the device has not.
    pub(super) fn new(carrier: &Arc<Carrier>, bytes: usize) -> Result<Option<Arc<Self>>, DeviceError> {
        let count = bytes as u64;
        if !carrier.take(count) {
            return Ok(None);
        }
        // Zeros, for those between tensors, which a sum that passes is added to as well.
        let memory = match DeviceTensor::zeros(carrier.device(), Stream::Compute, bytes) {
            Ok(memory) => memory,
            Err(error) => {
                carrier.give(count);
                let kind = MemoryKind::Device;
                let is_full = matches!(&error, DeviceError::Memory { kind: found, .. } if *found == kind);
                return if is_full { Ok(None) } else { Err(error) };
            }
        };
        Ok(Some(Arc::new(Self {
            memory: Arc::new(Mutex::new(memory)),
            computed: Mutex::default(),
            bytes: count,
            carrier: Arc::clone(carrier),
        })))
    }

    pub(super) fn device(&self) -> &Device {
        self.carrier.device()
    }

    /// Enqueues that `values` are stored in these bytes, or added to them.
    pub(super) fn write<T: Float>(
        &self,
        bytes: Range<usize>,
        values: &View<'_, T>,
        mode: WriteMode,
    ) -> Result<(), DeviceError> {
        let mut memory = self.memory();
        let on = self.device().on(Stream::Compute);
        let mut place = memory.part_mut(bytes.clone()).elements::<T>();
        match mode {
            WriteMode::Store => on.sum_into::<T>(&mut place, values, &[])?,
            WriteMode::Add => on.add(&mut place, &[*values])?,
        }
        drop(memory);
        self.note([bytes.start])
    }

    /// The same for several tensors, each with its first byte, by one launch for each [`PACKED_AT_ONCE`] of them.
    pub(super) fn write_all<'v, T: Float>(
        &self,
        tensors: impl IntoIterator<Item = (usize, View<'v, T>)>,
        mode: WriteMode,
    ) -> Result<(), DeviceError> {
        let placed: Vec<_> = tensors.into_iter().map(|(start, values)| (start as u64, values)).collect();
        let on = self.device().on(Stream::Compute);
        for placed in placed.chunks(PACKED_AT_ONCE) {
            on.pack::<T>(&mut self.memory().view_mut(), placed, mode == WriteMode::Add)?;
        }
        self.note(placed.iter().map(|(start, _)| *start as usize))
    }

    /// What is there, for what is enqueued on the stream of computing.
    pub(super) fn memory(&self) -> MutexGuard<'_, DeviceTensor<u8>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is written from these bytes on is computed when the stream of computing is as far as it is enqueued now.
    fn note(&self, starts: impl IntoIterator<Item = usize>) -> Result<(), DeviceError> {
        let moment = self.device().record(Stream::Compute)?;
        let mut computed = self.computed();
        let number = computed.next;
        computed.next += 1;
        let noted = starts.into_iter().map(|start| (start, (number, moment.clone())));
        computed.at.extend(noted);
        Ok(())
    }

    fn computed(&self) -> MutexGuard<'_, Computed> {
        self.computed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When these bytes are computed. None if nothing was written there.
    fn computed_at(&self, bytes: &Range<usize>) -> Option<Moment> {
        let computed = self.computed();
        let (first, _) = computed.at.range(..=bytes.start).next_back()?;
        let written = computed.at.range(first..).take_while(|(start, _)| **start < bytes.end);
        let last = written.max_by_key(|(_, (number, _))| *number);
        last.map(|(_, (_, moment))| moment.clone())
    }

    /// When all is computed. None if nothing was written there.
    fn last_computed(&self) -> Option<Moment> {
        let computed = self.computed();
        let last = computed.at.values().max_by_key(|(number, _)| *number);
        last.map(|(_, moment)| moment.clone())
    }

    /// What the carrier needs of it, which is as it must be from this moment on.
    fn part(&self, ready: Moment) -> Part {
        Part {
            memory: Arc::clone(&self.memory),
            ready,
        }
    }

    /// All of it, once it is computed. None if nothing was written there.
    #[cfg(feature = "nccl")]
    pub(super) fn all_computed(&self) -> Option<Part> {
        Some(self.part(self.last_computed()?))
    }

    /// What the carrier needs to write there, once all is done that was enqueued with it so far.
    pub(super) fn free(&self) -> Result<Part, DeviceError> {
        Ok(self.part(self.device().record(Stream::Compute)?))
    }

    fn add_zeros_as<T: Float>(&self, range: &Range<usize>) -> Result<(), DeviceError> {
        for start in range.clone().step_by(LOWERED_BYTES) {
            let part = start..range.end.min(start + LOWERED_BYTES);
            let zeros = DeviceTensor::<T>::zeros(self.device(), Stream::Compute, part.len() / size_of::<T>())?;
            let mut memory = self.memory();
            let mut place = memory.part_mut(part).elements::<T>();
            self.device().on(Stream::Compute).add(&mut place, &[zeros.view()])?;
        }
        self.note([range.start])
    }
}

/// What is computed by this moment.
#[derive(Debug)]
struct Until {
    device: Device,
    moment: Moment,
}

impl Computing for Until {
    fn wait(&self) -> Result<(), ResidentError> {
        self.device.wait_here(&self.moment).map_err(ResidentError::new)
    }
}

fn nothing_there() -> ResidentError {
    ResidentError::new("expected tensors in a GPU's memory, found that none was written there")
}

impl Resident for OnDevice {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        Some(Box::new(Until {
            device: self.device().clone(),
            moment: self.last_computed()?,
        }))
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        match self.computed_at(&lowering.range()) {
            Some(computed) => self.carrier.carry(Order::Bring {
                from: self.part(computed),
                lowering,
            }),
            None => lowering.fail(nothing_there()),
        }
    }

    fn adds_with(&self, other: &dyn Resident) -> bool {
        let other: &dyn Any = other;
        other
            .downcast_ref::<Self>()
            .is_some_and(|other| other.device() == self.device())
    }

    fn another(&self) -> Option<Arc<dyn Resident>> {
        let bytes = self.memory().len();
        let memory = Self::new(&self.carrier, bytes).ok().flatten();
        memory.map(|memory| memory as _)
    }

    fn slot(&self) -> Result<Box<dyn Slot>, ResidentError> {
        let slot = self.carrier.slot().map_err(ResidentError::new)?;
        Ok(Box::new(slot))
    }

    fn pass(self: Arc<Self>, others: &[Arc<dyn Resident>], mut passing: Passing) {
        let range = passing.range();
        let part = |one: &Self| Some(one.part(one.computed_at(&range)?));
        let others = others.iter().map(|other| part(&*on_device(Arc::clone(other))?));
        let terms: Option<Vec<Part>> = [part(&self)].into_iter().chain(others).collect();
        let Some(terms) = terms else {
            return passing.fail(nothing_there());
        };
        let stays = passing.stays().and_then(on_device);
        match stays.map(|stays| stays.free()).transpose() {
            Ok(stays) => self.carrier.carry(Order::Pass { terms, passing, stays }),
            Err(error) => passing.fail(ResidentError::new(error)),
        }
    }

    fn add_zeros(&self, dtype: Dtype, range: Range<usize>) -> Result<(), ResidentError> {
        let added = match dtype {
            Dtype::F32 => self.add_zeros_as::<f32>(&range),
            Dtype::F64 => self.add_zeros_as::<f64>(&range),
            Dtype::U64 => return Err(ResidentError::new("expected a tensor of floats, found one of counters")),
        };
        added.map_err(ResidentError::new)
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.carrier.give(self.bytes);
    }
}
