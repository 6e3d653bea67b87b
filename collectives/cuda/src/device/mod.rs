//! A GPU as Sardana uses it: memory that is counted, two streams and moments in them, copies, and launches of the kernels whose arguments are
//! compared with what each takes. Must not know what a sum is made of, nor why anything is computed.
//!
//! Everything is enqueued: a call returns before the device has done what it says, and what goes before what is said by streams and moments
//! alone. Work on one stream is done in its order; work on the other is waited for only where [`Device::wait`] says so. That holds for memory, too: it is valid
//! on the stream that it was allocated on, and freed in that stream's order.

mod account;
mod beside;
mod dlpack;
mod error;
mod hashes;
mod identity;
mod launches;
mod loaded;
mod own;
mod pinned;
mod place;
mod registered;
mod shared;
mod tensor;
mod timing;
mod transfer;
mod uploads;

use std::any::Any;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

pub use account::MemoryUse;
pub use beside::OtherStream;
pub use dlpack::{DlPackError, Exchanged};
pub use error::{DeviceError, MemoryKind};
pub use launches::{Enqueue, Float, Half, Summed};
pub use pinned::Pinned;
pub(crate) use registered::{CopiesOfLent, DirectCopy};
pub use shared::{LentTensor, SharedTensor};
pub use tensor::{DeviceTensor, Element, View, ViewMut};
pub use timing::Time;
pub use transfer::Transfer;
pub use uploads::Uploads;

pub use crate::raw::dlpack::DlPack;
pub use crate::raw::memory::RawMemory;

use crate::driver::Driver;
use crate::raw::context;
use account::Account;
use loaded::Modules;
use place::Place;

/// A GPU. Clones are the same one. A process uses one, because a fault of the device ends all that the process has on it.
#[derive(Debug, Clone)]
pub struct Device(Arc<Inner>, Arc<Serving>);

/// What serves all that use a device, as long as somebody has it. It has the device by itself: see [`Device::to_serve`].
#[derive(Debug, Default)]
struct Serving(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

#[derive(Debug)]
struct Inner {
    driver: Driver,
    context: Arc<CudaContext>,
    compute: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    uploads: Arc<CudaStream>,
    modules: Modules,
    device_memory: Mutex<Account>,
    pinned_memory: Mutex<Account>,
    /// Bytes copied from pinned memory, and to it.
    up: AtomicU64,
    down: AtomicU64,
    /// Most bytes that gradients may take of the device's memory; `u64::MAX` if it was not said.
    gradient_room: AtomicU64,
    /// What is known of it and does not change.
    place: Place,
    /// The first failure, which every later call says again.
    failure: OnceLock<DeviceError>,
}

/// One of a device's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The model's: gradients are computed and applied on it.
    Compute,
    /// That of copies between the host and the device, and of what must be done between them.
    Copies,
    /// That of running sums which come up while others go down on the stream of copies: the way between host and device carries both at once.
    Uploads,
}

/// How far a stream had come when it was recorded.
#[derive(Debug, Clone)]
pub struct Moment(Arc<CudaEvent>);

/// Bytes copied between the device and memory of the host that is pinned or registered, so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the device.
    pub up: u64,
    /// From the device.
    pub down: u64,
}

impl Device {
    /// The GPU of this number, from 0 on, with streams of its own.
    ///
    /// # Errors
    /// When there is none that can be used, or it does not start.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Self::open_within(ordinal, u64::MAX)
    }

    /// As [`Self::open`], and tensors get at most so many bytes of its memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(ordinal: usize, bytes: u64) -> Result<Self, DeviceError> {
        let driver = Driver::of_this_machine()?;
        driver.require(ordinal)?;
        let starts = || {
            let context = context::open(ordinal)?;
            let compute = context.new_stream()?;
            Ok((context, compute))
        };
        let (context, compute) = starts().map_err(|error| failed("start", error))?;
        Self::new(driver, context, compute, Some(ordinal), bytes)
    }

    /// The GPU on which another library computes on this stream, which becomes the compute stream. From now on memory of the stream's
    /// context carries no events: the library uses it on this stream alone, or says itself what waits for what. What the library has of the memory is not
    /// counted: where workers share the GPU, say by [`Self::keep_gradients_within`] what is left to gradients. [`View::beside`] lends memory of that stream.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn beside(compute: Arc<CudaStream>) -> Result<Self, DeviceError> {
        let driver = Driver::of_this_machine()?;
        driver.require(compute.context().ordinal())?;
        context::without_events(compute.context());
        Self::new(driver, compute.context().clone(), compute, None, u64::MAX)
    }

    fn new(
        driver: Driver,
        context: Arc<CudaContext>,
        compute: Arc<CudaStream>,
        ordinal: Option<usize>,
        bytes: u64,
    ) -> Result<Self, DeviceError> {
        let [copies, uploads] = [context.new_stream(), context.new_stream()];
        let copies = copies.map_err(|error| failed("start", error))?;
        let uploads = uploads.map_err(|error| failed("start", error))?;
        let (_, total) = context.mem_get_info().map_err(|error| failed("start", error))?;
        let place = Place::find(ordinal.unwrap_or_else(|| context.ordinal()), total as u64);
        let inner = Inner {
            driver,
            context,
            compute,
            copies,
            uploads,
            modules: Modules::default(),
            device_memory: Mutex::new(Account::new(bytes)),
            pinned_memory: Mutex::new(Account::new(u64::MAX)),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            gradient_room: AtomicU64::new(u64::MAX),
            place,
            failure: OnceLock::new(),
        };
        Ok(Self(Arc::new(inner), Arc::default()))
    }

    /// What is known of the device's memory: of tensors alone, not of what other libraries have there.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        locked(&self.0.device_memory).found()
    }

    /// What is known of the host's memory that is pinned for the device.
    #[must_use]
    pub fn pinned(&self) -> MemoryUse {
        locked(&self.0.pinned_memory).found()
    }

    /// Gradients take at most so many bytes of the device's memory from the next one on: what does not fit lies in the host's. If this is not called they
    /// take at most three quarters of what is left when the first one is written, so that the model has the rest; of a GPU that several workers share, of what is left
    /// of this one's equal part.
    pub fn keep_gradients_within(&self, bytes: u64) {
        self.0.gradient_room.store(bytes, Ordering::Relaxed);
    }

    /// Most bytes that gradients may take, if that was said.
    pub(crate) fn gradient_room(&self) -> Option<u64> {
        let said = self.0.gradient_room.load(Ordering::Relaxed);
        (said < u64::MAX).then_some(said)
    }

    /// The same device, for what serves those that use it: it is served by nothing, and keeps nothing that serves.
    pub(crate) fn to_serve(&self) -> Self {
        Self(Arc::clone(&self.0), Arc::default())
    }

    /// What serves all that use the device. It is made where there is none, and ends with the last of those that have the device or it. `make` is given the
    /// device [to serve](Self::to_serve).
    pub(crate) fn served<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce(Self) -> Result<T, DeviceError>,
    ) -> Result<Arc<T>, DeviceError> {
        let mut served = self.1.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(found)) = served.clone().map(Arc::downcast) {
            return Ok(found);
        }
        let made = Arc::new(make(self.to_serve())?);
        *served = Some(Arc::clone(&made) as _);
        Ok(made)
    }

    /// Bytes copied so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            up: self.0.up.load(Ordering::Relaxed),
            down: self.0.down.load(Ordering::Relaxed),
        }
    }

    /// How far `stream` comes with what is enqueued on it so far.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn record(&self, stream: Stream) -> Result<Moment, DeviceError> {
        self.call("record a moment", || self.stream(stream).record_event(None))
            .map(|event| Moment(Arc::new(event)))
    }

    /// What is enqueued on `stream` from now on waits for `moment`. The host does not.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn wait(&self, stream: Stream, moment: &Moment) -> Result<(), DeviceError> {
        self.call("wait for a moment", || self.stream(stream).wait(&moment.0))
    }

    /// The host waits for `moment`.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    pub fn wait_here(&self, moment: &Moment) -> Result<(), DeviceError> {
        self.call("wait for a moment", || moment.0.synchronize())
    }

    /// What is enqueued on `stream` from now on waits for all that is enqueued on `other` so far.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn wait_for(&self, stream: Stream, other: Stream) -> Result<(), DeviceError> {
        self.wait(stream, &self.record(other)?)
    }

    /// The host waits for all that is enqueued.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.call("finish what was enqueued", || self.0.context.synchronize())
    }

    /// Kernels are enqueued on this stream.
    #[must_use]
    pub const fn on(&self, stream: Stream) -> Enqueue<'_> {
        Enqueue::new(self, stream)
    }

    fn stream(&self, stream: Stream) -> &Arc<CudaStream> {
        match stream {
            Stream::Compute => &self.0.compute,
            Stream::Copies => &self.0.copies,
            Stream::Uploads => &self.0.uploads,
        }
    }

    /// Calls the driver, unless a call has failed before.
    fn call<T>(&self, during: &'static str, call: impl FnOnce() -> Result<T, DriverError>) -> Result<T, DeviceError> {
        if let Some(failure) = self.0.failure.get() {
            return Err(failure.clone());
        }
        call().map_err(|error| self.failed(during, error))
    }

    /// A call has failed; the first failure is what is said.
    fn failed(&self, during: &'static str, error: DriverError) -> DeviceError {
        self.0.failure.get_or_init(|| failed(during, error)).clone()
    }

    /// Calls the driver for memory. That there is none left is no failure.
    fn allocate<T>(
        &self,
        kind: MemoryKind,
        bytes: usize,
        call: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<(T, Charge), DeviceError> {
        let asked = bytes as u64;
        let taken = self.account(kind).take(asked);
        taken.map_err(|beyond| DeviceError::Memory {
            kind,
            asked,
            held: beyond.held,
            left: beyond.left,
        })?;
        let charge = Charge {
            device: self.clone(),
            kind,
            bytes: asked,
        };
        let given = self.call("give memory", || match call() {
            Ok(memory) => Ok(Some(memory)),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(error),
        })?;
        if let Some(memory) = given {
            return Ok((memory, charge));
        }
        charge.refused();
        let left = match kind {
            MemoryKind::Device => self.free_memory()?,
            MemoryKind::Pinned => 0,
        };
        let held = self.account(kind).found().held;
        Err(DeviceError::Memory { kind, asked, held, left })
    }

    fn account(&self, kind: MemoryKind) -> MutexGuard<'_, Account> {
        locked(match kind {
            MemoryKind::Device => &self.0.device_memory,
            MemoryKind::Pinned => &self.0.pinned_memory,
        })
    }
}

impl PartialEq for Device {
    /// Whether they are clones of one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Stream {
    /// All that a device has.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Copies, Self::Uploads];
}

/// Bytes of an account, given back at its end.
#[derive(Debug)]
struct Charge {
    device: Device,
    kind: MemoryKind,
    bytes: u64,
}

impl Charge {
    /// They could not be had.
    fn refused(mut self) {
        self.device.account(self.kind).refuse(self.bytes);
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.device.account(self.kind).give(self.bytes);
    }
}

fn locked(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(during: &'static str, error: DriverError) -> DeviceError {
    DeviceError::Failed {
        during,
        code: error.0 as u32,
        name: name_of(error),
    }
}

/// CUDA's name of an error, and what it says of it.
pub(crate) fn name_of(error: DriverError) -> String {
    let text = |found: Result<&CStr, DriverError>| found.map(|text| text.to_string_lossy().into_owned()).ok();
    match (text(error.error_name()), text(error.error_string())) {
        (Some(name), Some(words)) => format!("{name}, {words}"),
        (Some(name), None) => name,
        (None, _) => "an unknown error".to_owned(),
    }
}
