//! What a step allocates once the first ones are over: nothing as large as a gradient or a part of one, and little else.
//! A process of its own, since all its allocations are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};

use dhat::HeapStats;
use sardana::data::{DataError, DataFingerprint, Dataset, Loader, SampleRandom, Shard};
use sardana::fit::{Fit, Network, Parameter, Role, Values};
use sardana::model::{GradientWriter, ModelError};
use sardana::optim::Adam;
use sardana::{Job, local};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Steps of a job.
const STEPS: u64 = 60;

/// Steps before the measured ones: buffers are made in them.
const FIRST: u64 = 10;

/// Values of the smaller network, and how many times as many the larger one has.
const VALUES: usize = 100_000;
const LARGER: usize = 10;

/// Samples that take no memory.
struct Numbers;

impl Dataset for Numbers {
    type Item = u64;

    fn len(&self) -> u64 {
        64
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
    allocated: Arc<Mutex<BTreeMap<u64, Allocated>>>,
}

#[derive(Clone, Copy, Debug)]
struct Allocated {
    blocks: u64,
    bytes: u64,
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
        vec!["loss".to_owned()]
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
        let HeapStats {
            total_blocks,
            total_bytes,
            ..
        } = HeapStats::get();
        let so_far = Allocated {
            blocks: total_blocks,
            bytes: total_bytes,
        };
        self.allocated
            .lock()
            .expect("no thread panics")
            .entry(shard.step().get())
            .or_insert(so_far);
        let tensors = self.tensors.read().expect("no thread panics");
        for (number, values) in tensors.iter().enumerate() {
            out.write_f32(number, values)?;
        }
        sums[0] += items.len() as f64;
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

/// What a step of `workers` threads with `values` values allocates: the mean over those after the first ones.
fn step_allocates(workers: u32, values: usize) -> Allocated {
    let job = Job::builder("allocations")
        .shards(4)
        .data(64, 16)
        .steps(STEPS)
        .build()
        .expect("a job");
    let allocated = Arc::new(Mutex::new(BTreeMap::new()));
    let trained = local::train(job.spec(), workers, |spec| {
        let tensors = vec![vec![0.5; values / 2], vec![0.25; 10], vec![0.1; values / 2]];
        let network = Plain {
            tensors: Arc::new(RwLock::new(tensors)),
            allocated: Arc::clone(&allocated),
        };
        let loader = Loader::on_demand(Numbers);
        Ok(Fit::builder(network).data(loader).optimizer(Adam::new(), 1e-3).build(spec)?)
    })
    .expect("a job");
    assert_eq!(trained.reports.len() as u64, STEPS);
    let allocated = allocated.lock().expect("no thread panics");
    let (first, last, steps) = (allocated[&FIRST], allocated[&(STEPS - 1)], STEPS - 1 - FIRST);
    Allocated {
        blocks: (last.blocks - first.blocks) / steps,
        bytes: (last.bytes - first.bytes) / steps,
    }
}

#[test]
fn a_step_allocates_nothing_that_grows_with_the_gradient() {
    let _counting = dhat::Profiler::builder().testing().build();
    for workers in [1, 3] {
        let each = |values| {
            let allocated = step_allocates(workers, values);
            println!("{workers} workers, {values} values: {allocated:?} a step");
            allocated
        };
        let (small, large) = (each(VALUES), each(LARGER * VALUES));
        // Some for the shards' samples and the step's own orders; and one of 24 bytes for each chunk on its way, which counts who has it.
        let (blocks, bytes) = (200 * u64::from(workers), 16_384 * u64::from(workers));
        for allocated in [small, large] {
            assert!(allocated.blocks <= blocks, "{workers} workers: {allocated:?}");
            assert!(allocated.bytes <= bytes, "{workers} workers: {allocated:?}");
        }
    }
}
