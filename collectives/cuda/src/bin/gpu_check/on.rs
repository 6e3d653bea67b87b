//! One stream of a device, with input from a seed, and comparisons that are counted. Must not know which kernels there are.

use std::fmt::Write as _;

use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Element, Enqueue, Stream};

use super::numbers::{Any, LENGTHS, MANY, Numbers};

/// Why a kernel is not what it should be.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The device failed, or refuses.
    Device(DeviceError),
    /// Other bits than the reference's: which.
    Bits(String),
}

impl From<DeviceError> for Wrong {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

pub(crate) type Tried = Result<(), Wrong>;

/// Values, and the same on the device.
pub(crate) type Both<T> = (Vec<T>, DeviceTensor<T>);

pub(crate) struct On<'a> {
    device: &'a Device,
    stream: Stream,
    numbers: Numbers,
    quick: bool,
    compared: u64,
}

impl<'a> On<'a> {
    pub(crate) const fn new(device: &'a Device, stream: Stream, seed: u64, quick: bool) -> Self {
        Self {
            device,
            stream,
            numbers: Numbers::new(seed),
            quick,
            compared: 0,
        }
    }

    /// What kernels are enqueued by.
    pub(crate) const fn enqueue(&self) -> Enqueue<'a> {
        self.device.on(self.stream)
    }

    pub(crate) const fn compared(&self) -> u64 {
        self.compared
    }

    pub(crate) const fn is_quick(&self) -> bool {
        self.quick
    }

    /// Lengths at which something ends; and, unless it is to be quick, one with more elements than a launch has threads.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        let many = (!self.quick).then_some(MANY);
        LENGTHS.into_iter().chain(many).collect()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.numbers.below(bound)
    }

    /// Any values.
    pub(crate) fn any<T: Element + Any>(&mut self, length: usize) -> Result<Both<T>, Wrong> {
        let values = self.numbers.all(length);
        self.there(values)
    }

    /// Any values, or those of one magnitude, whose sums are rounded.
    pub(crate) fn drawn(&mut self, any: bool, length: usize) -> Result<Both<f32>, Wrong> {
        let numbers = &mut self.numbers;
        let values = if any { numbers.all(length) } else { numbers.near(length) };
        self.there(values)
    }

    /// These values, and the same on the device.
    pub(crate) fn there<T: Element>(&self, values: Vec<T>) -> Result<Both<T>, Wrong> {
        let tensor = DeviceTensor::from_slice(self.device, self.stream, &values)?;
        Ok((values, tensor))
    }

    /// Room for a result.
    pub(crate) fn room<T: Element>(&self, length: usize) -> Result<DeviceTensor<T>, Wrong> {
        Ok(DeviceTensor::unset(self.device, self.stream, length)?)
    }

    /// Whether the device has these bits.
    pub(crate) fn same<T: Element>(&mut self, found: &DeviceTensor<T>, expected: &[T]) -> Tried {
        self.compared += 1;
        let found = found.to_vec()?;
        let differs = |at: &usize| bytemuck::bytes_of(&found[*at]) != bytemuck::bytes_of(&expected[*at]);
        if found.len() != expected.len() {
            return Err(Wrong::Bits(format!(
                "expected {} elements, found {}",
                expected.len(),
                found.len()
            )));
        }
        match (0..found.len()).find(differs) {
            None => Ok(()),
            Some(at) => Err(Wrong::Bits(format!(
                "in comparison {} element {at} of {}: expected {}, found {}",
                self.compared,
                found.len(),
                bits(&expected[at]),
                bits(&found[at])
            ))),
        }
    }
}

/// As a number is read, from the highest digit on.
fn bits<T: Element>(value: &T) -> String {
    let mut words = String::from("0x");
    for byte in bytemuck::bytes_of(value).iter().rev() {
        write!(words, "{byte:02x}").expect("text takes text");
    }
    words
}
