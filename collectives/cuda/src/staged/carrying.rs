//! The steps of a plan, carried out on a device. Decides nothing.

use std::error::Error;
use std::num::NonZeroUsize;
use std::ops::Range;

use thiserror::Error;

use super::plan::{Place, Step};
use crate::device::{Device, DeviceError, DeviceTensor, Float, Moment, Pinned, Stream, View, ViewMut};

/// Where the running sum comes from and goes to, a chunk at a time, in order.
pub trait Host<T> {
    /// Why a chunk did not come, or could not be sent.
    type Error: Error;

    /// Writes the elements `range` of the sum to `into`, once they have come.
    ///
    /// # Errors
    /// When they do not come. The sum is given up.
    fn receive(&mut self, range: Range<usize>, into: &mut [T]) -> Result<(), Self::Error>;

    /// Sends the elements `range` of the sum on.
    ///
    /// # Errors
    /// When they cannot be sent. The sum is given up.
    fn deliver(&mut self, range: Range<usize>, from: &[T]) -> Result<(), Self::Error>;
}

/// Why a sum was given up.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StagedError<E: Error> {
    /// The device refused something, or has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A chunk did not come, or could not be sent.
    #[error("a chunk of the running sum did not come or go")]
    Host(#[source] E),
    /// The plan is of other shards, slots or elements.
    #[error("expected a plan for {expected}, found {found}; plan with what the sum is passed with")]
    Plan {
        /// What there is.
        expected: String,
        /// What the plan asks for.
        found: String,
    },
}

/// A shard's gradient.
#[derive(Debug)]
pub enum Shard<T> {
    /// On the device, and computed once the stream of computing has come to `ready`.
    Device {
        /// All elements.
        gradient: DeviceTensor<T>,
        /// When they are computed.
        ready: Moment,
    },
    /// In pinned memory of the host.
    Spilled(Pinned<T>),
}

impl<T: Float> Shard<T> {
    /// A gradient that stays on the device, and whose computing is enqueued.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn kept(gradient: DeviceTensor<T>) -> Result<Self, DeviceError> {
        let ready = gradient.device().record(gradient.home())?;
        Ok(Self::Device { gradient, ready })
    }

    /// A gradient for which the device has no room: it is copied to the host once it is computed, and freed behind that.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn spilled(gradient: DeviceTensor<T>) -> Result<Self, DeviceError> {
        let device = gradient.device().clone();
        let mut memory = Pinned::zeros(&device, gradient.len())?;
        device.wait(Stream::Copies, &device.record(gradient.home())?)?;
        memory.copy_down(Stream::Copies, &gradient, 0, 0..gradient.len())?;
        device.wait(gradient.home(), &device.record(Stream::Copies)?)?;
        Ok(Self::Spilled(memory))
    }

    /// Where it lies.
    #[must_use]
    pub const fn place(&self) -> Place {
        match self {
            Self::Device { .. } => Place::Device,
            Self::Spilled(_) => Place::Spilled,
        }
    }
}

/// The memory through which sums pass a device, which serves one sum after the other: a chunk of the sum and one of a shard on the device, and pinned
/// memory of the host for as many chunks as may be under way.
#[derive(Debug)]
pub struct Staged<T> {
    device: Device,
    slots: Vec<Pinned<T>>,
    passing: DeviceTensor<T>,
    risen: DeviceTensor<T>,
}

impl<T: Float> Staged<T> {
    /// For chunks of up to so many elements, so many of them under way at once.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    pub fn new(device: &Device, chunk: NonZeroUsize, slots: NonZeroUsize) -> Result<Self, DeviceError> {
        let slot = |_| Pinned::zeros(device, chunk.get());
        Ok(Self {
            device: device.clone(),
            slots: (0..slots.get()).map(slot).collect::<Result<_, _>>()?,
            passing: DeviceTensor::unset(device, Stream::Copies, chunk.get())?,
            risen: DeviceTensor::unset(device, Stream::Copies, chunk.get())?,
        })
    }

    /// Carries out the steps of a visit, or of its landing. The sum stays in `finished` where that is given; it is valid there for what is
    /// enqueued for computing from then on, and was free for use by what is enqueued now.
    ///
    /// # Errors
    /// When the device or the host gives up, or the steps are for other shards, slots or elements than there are. What is in `finished` then is
    /// not certain.
    pub fn carry_out<H: Host<T>>(
        &mut self,
        steps: &[Step],
        shards: &[Shard<T>],
        mut finished: Option<&mut DeviceTensor<T>>,
        host: &mut H,
    ) -> Result<(), StagedError<H::Error>> {
        if finished.is_some() {
            self.device.wait_for_other(Stream::Copies)?;
        }
        let mut steps = steps.iter();
        let result = steps.try_for_each(|step| self.step(step, shards, finished.as_deref_mut(), host));
        if result.is_err() {
            // What was enqueued still uses the gradients, which may be freed as soon as this returns.
            self.device.wait_for_other(Stream::Compute)?;
        }
        result
    }

    fn step<H: Host<T>>(
        &mut self,
        step: &Step,
        shards: &[Shard<T>],
        mut finished: Option<&mut DeviceTensor<T>>,
        host: &mut H,
    ) -> Result<(), StagedError<H::Error>> {
        match step.clone() {
            Step::Await { shard } => match find(shards, shard)? {
                Shard::Device { ready, .. } => self.device.wait(Stream::Copies, ready)?,
                Shard::Spilled(_) => return Err(elsewhere(shard)),
            },
            Step::Receive { range, slot } => {
                let room = self.slot(slot, range.len())?.write()?;
                host.receive(range.clone(), &mut room[..range.len()])
                    .map_err(StagedError::Host)?;
            }
            Step::Raise { range, slot } => {
                self.slot(slot, range.len())?;
                let (sum, start) = sum(&mut self.passing, &mut finished, &range)?;
                self.slots[slot].copy_up(Stream::Copies, 0..range.len(), sum, start)?;
            }
            Step::Begin { range, shards: own } => {
                let terms = parts(shards, own, &range)?;
                let (first, rest) = terms
                    .split_first()
                    .ok_or_else(|| plan("a shard that begins the sum", "none"))?;
                let mut sum = chunk(&mut self.passing, &mut finished, &range)?;
                self.device.on(Stream::Copies).sum_into(&mut sum, first, rest)?;
            }
            Step::BeginSpilled { range, shard } => {
                let (sum, start) = sum(&mut self.passing, &mut finished, &range)?;
                spilled(shards, shard, &range)?.copy_up(Stream::Copies, range, sum, start)?;
            }
            Step::Add { range, shards: own } => {
                let terms = parts(shards, own, &range)?;
                let mut sum = chunk(&mut self.passing, &mut finished, &range)?;
                self.device.on(Stream::Copies).add(&mut sum, &terms)?;
            }
            Step::AddSpilled { range, shard } => {
                fits(&(0..range.len()), self.risen.len())?;
                spilled(shards, shard, &range)?.copy_up(Stream::Copies, range.clone(), &mut self.risen, 0)?;
                let mut sum = chunk(&mut self.passing, &mut finished, &range)?;
                let term = self.risen.part(0..range.len());
                self.device.on(Stream::Copies).add(&mut sum, &[term])?;
            }
            Step::Lower { range, slot } => {
                self.slot(slot, range.len())?;
                let (sum, start) = sum(&mut self.passing, &mut finished, &range)?;
                self.slots[slot].copy_down(Stream::Copies, sum, start, 0..range.len())?;
            }
            Step::Deliver { range, slot } => {
                let chunk = &self.slot(slot, range.len())?.read()?[..range.len()];
                host.deliver(range, chunk).map_err(StagedError::Host)?;
            }
            Step::Release => self.device.wait_for_other(Stream::Compute)?,
        }
        Ok(())
    }

    fn slot<E: Error>(&mut self, slot: usize, length: usize) -> Result<&mut Pinned<T>, StagedError<E>> {
        let count = self.slots.len();
        let found = self.slots.get_mut(slot);
        let memory = found.ok_or_else(|| plan(format!("{count} slots"), format!("slot {slot}")))?;
        fits(&(0..length), memory.len())?;
        Ok(memory)
    }
}

/// Where a chunk of the sum lies: in the tensor that it stays in, or in the memory that it passes through.
fn sum<'a, T: Float, E: Error>(
    passing: &'a mut DeviceTensor<T>,
    finished: &'a mut Option<&mut DeviceTensor<T>>,
    range: &Range<usize>,
) -> Result<(&'a mut DeviceTensor<T>, usize), StagedError<E>> {
    if let Some(finished) = finished {
        fits(range, finished.len())?;
        return Ok((finished, range.start));
    }
    fits(&(0..range.len()), passing.len())?;
    Ok((passing, 0))
}

fn chunk<'a, T: Float, E: Error>(
    passing: &'a mut DeviceTensor<T>,
    finished: &'a mut Option<&mut DeviceTensor<T>>,
    range: &Range<usize>,
) -> Result<ViewMut<'a, T>, StagedError<E>> {
    let (sum, start) = sum(passing, finished, range)?;
    Ok(sum.part_mut(start..start + range.len()))
}

/// These elements of shards on the device.
fn parts<'a, T: Float, E: Error>(
    shards: &'a [Shard<T>],
    own: Range<usize>,
    range: &Range<usize>,
) -> Result<Vec<View<'a, T>>, StagedError<E>> {
    let part = |shard| match find(shards, shard)? {
        Shard::Device { gradient, .. } => {
            fits(range, gradient.len())?;
            Ok(gradient.part(range.clone()))
        }
        Shard::Spilled(_) => Err(elsewhere(shard)),
    };
    own.map(part).collect()
}

fn spilled<'a, T: Float, E: Error>(
    shards: &'a [Shard<T>],
    shard: usize,
    range: &Range<usize>,
) -> Result<&'a Pinned<T>, StagedError<E>> {
    match find(shards, shard)? {
        Shard::Device { .. } => Err(elsewhere(shard)),
        Shard::Spilled(memory) => {
            fits(range, memory.len())?;
            Ok(memory)
        }
    }
}

fn find<T, E: Error>(shards: &[Shard<T>], shard: usize) -> Result<&Shard<T>, StagedError<E>> {
    let count = shards.len();
    shards
        .get(shard)
        .ok_or_else(|| plan(format!("{count} shards"), format!("shard {shard}")))
}

fn fits<E: Error>(range: &Range<usize>, length: usize) -> Result<(), StagedError<E>> {
    if range.start <= range.end && range.end <= length {
        return Ok(());
    }
    Err(plan(format!("{length} elements"), format!("{range:?}")))
}

fn elsewhere<E: Error>(shard: usize) -> StagedError<E> {
    plan(
        "shards that lie where they were planned to be",
        format!("shard {shard} elsewhere"),
    )
}

fn plan<E: Error>(expected: impl Into<String>, found: impl Into<String>) -> StagedError<E> {
    StagedError::Plan {
        expected: expected.into(),
        found: found.into(),
    }
}
