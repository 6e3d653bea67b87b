//! What is measured on the GPU, and how.

use std::fmt;

use sardana_actors::memory::available;
use sardana_collectives::ring::RingError;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Enqueue, Pinned, Stream};
use sardana_cuda::gradient::OnDeviceError;
use sardana_cuda::parameters::{Adam, MAX_PIECE_BYTES};

use super::super::sizes::words;
use super::super::times::quantile;
use super::row::{Beside, Row};

/// What everything is enqueued on.
const ON: Stream = Stream::Compute;

/// So many times are measured, of which the median counts.
const TIMES: usize = 5;

/// Tensors of a gradient.
const TENSORS: usize = 64;

/// Shards that are added to a running sum.
const SHARDS: usize = 2;

/// The part of a copy within the GPU's memory that a kernel is to reach.
const GOAL: f64 = 0.85;

/// Gradients for which there is to be room on the GPU, and on the host.
const ROOM: [u64; 2] = [5, 4];

/// What else the GPU and the host need.
const SPARE_BYTES: u64 = 128 << 20;

/// Why nothing, or not all, was measured.
#[derive(Debug)]
pub(super) enum NotMeasured {
    Device(DeviceError),
    Gradient(OnDeviceError),
    Ring(RingError),
    Room { of: &'static str, needed: u64, left: u64 },
}

impl From<DeviceError> for NotMeasured {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<OnDeviceError> for NotMeasured {
    fn from(error: OnDeviceError) -> Self {
        Self::Gradient(error)
    }
}

impl From<RingError> for NotMeasured {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(formatter),
            Self::Gradient(error) => error.fmt(formatter),
            Self::Ring(error) => error.fmt(formatter),
            Self::Room { of, needed, left } => write!(
                formatter,
                "expected {} of {of}, found that {} are left: give a smaller --size",
                words(*needed),
                words(*left)
            ),
        }
    }
}

pub(super) type Measured<T> = Result<T, NotMeasured>;

/// Measures a kernel: the bytes that it reads and writes, and how many seconds it takes.
type Kernel = fn(&Machine) -> Measured<(u64, f64)>;

/// The GPU, and how large a gradient is.
pub(super) struct Machine {
    device: Device,
    title: String,
    bytes: u64,
}

impl Machine {
    pub(super) fn new(bytes: u64) -> Measured<Self> {
        let device = Device::open(0)?;
        let needed = ROOM.map(|gradients| bytes * gradients + SPARE_BYTES);
        let of = ["the GPU's memory", "the host's memory"];
        let left = [Some(device.free_memory()?), available()];
        for ((needed, of), left) in needed.into_iter().zip(of).zip(left) {
            if let Some(left) = left.filter(|left| *left < needed) {
                return Err(NotMeasured::Room { of, needed, left });
            }
        }
        let title = device.description()?;
        Ok(Self { device, title, bytes })
    }

    pub(super) fn title(&self) -> String {
        self.title.clone()
    }

    pub(super) fn measure(&self, say: impl Fn(&'static str), took: &mut dyn FnMut(Row)) -> Measured<()> {
        say("copies within the GPU's memory");
        let copied = self.copied()?;
        let limit = copied.rate();
        took(copied);
        let kernels: [(&str, Kernel); 5] = [
            ("pack", Self::packed),
            ("ordered sum", Self::summed),
            ("mean", Self::divided),
            ("AdamW", Self::updated),
            ("BLAKE3", Self::hashed),
        ];
        for (what, kernel) in kernels {
            say(what);
            let (bytes, seconds) = kernel(self)?;
            // Hashing is bound by what is computed.
            let beside = (what != "BLAKE3").then_some(Beside {
                what: "a copy within",
                rate: limit,
                goal: GOAL,
            });
            took(Row {
                what,
                bytes,
                seconds,
                beside,
            });
        }
        say("copies between the GPU and the host");
        let crossed = self.crossed()?;
        let both_ways = crossed.each_ref().map(|row| row.seconds).iter().sum();
        crossed.into_iter().for_each(&mut *took);
        say("a ring of two workers on the GPU");
        took(super::ring::summed(&self.device, self.elements(), both_ways)?);
        Ok(())
    }

    fn elements(&self) -> usize {
        (self.bytes / size_of::<f32>() as u64) as usize
    }

    /// A gradient's elements, all 0.
    fn gradient(&self) -> Measured<DeviceTensor<f32>> {
        Ok(DeviceTensor::zeros(&self.device, ON, self.elements())?)
    }

    /// The median of what it takes, by the device's clock, once it was done before.
    fn seconds(&self, mut enqueue: impl FnMut(Enqueue<'_>) -> Result<(), DeviceError>) -> Measured<f64> {
        let device = &self.device;
        enqueue(device.on(ON))?;
        let mut seconds = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let from = device.time(ON)?;
            enqueue(device.on(ON))?;
            let to = device.time(ON)?;
            seconds.push(device.between(&from, &to)?.as_secs_f64());
        }
        // No clock tells a time of nothing.
        Ok(quantile(&mut seconds, 0.5).max(1e-9))
    }

    fn copied(&self) -> Measured<Row> {
        let (from, mut to) = (self.gradient()?, self.gradient()?);
        let seconds = self.seconds(|on| on.copy(&mut to.view_mut(), &from.view()))?;
        Ok(Row {
            what: "copy within",
            bytes: 2 * self.bytes,
            seconds,
            beside: None,
        })
    }

    /// From many tensors, none of which begins or ends where a block does.
    fn packed(&self) -> Measured<(u64, f64)> {
        let tensors = self.gradient()?;
        let mut gradient = DeviceTensor::<u8>::unset(&self.device, ON, self.bytes as usize)?;
        let each = (self.elements() / TENSORS).max(1) | 1;
        let starts = (0..self.elements()).step_by(each);
        let table: Vec<_> = starts
            .map(|start| {
                let part = tensors.part(start..self.elements().min(start + each));
                ((start * size_of::<f32>()) as u64, part)
            })
            .collect();
        let seconds = self.seconds(|on| on.pack(&mut gradient.view_mut(), &table, false))?;
        Ok((2 * self.bytes, seconds))
    }

    fn summed(&self) -> Measured<(u64, f64)> {
        let mut running = self.gradient()?;
        let shards = (0..SHARDS).map(|_| self.gradient()).collect::<Measured<Vec<_>>>()?;
        let views: Vec<_> = shards.iter().map(DeviceTensor::view).collect();
        let seconds = self.seconds(|on| on.add(&mut running.view_mut(), &views))?;
        Ok(((2 + SHARDS as u64) * self.bytes, seconds))
    }

    fn divided(&self) -> Measured<(u64, f64)> {
        let (sum, mut out) = (self.gradient()?, self.gradient()?);
        let seconds = self.seconds(|on| on.mean(&mut out.view_mut(), &sum.view(), 3.0_f32))?;
        Ok((2 * self.bytes, seconds))
    }

    /// Values and two moments are read and written, the sum is read.
    fn updated(&self) -> Measured<(u64, f64)> {
        let adam = Adam {
            number: 1,
            rate: 1e-3,
            decay: 1e-2,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decoupled: true,
        };
        let by = adam.moments(64.0, 1.0);
        let sum = self.gradient()?;
        let [mut values, mut means, mut squares] = [self.gradient()?, self.gradient()?, self.gradient()?];
        let seconds = self.seconds(|on| {
            on.adam(
                &mut values.view_mut(),
                &mut means.view_mut(),
                &mut squares.view_mut(),
                &sum.view(),
                by,
            )
        })?;
        Ok((7 * self.bytes, seconds))
    }

    /// In pieces, as a state is hashed.
    fn hashed(&self) -> Measured<(u64, f64)> {
        let state = DeviceTensor::<u8>::zeros(&self.device, ON, self.bytes as usize)?;
        let piece = MAX_PIECE_BYTES as usize;
        let starts = (0..state.len()).step_by(piece);
        let pieces: Vec<_> = starts
            .map(|start| state.part(start..state.len().min(start + piece)))
            .collect();
        let mut out = DeviceTensor::<u8>::unset(&self.device, ON, 32 * pieces.len())?;
        let seconds = self.seconds(|on| on.hash_pieces(&mut out.view_mut(), &pieces))?;
        Ok((self.bytes, seconds))
    }

    /// From pinned memory to the GPU, and back.
    fn crossed(&self) -> Measured<[Row; 2]> {
        let (device, count) = (&self.device, self.elements());
        let mut there = self.gradient()?;
        let mut pinned = Pinned::<f32>::zeros(device, count)?;
        let up = self.seconds(|_| pinned.copy_up(ON, 0..count, &mut there, 0))?;
        let down = self.seconds(|_| pinned.copy_down(ON, &there, 0, 0..count))?;
        let row = |what, seconds| Row {
            what,
            bytes: self.bytes,
            seconds,
            beside: None,
        };
        Ok([row("copy up, pinned", up), row("copy down, pinned", down)])
    }
}
