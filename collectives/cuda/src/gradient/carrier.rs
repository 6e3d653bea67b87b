//! What brings gradients of a device to the host: a thread that enqueues copies and waits for them, so that nobody else does. Decides nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use sardana_collectives::gradient::{Lowering, ResidentError};
use sardana_collectives::limits::LOWERED_BYTES;

use crate::device::{Device, DeviceError, DeviceTensor, Moment, Pinned, Stream};

/// Copies that are under way at once: one lands while the next ones come.
const SLOTS: usize = 4;

/// What serves all gradients of a device, as long as there are any.
#[derive(Debug)]
pub(super) struct Carrier {
    device: Device,
    /// Bytes that gradients have there.
    held: AtomicU64,
    /// How many they may have, unless another number is said.
    room: u64,
    slots: Mutex<Option<[Pinned<u8>; 2]>>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// A part of a gradient that is to be brought, once it is computed.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) from: Arc<Mutex<DeviceTensor<u8>>>,
    pub(super) computed: Moment,
    pub(super) lowering: Lowering,
}

impl Carrier {
    pub(super) fn of(device: &Device) -> Result<Arc<Self>, DeviceError> {
        device.served(|| Self::new(device))
    }

    fn new(device: &Device) -> Result<Self, DeviceError> {
        let room = device.memory_left()? / 4 * 3;
        let (orders, coming) = channel();
        let own = device.clone();
        let thread = thread::Builder::new().name("gradients of a GPU".to_owned());
        // Without it what is asked for fails, and says so.
        let thread = thread.spawn(move || Carrying::new(own).run(&coming)).ok();
        Ok(Self {
            device: device.clone(),
            held: AtomicU64::new(0),
            room,
            slots: Mutex::default(),
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

    /// Has it brought. If that cannot be, the order's lowering fails.
    pub(super) fn bring(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // An order that is not taken is dropped, and its lowering fails by that.
            let _ = orders.send(order);
        }
    }

    /// Pinned memory for those that spill, one at a time.
    pub(super) fn slots_of_writers(&self) -> Result<Slots<'_>, DeviceError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_none() {
            let slot = || Pinned::zeros(&self.device, LOWERED_BYTES);
            *slots = Some([slot()?, slot()?]);
        }
        Ok(Slots(slots))
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
pub(super) struct Slots<'a>(MutexGuard<'a, Option<[Pinned<u8>; 2]>>);

impl Slots<'_> {
    pub(super) fn both(&mut self) -> &mut [Pinned<u8>; 2] {
        self.0.as_mut().expect("they were made when they were asked for")
    }
}

/// The thread's own.
struct Carrying {
    device: Device,
    free: Vec<Pinned<u8>>,
    under_way: VecDeque<(Pinned<u8>, Lowering)>,
}

impl Carrying {
    const fn new(device: Device) -> Self {
        Self {
            device,
            free: Vec::new(),
            under_way: VecDeque::new(),
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.under_way.len() {
                0 => orders.recv().map_err(|_| TryRecvError::Disconnected),
                SLOTS.. => Err(TryRecvError::Empty),
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
        let Order {
            from,
            computed,
            lowering,
        } = order;
        match self.enqueue(&from, &computed, &lowering) {
            Ok(slot) => self.under_way.push_back((slot, lowering)),
            Err(error) => lowering.fail(ResidentError::new(error)),
        }
    }

    fn enqueue(
        &mut self,
        from: &Mutex<DeviceTensor<u8>>,
        computed: &Moment,
        lowering: &Lowering,
    ) -> Result<Pinned<u8>, DeviceError> {
        self.device.wait(Stream::Copies, computed)?;
        let mut slot = match self.free.pop() {
            Some(slot) => slot,
            None => Pinned::zeros(&self.device, LOWERED_BYTES)?,
        };
        let range = lowering.range();
        let from = from.lock().unwrap_or_else(PoisonError::into_inner);
        slot.copy_down(Stream::Copies, &from, range.start, 0..range.len())?;
        Ok(slot)
    }

    /// Waits for the oldest copy.
    fn land(&mut self) {
        let Some((slot, lowering)) = self.under_way.pop_front() else {
            return;
        };
        match slot.read() {
            Ok(bytes) => lowering.write(|here| here.copy_from_slice(&bytes[..here.len()])),
            Err(error) => lowering.fail(ResidentError::new(error)),
        }
        self.free.push(slot);
    }
}
