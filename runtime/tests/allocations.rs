//! What a step allocates once the first ones are over: a few bytes of what a worker's machine says and commands, and nothing else. No gradient,
//! no part of one, nothing for a shard or a sample, also where samples are decoded ahead, and nothing for a chunk on its way from thread to thread.
//! (Other plans and other links are measured where they are made, in the tests of `sardana-collectives`.)
//! A process of its own, since all its allocations are counted.

use std::sync::{Arc, Mutex, RwLock};

use dhat::HeapStats;
use sardana::data::{DataError, DataFingerprint, Dataset, Loader, SampleRandom, Shard};
use sardana::fit::{Fit, Network, Parameter, Role, Values};
use sardana::model::{GradientWriter, ModelError};
use sardana::optim::Adam;
use sardana::{Job, Order, local};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Steps of a job.
const STEPS: u64 = 60;

/// Steps before the measured ones: buffers are made in them.
const FIRST: usize = 10;

/// Values of the smaller network, and how many times as many the larger one has.
const VALUES: usize = 50_000;
const LARGER: usize = 20;

/// Samples of a job's data, and of a step, and shards of a step.
const SAMPLES: u64 = 64;
const BATCH: u64 = 16;
const SHARDS: u32 = 4;

/// Memory for samples that are decoded ahead: for those of a few steps, so that each step has others begun.
const AHEAD_BYTES: usize = 4 << 10;

/// Samples that take no memory.
struct Numbers;

impl Dataset for Numbers {
    type Item = u64;

    fn len(&self) -> u64 {
        SAMPLES
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<u64, DataError> {
        Ok(index)
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

/// A network whose own code allocates nothing. Each step it notes what all threads have allocated so far.
struct Plain {
    tensors: Arc<RwLock<Vec<Vec<f32>>>>,
    metrics: usize,
    /// By step, as its first gradient began.
    allocated: Arc<Mutex<Vec<Option<Allocated>>>>,
}

#[derive(Clone, Copy, Debug)]
struct Allocated {
    blocks: u64,
    bytes: u64,
}

impl Allocated {
    fn so_far() -> Self {
        let heap = HeapStats::get();
        Self {
            blocks: heap.total_blocks,
            bytes: heap.total_bytes,
        }
    }
}

struct Seen(Arc<RwLock<Vec<Vec<f32>>>>);

impl Network for Plain {
    type Item = u64;

    fn parameters(&self) -> Vec<Parameter> {
        let tensors = self.tensors.read().expect("no thread panics");
        let parameter = |(number, values): (usize, &Vec<f32>)| Parameter {
            name: format!("{number}"),
            shape: vec![values.len()],
            role: Role::Trained,
        };
        tensors.iter().enumerate().map(parameter).collect()
    }

    fn metrics(&self) -> Vec<String> {
        (0..self.metrics).map(|metric| format!("{metric}")).collect()
    }

    fn describe(&self) -> String {
        "plain".to_owned()
    }

    fn gradient(
        &self,
        shard: &Shard,
        items: &[u64],
        out: &mut GradientWriter<'_>,
        sums: &mut [f64],
    ) -> Result<(), ModelError> {
        self.allocated.lock().expect("no thread panics")[shard.step().get() as usize].get_or_insert_with(Allocated::so_far);
        let tensors = self.tensors.read().expect("no thread panics");
        for (number, values) in tensors.iter().enumerate() {
            out.write_f32(number, values)?;
        }
        sums.fill(items.len() as f64);
        Ok(())
    }

    fn measure(&self, _: &[u64], _: &mut [f64]) -> Result<(), ModelError> {
        Ok(())
    }

    fn values(&self) -> Box<dyn Values> {
        Box::new(Seen(Arc::clone(&self.tensors)))
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        change(&mut self.tensors.write().expect("no thread panics")[tensor]);
        Ok(())
    }
}

impl Values for Seen {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        see(&self.0.read().expect("no thread panics")[tensor]);
        Ok(())
    }
}

/// A job, and what its steps may allocate.
struct Case {
    name: &'static str,
    workers: u32,
    /// Values of its network: of one, or of several jobs.
    values: &'static [usize],
    order: Order,
    metrics: usize,
    /// Threads of each worker that decode ahead.
    decoders: usize,
    /// So many steps in a row are looked at together.
    steps: usize,
    most: Allocated,
}

/// What all threads have allocated as each step began, after the first ones.
fn train(case: &Case, values: usize) -> Vec<Allocated> {
    let job = Job::builder("allocations")
        .shards(SHARDS)
        .data(SAMPLES, BATCH)
        .steps(STEPS)
        .order(case.order)
        .build()
        .expect("a job");
    let allocated = Arc::new(Mutex::new(vec![None; STEPS as usize]));
    let trained = local::train(job.spec(), case.workers, |spec| {
        let tensors = vec![vec![0.5; values / 2], vec![0.25; 10], vec![0.1; values / 2]];
        let network = Plain {
            tensors: Arc::new(RwLock::new(tensors)),
            metrics: case.metrics,
            allocated: Arc::clone(&allocated),
        };
        let loader = Loader::on_demand(Numbers).ahead(AHEAD_BYTES).threads(case.decoders)?;
        Ok(Fit::builder(network).data(loader).optimizer(Adam::new(), 1e-3).build(spec)?)
    })
    .expect("a job");
    assert_eq!(trained.reports.len() as u64, STEPS);
    let allocated = allocated.lock().expect("no thread panics");
    let each: Option<Vec<Allocated>> = allocated[FIRST..].iter().copied().collect();
    each.expect("each step has gradients")
}

/// The least that so many steps in a row allocate together. What does not come with each step is not counted: buffers that are made later, as
/// threads run ahead of each other as they never did before, and what is said every 50 ms, where steps are shorter.
fn least(all: &[Allocated], steps: usize) -> Allocated {
    let least = |count: fn(&Allocated) -> u64| {
        let runs = all.iter().zip(&all[steps..]);
        let found = runs.map(|(from, to)| count(to) - count(from)).min();
        found.expect("more steps than that")
    };
    Allocated {
        blocks: least(|allocated| allocated.blocks),
        bytes: least(|allocated| allocated.bytes),
    }
}

/// What a worker alone may allocate in a step. Left are
/// - the sums of the metrics, in the report that the coordinator gets of each step;
/// - the pieces in two commands of its machine: whose buffers to retain, and which to add up.
const ALONE: Allocated = Allocated { blocks: 3, bytes: 64 };

/// Steps in a row of workers, or of a worker and its decoders, side by side: each is at a step of its own, so that one step counts some of another's.
const IN_A_ROW: usize = 10;

/// What a worker alone with decoders may allocate in so many steps: no more than without, and a report of each, if steps take as long as it is until the
/// coordinator is told again, as on a slow machine. A block for each shard, or two, would be 40 more.
const AHEAD: Allocated = Allocated {
    blocks: (ALONE.blocks + REPORT) * IN_A_ROW as u64 + late_rooms(1).blocks,
    bytes: (ALONE.bytes + 64) * IN_A_ROW as u64 + late_rooms(1).bytes,
};

/// What three workers without metrics may allocate in so many steps. Left are
/// - a block of each in a step: the pieces in the command that says whose buffers to retain;
/// - a block in a step, if steps take as long as it is until the coordinator is told again: the list of reports.
///
/// Two blocks more in a step, as of a ring's two ranks that send something on, would be 46 at least, without such lists.
const TOGETHER: Allocated = Allocated {
    blocks: 42,
    bytes: 1_024,
};

/// What the report of a single step may allocate beside: the list, and the sums of its metrics once more. Steps of a large network may take as
/// long as it is until the coordinator is told again.
const REPORT: u64 = 2;

/// Gradients of which a worker may make the buffers after the first steps, as threads run ahead of each other as they did not before. One in
/// each second step, or third, would be more.
const LATE: u64 = 8;

/// What is allocated once for a shard that is decoded ahead, and used again for others: the numbers of its samples, and room for the samples.
const ROOM: Allocated = Allocated { blocks: 2, bytes: 352 };

/// Shards whose rooms the decoders of a worker may make in [`IN_A_ROW`] steps. Where they are hardly faster than training, as on a busy machine, the
/// memory fills so slowly that some are made in each row: of the eleven that it has room for, divided among the five rows.
const LATE_ROOMS: u64 = 2;

/// What so many workers with decoders may allocate beside, in [`IN_A_ROW`] steps.
const fn late_rooms(workers: u64) -> Allocated {
    Allocated {
        blocks: workers * LATE_ROOMS * ROOM.blocks,
        bytes: workers * LATE_ROOMS * ROOM.bytes,
    }
}

/// What three workers with decoders may allocate in so many steps. A block for each shard would be 40 more.
const TOGETHER_AHEAD: Allocated = Allocated {
    blocks: TOGETHER.blocks + late_rooms(3).blocks,
    bytes: TOGETHER.bytes + late_rooms(3).bytes,
};

/// A worker alone, three of them, with and without decoders, and each order.
const CASES: [Case; 5] = [
    A_WORKER,
    Case {
        name: "a worker that decodes ahead",
        values: &[VALUES],
        decoders: 2,
        steps: IN_A_ROW,
        most: AHEAD,
        ..A_WORKER
    },
    THREE,
    Case {
        name: "three workers that decode ahead",
        values: &[VALUES],
        decoders: 1,
        most: TOGETHER_AHEAD,
        ..THREE
    },
    Case {
        name: "three workers in fast order",
        values: &[VALUES],
        order: Order::Fast,
        ..THREE
    },
];

const A_WORKER: Case = Case {
    name: "a worker",
    workers: 1,
    values: &[VALUES, LARGER * VALUES],
    order: Order::Exact,
    metrics: 1,
    decoders: 0,
    steps: 1,
    most: ALONE,
};

const THREE: Case = Case {
    name: "three workers",
    workers: 3,
    metrics: 0,
    steps: IN_A_ROW,
    most: TOGETHER,
    ..A_WORKER
};

#[test]
fn a_step_allocates_only_what_is_said_and_commanded() {
    let _counting = dhat::Profiler::builder().testing().build();
    for case in CASES {
        let Case { name, steps, most, .. } = case;
        for &values in case.values {
            let reports = if values > VALUES { steps as u64 } else { 0 };
            let all = train(&case, values);
            let gradients = (all[all.len() - 1].bytes - all[0].bytes) / (values as u64 * 4);
            assert!(
                gradients <= u64::from(case.workers) * LATE,
                "{name}: {gradients} gradients in all steps"
            );
            let found = least(&all, steps);
            println!("{name}, {values} values, {steps} steps: {found:?}");
            assert!(found.blocks <= most.blocks + reports * REPORT, "{name}: {found:?}");
            assert!(found.bytes <= most.bytes + reports * 64, "{name}: {found:?}");
        }
    }
}
