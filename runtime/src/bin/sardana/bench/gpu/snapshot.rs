//! How much longer a step takes at whose beginning a state that lies on the GPU is lent to another thread, which copies it to the host: as a snapshot is taken for a
//! checkpoint, or for a worker that joins. The state is kept as a fit on a GPU keeps it, and as of a fit the next update waits until all of it is copied.

use std::thread;
use std::time::Instant;

use sardana_collectives::links;
use sardana_collectives::ring::RingLinks;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, LentTensor, SharedTensor, Stream, Transfer};
use sardana_cuda::gradient::DeviceSum;
use sardana_cuda::parameters::Adam;
use sardana_protocol::plan::Plan;

use super::super::times::{self, quantile};
use super::backward::{Backward, Network};
use super::error::{Measured, NotMeasured};
use super::row::{Beside, Figure, Row};
use super::worker::{self, Worker};

const ON: Stream = Stream::Compute;

/// So many steps without a snapshot, and so many snapshots, are measured; of each the median counts.
const TIMES: usize = 3;

/// Each parameter's value, and what AdamW remembers of it.
const KINDS: usize = 3;

/// A worker that trains alone, with its state.
struct Training {
    worker: Worker,
    backward: Backward,
    /// By layer.
    state: Vec<[SharedTensor<f32>; KINDS]>,
    updates: u64,
    plan: Plan,
}

/// Where a snapshot comes to on the host, and what it passes through.
struct Room {
    transfer: Transfer,
    bytes: Vec<u8>,
}

/// Seconds of a step at whose beginning the state was lent.
struct Seen {
    step: f64,
    /// Of these, how long its update waited for the copy.
    waited: f64,
    /// Of the copy.
    copied: f64,
}

/// With a gradient of about so many elements, and a state three times as large. `copy_down` is how many bytes a second come down to pinned memory at most.
pub(super) fn stalled(elements: usize, copy_down: f64) -> Measured<[Row; 3]> {
    let (device, network) = (Device::open(0)?, Network::of(elements));
    let mut training = Training::new(&device, network)?;
    let bytes = KINDS * network.layers() * network.weights() * size_of::<f32>();
    let mut room = Room {
        transfer: Transfer::new(&device)?,
        bytes: Vec::with_capacity(bytes),
    };
    training.step(|| Ok(()))?;
    let mut alone = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        alone.push(training.step(|| Ok(()))?);
    }
    let a_step = quantile(&mut alone, 0.5);
    let mut seen = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        seen.push(training.step_beside_a_snapshot(&mut room)?);
    }
    let median = |of: fn(&Seen) -> f64| quantile(&mut seen.iter().map(of).collect::<Vec<_>>(), 0.5);
    let bytes = room.bytes.len() as u64;
    let stall = Figure {
        of: Some(format!("the update waits {}", times::words(median(|one| one.waited)))),
        ..Figure::moved(bytes, (median(|one| one.step) - a_step).max(0.0))
    };
    let stall = stall.beside(Beside::Time {
        what: "a step without",
        seconds: a_step,
    });
    let copied = Figure::moved(bytes, median(|one| one.copied)).beside(Beside::Rate {
        what: "copies down",
        rate: copy_down,
        goal: None,
    });
    let alone = Figure {
        bytes: None,
        ..Figure::moved(0, a_step)
    };
    Ok([
        Row::new("step of one worker", alone),
        Row::new("stall by a snapshot", stall),
        Row::new("snapshot, beside a step", copied),
    ])
}

impl Training {
    fn new(device: &Device, network: Network) -> Measured<Self> {
        let (plan, layout) = (worker::plan(1), network.layout());
        let zeros = || DeviceTensor::zeros(device, ON, network.weights()).map(SharedTensor::new);
        let state = (0..network.layers()).map(|_| Ok([zeros()?, zeros()?, zeros()?]));
        Ok(Self {
            worker: Worker::new(device, &layout, 0, &plan)?,
            backward: Backward::new(device, network)?,
            state: state.collect::<Result<_, DeviceError>>()?,
            updates: 0,
            plan,
        })
    }

    /// Seconds of one step, until the GPU has done all of it. Before its update it waits for `copied`.
    fn step(&mut self, copied: impl FnOnce() -> Measured<()>) -> Measured<f64> {
        self.updates += 1;
        let adam = Adam {
            number: self.updates,
            rate: 1e-3,
            decay: 1e-2,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decoupled: true,
        };
        let Self {
            state,
            plan,
            worker,
            backward,
            ..
        } = self;
        let device = worker.device.clone();
        let links = RingLinks::of_all(plan, plan, links::in_process);
        let links = links.into_iter().next().expect("a plan has a rank");
        let began = Instant::now();
        let update = |sum: &DeviceSum<'_>, samples: u64| {
            copied()?;
            let by = adam.moments(samples as f32, 1.0);
            for (layer, [values, means, squares]) in state.iter_mut().enumerate() {
                device.on(ON).adam(
                    &mut values.change()?.view_mut(),
                    &mut means.change()?.view_mut(),
                    &mut squares.change()?.view_mut(),
                    &sum.tensor(layer)?,
                    by,
                )?;
            }
            Ok(())
        };
        worker::beside_ring(worker.config(), links, 1, |steps| backward.step(worker, steps, update))?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// A step at whose beginning another thread begins to copy the state as it is then.
    fn step_beside_a_snapshot(&mut self, room: &mut Room) -> Measured<Seen> {
        let ready = self.worker.device.record(ON)?;
        let lend = |kinds: &[SharedTensor<f32>; KINDS]| kinds.each_ref().map(|kind| kind.lend(&ready));
        let lent: Vec<[LentTensor<f32>; KINDS]> = self.state.iter().map(lend).collect();
        thread::scope(|scope| {
            let copying = scope.spawn(|| copy(lent, room));
            let (mut waited, mut copied) = (0.0, 0.0);
            let step = self.step(|| {
                let began = Instant::now();
                copied = copying.join().expect("a copy does not panic")?;
                waited = began.elapsed().as_secs_f64();
                Ok(())
            })?;
            Ok(Seen { step, waited, copied })
        })
    }
}

/// Brings all of it to the host, tensor by tensor, and lets go of it then, as of a snapshot: how many seconds that takes.
fn copy(lent: Vec<[LentTensor<f32>; KINDS]>, room: &mut Room) -> Measured<f64> {
    let began = Instant::now();
    room.bytes.clear();
    let mut first = [None; KINDS];
    for kinds in &lent {
        for (kind, first) in kinds.iter().zip(&mut first) {
            let values = kind.to_vec(&mut room.transfer)?;
            room.bytes.extend_from_slice(bytemuck::cast_slice(&values));
            is_of_one_boundary(&values, first)?;
        }
    }
    drop(lent);
    Ok(began.elapsed().as_secs_f64())
}

/// All values of one kind are equal after as many updates: where some lack one, or have one more, the snapshot is none. `first` is the first value of the kind.
fn is_of_one_boundary(values: &[f32], first: &mut Option<f32>) -> Measured<()> {
    let Some((&start, &end)) = values.first().zip(values.last()) else {
        return Ok(());
    };
    let expected = *first.get_or_insert(start);
    let found = [start, values[values.len() / 2], end];
    // Before the first update they are zeros.
    if expected != 0.0 && found.iter().all(|value| value.to_bits() == expected.to_bits()) {
        return Ok(());
    }
    Err(NotMeasured::Wrong {
        what: "values of one boundary, in a snapshot,",
        expected: expected.into(),
        found: found.map(f64::from).to_vec(),
    })
}
