//! How long a running sum takes to pass the GPU: up in chunks, a gradient is added there, and down again.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Instant;

use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream};
use sardana_cuda::staged::{Host, Place, Role, Shard, Staged, StagedError, Visit};

use super::super::times::quantile;
use super::measured::Measured;
use super::row::{Beside, Row};

/// Elements of a chunk: 4 MiB.
const CHUNK: NonZeroUsize = NonZeroUsize::new(1 << 20).expect("it is not 0");

/// Chunks under way at once.
const SLOTS: NonZeroUsize = NonZeroUsize::new(4).expect("it is not 0");

/// So many times are measured, of which the median counts.
const TIMES: usize = 3;

/// The part of copies of the same bytes, one after the other, that is aimed at.
const GOAL: f64 = 0.7;

/// Links as fast as memory.
struct Memory {
    comes: Vec<f32>,
    goes: Vec<f32>,
}

impl Host<f32> for Memory {
    type Error = Infallible;

    fn receive(&mut self, range: Range<usize>, into: &mut [f32]) -> Result<(), Infallible> {
        into.copy_from_slice(&self.comes[range]);
        Ok(())
    }

    fn deliver(&mut self, range: Range<usize>, from: &[f32]) -> Result<(), Infallible> {
        self.goes[range].copy_from_slice(from);
        Ok(())
    }
}

/// A sum of so many elements, at the last of several workers. Copies of as many elements from and to pinned memory take `copies` seconds.
pub(super) fn passed(device: &Device, elements: usize, copies: f64) -> Measured<Row> {
    let chunk = CHUNK.min(NonZeroUsize::new(elements).unwrap_or(NonZeroUsize::MIN));
    let visit = Visit {
        role: Role::Closer,
        shards: vec![Place::Device],
        elements,
        chunk,
        slots: SLOTS,
    };
    let mut staged = Staged::<f32>::new(device, chunk, SLOTS)?;
    let mut finished = DeviceTensor::zeros(device, Stream::Compute, elements)?;
    let shards = [Shard::kept(DeviceTensor::zeros(device, Stream::Compute, elements)?)?];
    let mut memory = Memory {
        comes: vec![1.0; elements],
        goes: vec![0.0; elements],
    };
    let (steps, mut seconds) = (visit.steps(), Vec::with_capacity(TIMES));
    device.synchronize()?;
    for _ in 0..TIMES {
        let began = Instant::now();
        let passing = staged.carry_out(&steps, &shards, Some(&mut finished), &mut memory);
        passing.map_err(of_the_device)?;
        device.synchronize()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    let [down, up] = visit.bytes((elements * size_of::<f32>()) as u64);
    let bytes = down + up;
    Ok(Row {
        what: "sum that passes",
        bytes,
        seconds: quantile(&mut seconds, 0.5),
        beside: Some(Beside {
            what: "copies up and down",
            rate: bytes as f64 / copies,
            goal: GOAL,
        }),
    })
}

fn of_the_device(error: StagedError<Infallible>) -> DeviceError {
    match error {
        StagedError::Device(error) => error,
        StagedError::Host(never) => match never {},
        StagedError::Plan { expected, found } => DeviceError::Launch {
            kernel: "a staged sum",
            expected,
            found,
        },
    }
}
