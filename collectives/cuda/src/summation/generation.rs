//! One generation's sums, on a thread that does nothing else: it enqueues, and looks again and again how far the device, the other ranks and the generation are. Decides
//! nothing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use sardana_collectives::gradient::Resident;
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_collectives::summation::{Gathering, Summand, SummationError};

use super::SumError;
use crate::device::{Device, DeviceError, DeviceTensor, Float, Pinned, Stream, View};
use crate::gradient::{self, Part};
use crate::nccl::{Communicator, Id, Readiness, Reduced};

/// All is done in order, beside the model's computing.
const ON: Stream = Stream::Copies;

/// So long it sleeps before it looks again: less than a sum of a few kilobytes takes. An end of the generation wakes it.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// Copies to the host that are under way at once.
const SLOTS: usize = 2;

/// Looks for the other ranks, and sums until the generation is given up.
pub(super) fn serve<T: Float + Reduced>(device: Device, gathering: Gathering, orders: Receiver<Summand>) {
    let Gathering {
        layout,
        rank,
        ranks,
        meeting,
        all_there,
    } = gathering;
    let generation = Generation::<T>::begin(
        device,
        orders,
        (Id::from_bytes(meeting), rank.index(), ranks as usize),
        layout.tensors_end(),
    );
    match generation {
        Ok(mut generation) => {
            all_there.give(Ok(()));
            generation.run();
        }
        Err(error) => all_there.give(Err(SummationError::new(error))),
    }
}

/// Dropped, it aborts the communicator.
struct Generation<T> {
    communicator: Communicator,
    orders: Orders,
    /// For this rank's part of the next sum, and then all of it.
    room: Option<DeviceTensor<T>>,
    slots: [Pinned<u8>; SLOTS],
    /// Of all tensors.
    bytes: usize,
    device: Device,
}

/// What is asked for. Closed when the generation is given up.
struct Orders(Receiver<Summand>);

impl Orders {
    /// Looks until there is something to be seen, or the generation is given up.
    fn until<R>(&self, mut look: impl FnMut() -> Result<Option<R>, SumError>) -> Result<R, SumError> {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            match self.0.recv_timeout(LOOK_AGAIN) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(SumError::GivenUp),
                // One sum at a time: another one that is asked for meanwhile is not begun, and fails by being dropped.
                Ok(summand) => drop(summand),
            }
        }
    }
}

impl<T: Float + Reduced> Generation<T> {
    fn begin(
        device: Device,
        orders: Receiver<Summand>,
        (id, rank, ranks): (Id, usize, usize),
        bytes: usize,
    ) -> Result<Self, SumError> {
        let orders = Orders(orders);
        // All that it needs, so that a rank which lacks it says so before the first step.
        let room = Some(DeviceTensor::unset(&device, ON, bytes / size_of::<T>())?);
        let slot = || Pinned::zeros(&device, LOWERED_BYTES);
        let slots = [slot()?, slot()?];
        let communicator = Communicator::begin(&device, id, rank, ranks)?;
        orders.until(|| Ok((communicator.poll()? == Readiness::Ready).then_some(())))?;
        Ok(Self {
            communicator,
            orders,
            room,
            slots,
            bytes,
            device,
        })
    }

    fn run(&mut self) {
        while let Ok(summand) = self.orders.0.recv() {
            let Summand {
                elsewhere,
                here,
                stays,
                mut room,
                summed,
            } = summand;
            let found = self.sum(&elsewhere, here.as_deref(), stays.as_ref(), &mut room);
            summed.give(found.map(|()| room).map_err(SummationError::new));
        }
    }

    fn sum(
        &mut self,
        elsewhere: &[Arc<dyn Resident>],
        here: Option<&[u8]>,
        stays: Option<&Arc<dyn Resident>>,
        room: &mut [u8],
    ) -> Result<(), SumError> {
        let own = self.own(elsewhere, here)?;
        let mut summing = self
            .communicator
            .all_reduce(ON, own)
            .map_err(|refused| refused.error().clone())?;
        let sum = self.orders.until(|| Ok(summing.poll()?))?;
        drop(summing);
        let end = self.device.record(ON)?;
        self.orders.until(|| {
            let has_come = self.device.has_come(&end)?;
            // After an abort streams come to their end, too.
            self.communicator.poll()?;
            Ok(has_come.then_some(()))
        })?;
        if let Some(part) = stays.map(|stays| gradient::free(stays, &self.device)).transpose()?.flatten() {
            self.device.wait(ON, &part.ready)?;
            let mut there = part.memory();
            let mut there = there.part_mut(0..self.bytes).elements::<T>();
            self.device.on(ON).sum_into::<T>(&mut there, &sum.view(), &[])?;
        }
        self.bring(&sum, room)?;
        self.room = Some(sum);
        Ok(())
    }

    /// The sum of this rank's own gradients, in memory that is not theirs. Zeros where it has none.
    fn own(&mut self, elsewhere: &[Arc<dyn Resident>], here: Option<&[u8]>) -> Result<DeviceTensor<T>, SumError> {
        let device = &self.device;
        let length = self.bytes / size_of::<T>();
        let parts = elsewhere.iter().map(|one| gradient::computed(one, device));
        let parts: Vec<Part> = parts.collect::<Option<_>>().ok_or(SumError::Elsewhere)?;
        let here = here.map(|bytes| DeviceTensor::from_slice(device, ON, bytes)).transpose()?;
        for part in &parts {
            device.wait(ON, &part.ready)?;
        }
        let held: Vec<_> = parts.iter().map(Part::memory).collect();
        let there = held.iter().map(|memory| memory.part(0..self.bytes).elements());
        let terms: Vec<View<'_, T>> = there
            .chain(here.iter().map(|here| here.part(0..self.bytes).elements()))
            .collect();
        let Some((first, others)) = terms.split_first() else {
            // In place of the room, not beside it.
            drop(self.room.take());
            return Ok(DeviceTensor::zeros(device, ON, length)?);
        };
        let mut sum = match self.room.take() {
            Some(room) => room,
            None => DeviceTensor::unset(device, ON, length)?,
        };
        device.on(ON).sum_into(&mut sum.view_mut(), first, others)?;
        // From here on the gradients may be written or freed: this is soon, since no other rank has to do with it.
        device.wait_here(&device.record(ON)?)?;
        Ok(sum)
    }

    /// Copies a finished sum to the host, part by part: while one is read the next one comes.
    fn bring(&mut self, sum: &DeviceTensor<T>, room: &mut [u8]) -> Result<(), DeviceError> {
        let all = sum.view();
        let all = all.bytes();
        let part = |start: usize| start..self.bytes.min(start + LOWERED_BYTES);
        let parts: Vec<Range<usize>> = (0..self.bytes).step_by(LOWERED_BYTES).map(part).collect();
        for number in 0..=parts.len() {
            if let Some(range) = parts.get(number) {
                self.slots[number % SLOTS].copy_view_down(ON, &all.part(range.clone()), 0..range.len())?;
            }
            let before = number.checked_sub(1);
            if let Some((before, range)) = before.and_then(|before| Some((before, parts.get(before)?))) {
                room[range.clone()].copy_from_slice(&self.slots[before % SLOTS].read()?[..range.len()]);
            }
        }
        Ok(())
    }
}
