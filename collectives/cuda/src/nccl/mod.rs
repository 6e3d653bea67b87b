//! Sums of several GPUs by NCCL, one process each. **In fast order only, never exact**: in which order a sum's floating-point numbers are added is NCCL's to
//! choose, and depends on how many ranks there are, on how they are connected, and on its version. So a job in exact order has no use for it.
//!
//! No call waits. A communicator waits for other ranks by itself, and is asked by [`Communicator::poll`] how far it is. A rank that dies leaves the others waiting,
//! on their streams too; a program that hears of the death, from Sardana's agents for example, calls [`Communicator::abort`], from any thread, and the wait ends. For
//! the next generation rank 0 makes an [`Id`], each rank gets it, and makes a communicator anew. NCCL refuses two ranks on one GPU.
//!
//! A tensor that is summed is the sum's until NCCL has enqueued it: see [`Summing`].
//!
//! ```no_run
//! use sardana_cuda::device::{Device, DeviceTensor, Stream};
//! use sardana_cuda::nccl::{Communicator, Id, Readiness};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(0)?;
//! let id = Id::new()?; // On rank 0; the others are sent its bytes.
//! let group = Communicator::begin(&device, id, 0, 2)?;
//! while group.poll()? == Readiness::Waiting {
//!     std::thread::yield_now(); // Or hear of deaths: then `group.abort()`.
//! }
//! let gradient = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32, 2.0])?;
//! let mut summing = group.all_reduce(Stream::Compute, gradient)?;
//! let gradient = loop {
//!     match summing.poll()? {
//!         Some(gradient) => break gradient, // What is enqueued on the stream from now on sees the sum.
//!         None => std::thread::yield_now(),
//!     }
//! };
//! # Ok(())
//! # }
//! ```

mod error;
mod summing;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use half::{bf16, f16};

pub use error::NcclError;
pub use summing::{Refused, Summing};

use crate::device::{Device, DeviceTensor, Element, Stream};
use crate::raw::library;
use crate::raw::nccl::{Calls, Comm, Failed, ID_BYTES, Progress};

/// What the ranks of one communicator know each other by. One communicator, one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id([u8; ID_BYTES]);

/// How far a communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It takes the next call.
    Ready,
    /// It waits for other ranks, or to have enqueued the last sum.
    Waiting,
    /// All ranks have finished.
    Finished,
}

/// A type that NCCL sums: `f32`, `f64`, `bf16` and `f16`.
pub trait Reduced: Element + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        /// NCCL's number of the type.
        const KIND: i32;
    }
}

macro_rules! reduced {
    ($($type:ty: $kind:literal;)*) => {$(
        impl Reduced for $type {}
        impl sealed::Sealed for $type {
            const KIND: i32 = $kind;
        }
    )*};
}

reduced! {
    f16: 6;
    f32: 7;
    f64: 8;
    bf16: 9;
}

/// One rank of a group of GPUs. All ranks ask for the same sums, of the same lengths and types, in the same order. Any thread may call; it ends with an abort unless
/// it has finished.
#[derive(Debug)]
pub struct Communicator {
    device: Device,
    calls: Calls,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Live {
        comm: Comm,
        /// Whether the last thing that was asked for is done.
        progress: Progress,
        /// How many sums it was asked for.
        sums: u64,
        is_finishing: bool,
    },
    Finished,
    Ended,
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    Sum,
    Finish,
}

impl Id {
    /// A new one. The ranks meet at this process: it is rank 0's to make, and is of no use once that has ended.
    ///
    /// # Errors
    /// When there is no NCCL, or no network that it can use.
    pub fn new() -> Result<Self, NcclError> {
        Ok(Self(calls()?.id()?))
    }

    /// The one that another process has made.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// For other processes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; ID_BYTES] {
        self.0
    }
}

impl Communicator {
    /// Begins to look for the other ranks. It does not wait for them: see [`Self::poll`].
    ///
    /// # Errors
    /// When there is no NCCL, no such rank, or NCCL refuses it.
    pub fn begin(device: &Device, id: Id, rank: usize, ranks: usize) -> Result<Self, NcclError> {
        let calls = calls()?;
        let number = |number: usize| i32::try_from(number).ok();
        let (Some(own), Some(all), true) = (number(rank), number(ranks), rank < ranks) else {
            return Err(NcclError::Input {
                expected: format!("a rank below the number of ranks, of which there are at most {}", i32::MAX),
                found: format!("rank {rank} of {ranks}"),
            });
        };
        device.bind()?;
        let comm = calls.begin(id.0, own, all)?;
        let state = Mutex::new(State::Live {
            comm,
            progress: Progress::NotYet,
            sums: 0,
            is_finishing: false,
        });
        Ok(Self {
            device: device.clone(),
            calls,
            state,
        })
    }

    /// Asks how far it is, once, without waiting.
    ///
    /// # Errors
    /// When it has failed, as when the connection to another rank has: then it has been aborted. Or it has ended before.
    pub fn poll(&self) -> Result<Readiness, NcclError> {
        let mut state = self.lock();
        let (comm, progress, is_finishing) = match &mut *state {
            State::Finished => return Ok(Readiness::Finished),
            State::Ended => return Err(NcclError::Ended),
            State::Live {
                comm,
                progress,
                is_finishing,
                ..
            } => (comm, progress, *is_finishing),
        };
        match self.calls.progress(comm) {
            Err(failed) => Err(self.fail(&mut state, failed)),
            Ok(Progress::NotYet) => {
                *progress = Progress::NotYet;
                Ok(Readiness::Waiting)
            }
            Ok(Progress::Done) if is_finishing => {
                if let State::Live { comm, .. } = std::mem::replace(&mut *state, State::Finished) {
                    self.calls.destroy(comm)?;
                }
                Ok(Readiness::Finished)
            }
            Ok(Progress::Done) => {
                *progress = Progress::Done;
                Ok(Readiness::Ready)
            }
        }
    }

    /// Asks for the sum over all ranks, in place, on a stream of the device; of no elements nothing. The tensor is valid there by then, and comes back by
    /// [`Summing::poll`]; before that the communicator takes no other call.
    ///
    /// # Errors
    /// When it is not ready, or has ended; the tensor is another device's; or NCCL refuses it: then it has been aborted. The tensor comes back with it.
    pub fn all_reduce<T: Reduced>(&self, stream: Stream, tensor: DeviceTensor<T>) -> Result<Summing<'_, T>, Refused<T>> {
        match self.ask_for_sum(stream, &tensor) {
            Ok(number) => Ok(Summing::new(self, number, tensor)),
            Err(error) => Err(Refused::new(error, tensor)),
        }
    }

    /// The sum's number.
    fn ask_for_sum<T: Reduced>(&self, stream: Stream, tensor: &DeviceTensor<T>) -> Result<u64, NcclError> {
        let view = tensor.view();
        if *view.device() != self.device {
            return Err(NcclError::Input {
                expected: "a tensor of the communicator's device".to_owned(),
                found: "another's".to_owned(),
            });
        }
        let elements = (view.address(), view.len(), T::KIND);
        let next = if view.is_empty() { Next::Nothing } else { Next::Sum };
        self.ask(next, |calls, comm| {
            calls.all_reduce(comm, self.device.raw_stream(stream), elements)
        })
    }

    /// Asks whether the sum of this number is enqueued, once, without waiting.
    fn has_enqueued(&self, number: u64) -> Result<bool, NcclError> {
        if self.poll()? != Readiness::Waiting {
            return Ok(true);
        }
        // What it waits for may be what was asked for behind it.
        Ok(match &*self.lock() {
            State::Live { sums, is_finishing, .. } => *sums > number || *is_finishing,
            State::Finished => true,
            State::Ended => false,
        })
    }

    /// Begins to end it, once all is done that was enqueued: all ranks do. Ask [`Self::poll`] until all have.
    ///
    /// # Errors
    /// When it is not ready, or has ended; or NCCL refuses it: then it has been aborted.
    pub fn finish(&self) -> Result<(), NcclError> {
        self.ask(Next::Finish, Calls::finalize).map(|_| ())
    }

    /// Ends it at once, whatever it waits for: what is enqueued on streams comes to an end, and what it has written then is of no use. Nothing if it has ended
    /// before.
    ///
    /// # Errors
    /// When NCCL says so. It has ended all the same.
    pub fn abort(&self) -> Result<(), NcclError> {
        let state = &mut *self.lock();
        if matches!(state, State::Finished) {
            return Ok(());
        }
        match std::mem::replace(state, State::Ended) {
            State::Live { comm, .. } => Ok(self.calls.abort(comm)?),
            State::Finished | State::Ended => Ok(()),
        }
    }

    /// Asks for the next thing. How many sums it was asked for by then.
    fn ask(&self, next: Next, call: impl FnOnce(&Calls, &Comm) -> Result<Progress, Failed>) -> Result<u64, NcclError> {
        let mut state = self.lock();
        let (comm, progress, sums, is_finishing) = match &mut *state {
            State::Finished | State::Ended => return Err(NcclError::Ended),
            State::Live {
                comm,
                progress,
                sums,
                is_finishing,
            } => (comm, progress, sums, is_finishing),
        };
        if *is_finishing || *progress == Progress::NotYet {
            return Err(NcclError::Waiting);
        }
        if matches!(next, Next::Nothing) {
            return Ok(*sums);
        }
        self.device.bind()?;
        match call(&self.calls, comm) {
            Ok(now) => {
                *progress = now;
                *sums += u64::from(matches!(next, Next::Sum));
                *is_finishing = matches!(next, Next::Finish);
                Ok(*sums)
            }
            Err(failed) => Err(self.fail(&mut state, failed)),
        }
    }

    fn fail(&self, state: &mut State, failed: Failed) -> NcclError {
        if let State::Live { comm, .. } = std::mem::replace(state, State::Ended) {
            // What failed first is told.
            let _ = self.calls.abort(comm);
        }
        failed.into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // A caller that wants to know has called it before.
        let _ = self.abort();
    }
}

/// Whether there is NCCL on this machine.
pub(crate) fn require() -> Result<(), NcclError> {
    calls().map(|_| ())
}

/// NCCL of this machine. It is looked for by the first call of a process, and found or not for as long as that lives.
fn calls() -> Result<Calls, NcclError> {
    static FOUND: OnceLock<Result<Calls, NcclError>> = OnceLock::new();
    let find = || {
        let library = library::open(library::nccl_names()).map_err(|reason| NcclError::Library { reason })?;
        Calls::of(&library).map_err(|function| NcclError::Function {
            function,
            library: library.name.clone(),
        })
    };
    FOUND.get_or_init(find).clone()
}
