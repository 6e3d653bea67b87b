//! Kernels on a stream: each with tensors of the types and lengths that it takes, compared before anything is enqueued. Must not know why.

mod copies;
mod dense;
mod pointwise;
mod sums;
mod tables;
mod updates;

use bytemuck::NoUninit;
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaFunction, DriverError};

pub use sums::{Float, Half, Summed};

use super::own::{Refusal, refusal};
use super::{Device, DeviceError, Stream, View, ViewMut};
use crate::geometry::Geometry;
use crate::kernels::{Kernel, Parameter};
use crate::parameters::{Descent, Moments, Shards};
use crate::raw::launch::{ArgumentBytes, launch};

/// CUDA's codes for a launch that takes more registers or shared memory than there are, and for one that the device can never have.
const TOO_MUCH: CUresult = CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
const TOO_LARGE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Enqueues kernels on one stream of a device. Each call returns before the device has done it. A call whose arguments do not fit is an error
/// [`DeviceError::Launch`], and enqueues nothing.
#[derive(Debug, Clone, Copy)]
pub struct Enqueue<'a> {
    device: &'a Device,
    stream: Stream,
}

/// What a kernel is given: a value as its bytes, and which type of parameter it is for.
#[derive(Debug, Clone)]
struct Argument {
    parameter: Parameter,
    bytes: ArgumentBytes,
}

impl Argument {
    /// # Panics
    /// When the value's type is not of the parameter's size.
    fn of<T: NoUninit>(parameter: Parameter, value: &T) -> Self {
        assert_eq!(size_of::<T>(), parameter.bytes(), "a value has the size of its parameter");
        let bytes = ArgumentBytes::new(bytemuck::bytes_of(value));
        Self { parameter, bytes }
    }

    fn address(address: u64) -> Self {
        Self::of(Parameter::Address, &address)
    }
}

macro_rules! from {
    ($($type:ty => $parameter:ident),*) => {$(
        impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                Self::of(Parameter::$parameter, &value)
            }
        }
    )*};
}

from!(u32 => U32, u64 => U64, f32 => F32, Shards => Shards, Descent => Descent, Moments => Moments);

impl<'a> Enqueue<'a> {
    pub(super) const fn new(device: &'a Device, stream: Stream) -> Self {
        Self { device, stream }
    }

    /// Enqueues a kernel; nothing where the geometry is none, because there is nothing to do.
    fn launch(&self, kernel: &Kernel, geometry: Option<Geometry>, arguments: &[Argument]) -> Result<(), DeviceError> {
        check(kernel, arguments)?;
        let Some(geometry) = geometry else { return Ok(()) };
        let inner = &self.device.0;
        if let Some(failure) = inner.failure.get() {
            return Err(failure.clone());
        }
        let function = inner.modules.function(&inner.driver, &inner.context, kernel)?;
        let bytes: Vec<&ArgumentBytes> = arguments.iter().map(|argument| &argument.bytes).collect();
        let stream = self.device.stream(self.stream);
        self.device
            .call("launch a kernel", || launch(stream, function, geometry, 0, &bytes))
    }

    /// Enqueues a kernel of a program's own, whose arguments are those of its parameters. That the device has not so much as the launch takes is no failure.
    pub(crate) fn enqueue(
        &self,
        function: &CudaFunction,
        geometry: Geometry,
        shared: u32,
        arguments: &[&ArgumentBytes],
    ) -> Result<Result<(), Refusal>, DeviceError> {
        let stream = self.device.stream(self.stream);
        self.device.call("launch a kernel", || {
            match launch(stream, function, geometry, shared, arguments) {
                Ok(()) => Ok(Ok(())),
                Err(error @ DriverError(TOO_MUCH | TOO_LARGE)) => Ok(Err(refusal(error))),
                Err(error) => Err(error),
            }
        })
    }

    /// The device that it is on.
    pub(crate) const fn device(&self) -> &'a Device {
        self.device
    }

    fn read<T>(&self, kernel: &Kernel, view: &View<'_, T>, length: u64) -> Result<Argument, DeviceError> {
        require(
            kernel,
            view.device() == self.device,
            || "memory of the device that it runs on",
            || "another's".to_owned(),
        )?;
        let found = view.len() as u64;
        require(
            kernel,
            found == length,
            || format!("{length} elements"),
            || format!("{found}"),
        )?;
        Ok(Argument::address(view.address()))
    }

    fn write<T>(&self, kernel: &Kernel, view: &ViewMut<'_, T>, length: u64) -> Result<Argument, DeviceError> {
        self.read(kernel, view.read(), length)
    }
}

/// Whether these are what the kernel takes, by number and type.
fn check(kernel: &Kernel, arguments: &[Argument]) -> Result<(), DeviceError> {
    let expected: Vec<Parameter> = kernel.parameters.iter().map(|&(_, parameter)| parameter).collect();
    let found: Vec<Parameter> = arguments.iter().map(|argument| argument.parameter).collect();
    require(kernel, expected == found, || format!("{expected:?}"), || format!("{found:?}"))
}

fn require<E: Into<String>>(
    kernel: &Kernel,
    holds: bool,
    expected: impl FnOnce() -> E,
    found: impl FnOnce() -> String,
) -> Result<(), DeviceError> {
    if holds {
        return Ok(());
    }
    Err(DeviceError::Launch {
        kernel: kernel.name,
        expected: expected().into(),
        found: found(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::MEAN_F32;

    #[test]
    fn arguments_are_those_of_the_table_by_number_and_type() {
        let address = || Argument::address(8);
        let [divisor, length] = [Argument::from(2.0_f32), Argument::from(3_u64)];
        let right = [address(), address(), divisor.clone(), length.clone()];
        assert_eq!(check(&MEAN_F32, &right), Ok(()));
        let wrong: [&[Argument]; 4] = [
            &[],
            &right[..3],
            &[address(), address(), length.clone(), divisor],
            &[address(), address(), Argument::of(Parameter::F64, &2.0_f64), length],
        ];
        for arguments in wrong {
            let words = check(&MEAN_F32, arguments).unwrap_err().to_string();
            assert!(
                words.contains("[Address, Address, F32, U64] for the kernel mean_f32"),
                "{words}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "a value has the size of its parameter")]
    fn a_value_of_another_size_is_no_argument() {
        let _ = Argument::of(Parameter::F32, &2.0_f64);
    }
}
