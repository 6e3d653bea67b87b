//! Sums of a job's gradients by NCCL, in fast order: what a model offers by [`SumsByNccl`], and the ring of its worker uses, where all workers have NCCL and a GPU
//! each. Must not know what a model is, nor what goes over links.
//!
//! A generation has a communicator of its own, and a thread that alone calls it, so that nothing of a worker waits for NCCL. The thread never waits for other ranks
//! without looking whether the generation was given up: then it aborts the communicator, and the next generation's thread begins. A step's sum:
//!
//! ```text
//! gradients on the GPU ──> added into memory of the generation's own ──> ncclAllReduce, there ──> memory of the finished sum, for the update
//!                                                                                           └──> down to the host, for workers that lack it
//! ```
//! So the gradients are only read: a sum that does not come to its end has not touched them, and the next generation sums them again. It costs one gradient's memory more.
//! What lies on the host goes up once. All of it is on the stream of copies, beside the model's.

mod error;
mod generation;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use sardana_collectives::layout::Layout;
use sardana_collectives::summation::{
    Communicator, DEVICE_BYTES, Gathering, MEETING_BYTES, Summand, Summation, SummationError,
};
use sardana_protocol::state::Dtype;

pub use error::SumError;

use crate::device::Device;
use crate::nccl::{self, Id};

/// Sums by NCCL of the gradients that a worker has on one device. A model makes one and offers it.
///
/// NCCL finds ways of its own between GPUs. Those between hosts are neither encrypted nor do they ask who the other is: keep them on a network of your own
/// (`NCCL_SOCKET_IFNAME`). It is looked for when a generation begins; where it is not there, the links sum.
#[derive(Debug)]
pub struct SumsByNccl {
    device: Device,
    /// The last generation's thread.
    last: Mutex<Option<JoinHandle<()>>>,
}

impl SumsByNccl {
    /// On this device. Nothing is loaded yet.
    #[must_use]
    pub fn new(device: &Device) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            last: Mutex::default(),
        })
    }
}

impl Summation for SumsByNccl {
    fn name(&self) -> &'static str {
        "NCCL"
    }

    fn device(&self, layout: &Layout) -> Result<[u8; DEVICE_BYTES], SummationError> {
        let device = || {
            let (Some(Dtype::F32 | Dtype::F64), false) = (layout.dtype(), layout.tensors_end() == 0) else {
                return Err(SumError::Types);
            };
            nccl::require()?;
            Ok(self.device.unique_id()?)
        };
        device().map_err(SummationError::new)
    }

    fn meet(&self) -> Result<[u8; MEETING_BYTES], SummationError> {
        // NCCL listens there from now on, with a thread of its own, which ends once all ranks have come.
        let id = Id::new().map_err(SumError::from);
        id.map(|id| id.to_bytes()).map_err(SummationError::new)
    }

    fn begin(&self, gathering: Gathering) -> Box<dyn Communicator> {
        let (orders, coming) = channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, before) = (self.device.clone(), last.take());
        let work = move || {
            if let Some(before) = before {
                // It ends once its communicator is aborted. If it has panicked, it has no communicator any more either.
                let _ = before.join();
            }
            match gathering.layout.dtype() {
                Some(Dtype::F32) => generation::serve::<f32>(device, gathering, coming),
                Some(Dtype::F64) => generation::serve::<f64>(device, gathering, coming),
                Some(Dtype::U64) | None => gathering.all_there.give(Err(SummationError::new(SumError::Types))),
            }
        };
        // Without a thread what is asked for is dropped, and fails by that.
        *last = thread::Builder::new().name("sums by NCCL".to_owned()).spawn(work).ok();
        Box::new(Handle(orders))
    }
}

impl Drop for SumsByNccl {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            // A process that ended while NCCL is being called could end badly.
            let _ = last.join();
        }
    }
}

/// A generation's communicator, as its ring has it. With it the thread ends, and aborts it.
#[derive(Debug)]
struct Handle(Sender<Summand>);

impl Communicator for Handle {
    fn sum(&mut self, summand: Summand) {
        // One that is not taken is dropped, and fails by that.
        let _ = self.0.send(summand);
    }
}
