//! On which device a worker computes: what a person asks for, and which of a host's GPUs each of its workers gets. Must not know what is computed;
//! which GPU a worker has never reaches the arithmetic.
//!
//! - [`DeviceChoice`]: what `--device` and [`DEVICE_VARIABLE`] say;
//! - [`Dealt`]: the GPUs of a host, dealt out to the workers of an agent, each of which sees its own alone.

mod choice;
mod dealing;
mod gpus;
mod own;

pub use choice::{DEVICE_VARIABLE, DeviceChoice, DeviceChoiceError};
pub use dealing::Dealt;
pub use gpus::{GPUS_VARIABLE, NoGpu};
