//! What is measured on the GPU, and how.

use sardana_actors::memory::available;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Enqueue, Pinned, Stream};
use sardana_cuda::parameters::{Adam, MAX_PIECE_BYTES};

use super::super::times::quantile;
use super::error::{Measured, NotMeasured};
use super::row::{Beside, Figure, Row};
use super::{exposed, nccl, ring, snapshot};

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
const ROOM: [u64; 2] = [6, 5];

/// What else the GPU and the host need.
const SPARE_BYTES: u64 = 128 << 20;

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
        let copied = Figure::moved(2 * self.bytes, self.copied()?);
        let limit = copied.bytes_per_second();
        took(Row::new("copy within", copied));
        let kernels: [(&str, Kernel); 6] = [
            ("pack", Self::packed),
            ("ordered sum", Self::summed),
            ("mean", Self::divided),
            ("squares", Self::squared),
            ("AdamW", Self::updated),
            ("BLAKE3", Self::hashed),
        ];
        for (what, kernel) in kernels {
            say(what);
            let (bytes, seconds) = kernel(self)?;
            // Hashing is bound by what is computed.
            let beside = if what == "BLAKE3" {
                Beside::Nothing
            } else {
                Beside::Rate {
                    what: "a copy within",
                    rate: limit,
                    goal: Some(GOAL),
                }
            };
            took(Row::new(what, Figure::moved(bytes, seconds).beside(beside)));
        }
        self.steps(say, took)
    }

    /// What a job does besides, and copies between the host and the GPU, with which that is compared.
    fn steps(&self, say: impl Fn(&'static str), took: &mut dyn FnMut(Row)) -> Measured<()> {
        say("copies between the GPU and the host");
        let [up, down] = self.crossed()?;
        let moved = |seconds| Figure::moved(self.bytes, seconds);
        took(Row::new("copy up, pinned", moved(up)));
        took(Row::new("copy down, pinned", moved(down)));
        say("a ring of two workers on the GPU");
        took(Row::new(
            "ring of two workers",
            ring::summed(&self.device, self.elements(), up + down)?,
        ));
        say("what two workers wait behind their backward passes");
        exposed::waited(self.elements(), up + down)?.into_iter().for_each(&mut *took);
        say("a step beside a snapshot");
        let rate = moved(down).bytes_per_second();
        snapshot::stalled(self.elements(), rate)?.into_iter().for_each(&mut *took);
        say("NCCL's communicators");
        nccl::renewed().into_iter().for_each(took);
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

    fn copied(&self) -> Measured<f64> {
        let (from, mut to) = (self.gradient()?, self.gradient()?);
        self.seconds(|on| on.copy(&mut to.view_mut(), &from.view()))
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

    /// As for a norm by which gradients are clipped: they are read.
    fn squared(&self) -> Measured<(u64, f64)> {
        let (sum, mut out) = (self.gradient()?, DeviceTensor::unset(&self.device, ON, 1)?);
        let seconds = self.seconds(|on| on.squares(&mut out.view_mut(), &[sum.view()], 3.0))?;
        Ok((self.bytes, seconds))
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

    /// From pinned memory to the GPU, and back: seconds of each.
    fn crossed(&self) -> Measured<[f64; 2]> {
        let (device, count) = (&self.device, self.elements());
        let mut there = self.gradient()?;
        let mut pinned = Pinned::<f32>::zeros(device, count)?;
        let up = self.seconds(|_| pinned.copy_up(ON, 0..count, &mut there, 0))?;
        let down = self.seconds(|_| pinned.copy_down(ON, &there, 0, 0..count))?;
        Ok([up, down])
    }
}

/// Seconds of a copy of so many bytes from pinned memory to the GPU of this number, and of one back.
pub(super) fn pinned_copies(ordinal: usize, bytes: u64) -> Measured<[f64; 2]> {
    let device = Device::open(ordinal)?;
    let title = String::new();
    Machine { device, title, bytes }.crossed()
}
