//! What carries gradients of a device to the host, and running sums to the gradients and back: a thread that enqueues copies and waits until they have landed, so that no
//! other thread does. Decides nothing.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use sardana_collectives::gradient::{Lowering, Passing, ResidentError, Slot};
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_protocol::state::Dtype;

use super::adding::Added;
use super::slots::{Kind, LANDING_AT_ONCE, PinnedSlot, Slots};
use crate::device::{Device, DeviceError, DeviceTensor, DirectCopy, Moment, Pinned, Stream};

/// Copies of what is spilled that are under way at once.
pub(super) const WRITERS_SLOTS: usize = 2;

/// What serves all gradients of a device, from the first one on, as long as the device is used.
#[derive(Debug)]
pub(super) struct Carrier {
    device: Device,
    /// Bytes that gradients have there.
    held: AtomicU64,
    /// How many they may have, unless another number is said.
    room: u64,
    passing: Arc<Slots>,
    writers_slots: Mutex<Option<[Pinned<u8>; WRITERS_SLOTS]>>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What is to be carried.
#[derive(Debug)]
pub(super) enum Order {
    /// A part of a gradient, to the host.
    Bring {
        /// The gradient.
        from: Part,
        /// Where it goes.
        lowering: Lowering,
    },
    /// A part of a running sum, up to gradients that are added to it, and down again.
    Pass {
        /// The gradients.
        terms: Vec<Part>,
        /// The sum.
        passing: Passing,
        /// Where it stays as well, if it does.
        stays: Option<Part>,
    },
}

/// A gradient that is computed, or memory that may be written, from a moment on.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) memory: Arc<Mutex<DeviceTensor<u8>>>,
    pub(crate) ready: Moment,
}

impl Carrier {
    pub(super) fn of(device: &Device) -> Result<Arc<Self>, DeviceError> {
        device.served(Self::new)
    }

    fn new(device: Device) -> Result<Self, DeviceError> {
        let room = device.memory_left()? / 4 * 3;
        let (orders, coming) = channel();
        let passing = Slots::new(&device, Kind::Passing);
        let own = Carrying::new(device.clone());
        let thread = thread::Builder::new().name("gradients of a GPU".to_owned());
        // Without it what is asked for fails, and says so.
        let thread = thread.spawn(move || own.run(&coming)).ok();
        Ok(Self {
            device,
            held: AtomicU64::new(0),
            room,
            passing,
            writers_slots: Mutex::default(),
            orders: Some(orders),
            thread,
        })
    }

    pub(super) const fn device(&self) -> &Device {
        &self.device
    }

    /// Takes so many bytes of the gradients' room. Whether there were as many.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let room = self.device.gradient_room().unwrap_or(self.room);
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= room);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Has it carried. If that cannot be, what the order is for fails.
    pub(super) fn carry(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // An order that is not taken is dropped, and fails by that.
            let _ = orders.send(order);
        }
    }

    /// Pinned memory for a part of a sum that passes.
    pub(super) fn slot(&self) -> Result<PinnedSlot, DeviceError> {
        self.passing.one()
    }

    /// Pinned memory for those that spill, one at a time.
    pub(super) fn slots_of_writers(&self) -> Result<WritersSlots<'_>, DeviceError> {
        let mut slots = self.writers_slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_none() {
            let slot = || Pinned::zeros(&self.device, LOWERED_BYTES);
            *slots = Some([slot()?, slot()?]);
        }
        Ok(WritersSlots(slots))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The thread itself may have let go of the last gradient.
        let thread = self
            .thread
            .take()
            .filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            // It does not panic, and if it did its orders would have failed.
            let _ = thread.join();
        }
    }
}

/// Two slots, this one's until it is dropped.
pub(super) struct WritersSlots<'a>(MutexGuard<'a, Option<[Pinned<u8>; WRITERS_SLOTS]>>);

impl WritersSlots<'_> {
    pub(super) fn both(&mut self) -> &mut [Pinned<u8>; WRITERS_SLOTS] {
        self.0.as_mut().expect("they were made when they were asked for")
    }
}

/// The thread's own.
struct Carrying {
    device: Device,
    landing: Arc<Slots>,
    /// Where parts of sums are added to that have landed: each is as long as the longest part that it was for.
    sums: Vec<DeviceTensor<u8>>,
    under_way: VecDeque<UnderWay>,
}

/// A copy to the host.
struct UnderWay {
    landing: Landing,
    /// What it is made of, and what is written besides, stay as long: no other need have them any more.
    _with: Vec<Part>,
}

/// What a copy to the host is for, with what it needs on its way: nothing else uses that until it has landed.
enum Landing {
    /// Where it goes.
    InPlace(DirectCopy),
    Lowering(Lowering, PinnedSlot),
    /// Its slot is its own.
    Passing(Box<(Passing, Added)>),
}

impl Carrying {
    fn new(device: Device) -> Self {
        Self {
            landing: Slots::new(&device, Kind::Landing),
            device,
            sums: Vec::new(),
            under_way: VecDeque::new(),
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.under_way.len() {
                0 => orders.recv().map_err(|_| TryRecvError::Disconnected),
                LANDING_AT_ONCE.. => Err(TryRecvError::Empty),
                _ => orders.try_recv(),
            };
            match order {
                Ok(order) => self.begin(order),
                Err(TryRecvError::Empty) => self.land(),
                Err(TryRecvError::Disconnected) if self.under_way.is_empty() => return,
                Err(TryRecvError::Disconnected) => self.land(),
            }
        }
    }

    fn begin(&mut self, order: Order) {
        match order {
            Order::Bring { from, lowering } => match self.bring(&from, lowering) {
                Ok(landing) => self.begun(landing, vec![from]),
                Err((lowering, error)) => lowering.fail(ResidentError::new(error)),
            },
            Order::Pass {
                terms,
                mut passing,
                stays,
            } => {
                let bytes = passing.range().len();
                let used = self.sums.pop().filter(|sum| sum.len() >= bytes);
                let added = match passing.dtype() {
                    Dtype::F32 => Added::enqueue::<f32>(&self.device, used, &terms, &mut passing, stays.as_ref()),
                    Dtype::F64 => Added::enqueue::<f64>(&self.device, used, &terms, &mut passing, stays.as_ref()),
                    Dtype::U64 => return drop(passing),
                };
                match added {
                    Ok(added) => self.begun(
                        Landing::Passing(Box::new((passing, added))),
                        terms.into_iter().chain(stays).collect(),
                    ),
                    Err(error) => passing.fail(error),
                }
            }
        }
    }

    fn begun(&mut self, landing: Landing, with: Vec<Part>) {
        self.under_way.push_back(UnderWay { landing, _with: with });
    }

    /// To where it goes, if the device reaches that, else to a slot.
    fn bring(&self, from: &Part, lowering: Lowering) -> Result<Landing, (Lowering, DeviceError)> {
        let range = lowering.range();
        let reached = lowering.mapping().is_some_and(|mapping| self.device.reaches(mapping));
        if let Err(error) = self.device.wait(Stream::Copies, &from.ready) {
            return Err((lowering, error));
        }
        if reached {
            let landing = self.device.copy_to_part(&from.memory().part(range), lowering);
            return landing.map(Landing::InPlace);
        }
        match self.enqueue(from, &range) {
            Ok(slot) => Ok(Landing::Lowering(lowering, slot)),
            Err(error) => Err((lowering, error)),
        }
    }

    fn enqueue(&self, from: &Part, range: &Range<usize>) -> Result<PinnedSlot, DeviceError> {
        let mut slot = self.landing.one()?;
        slot.pinned()
            .copy_down(Stream::Copies, &from.memory(), range.start, 0..range.len())?;
        Ok(slot)
    }

    /// Waits for the oldest copy.
    fn land(&mut self) {
        let Some(UnderWay { landing, _with }) = self.under_way.pop_front() else {
            return;
        };
        match landing {
            Landing::InPlace(copy) => {
                // If it has failed who waits for it was told.
                let _ = placed_by(copy);
            }
            Landing::Lowering(lowering, mut slot) => match slot.bytes() {
                Ok(bytes) => lowering.write(|here| here.copy_from_slice(&bytes[..here.len()])),
                Err(error) => lowering.fail(error),
            },
            Landing::Passing(part) => {
                let (mut passing, added) = *part;
                let (sum, landed) = added.land(&mut passing);
                self.sums.push(sum);
                match landed {
                    Ok(()) => passing.finish(),
                    Err(error) => passing.fail(error),
                }
            }
        }
    }
}

/// Waits for a copy to where a part goes, and shows that or fails it.
pub(super) fn placed_by(copy: DirectCopy) -> Result<(), ResidentError> {
    match copy.landed() {
        Ok(part) => {
            part.write(|_| ());
            Ok(())
        }
        Err((part, error)) => {
            let error = ResidentError::new(error);
            part.fail(error.clone());
            Err(error)
        }
    }
}

impl Part {
    pub(crate) fn memory(&self) -> MutexGuard<'_, DeviceTensor<u8>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
