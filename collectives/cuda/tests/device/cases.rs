//! A sum over several ranks, each with a device: shards are computed, kept or spilled, the running sum passes from rank to rank and comes back, and each
//! rank uses what has become of it. Beside it, what a processor makes of the same shards.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::ops::Range;

use sardana_collectives::layout::Layout;
use sardana_collectives::reduce;
use sardana_cuda::device::{Device, DeviceTensor, Float, Stream, Traffic};
use sardana_cuda::staged::{Host, Place, Role, Shard, Staged, StagedError, Step, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};

use super::numbers::{Any, Numbers};

/// What a rank has: which of its shards stay on the device.
pub(crate) type Rank = Vec<Place>;

/// One sum.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) elements: usize,
    pub(crate) chunk: usize,
    pub(crate) slots: usize,
    /// Where the values come from.
    pub(crate) seed: u64,
}

/// What a run has given, for each rank.
#[derive(Debug)]
pub(crate) struct Given<T> {
    pub(crate) finished: Vec<T>,
    pub(crate) traffic: Traffic,
    pub(crate) visit: Visit,
}

/// Makes a plan wrong.
pub(crate) type Wrong = fn(&mut Vec<Step>);

pub(crate) type Result<T> = std::result::Result<T, StagedError<Infallible>>;

impl Case {
    /// Any number of ranks, of shards, and of those that are spilled, cut in any way.
    pub(crate) fn any(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut below = |bound: usize| numbers.below(bound as u64) as usize;
        let ranks = (0..1 + below(4)).map(|_| {
            (0..1 + below(3))
                .map(|_| if below(2) == 0 { Place::Device } else { Place::Spilled })
                .collect()
        });
        let ranks = ranks.collect();
        let elements = below(40);
        Self {
            ranks,
            elements,
            chunk: 1 + below(20),
            slots: 1 + below(3),
            seed,
        }
    }

    pub(crate) fn shards<T: Any>(&self) -> Vec<Vec<T>> {
        let mut numbers = Numbers::new(self.seed ^ 0x5eed);
        let count = self.ranks.iter().map(Vec::len).sum();
        (0..count).map(|_| numbers.all(self.elements)).collect()
    }

    /// Shards of one magnitude, whose sum is another for another order.
    pub(crate) fn near(&self) -> Vec<Vec<f32>> {
        let mut numbers = Numbers::new(self.seed ^ 0x5eed);
        let count = self.ranks.iter().map(Vec::len).sum();
        (0..count).map(|_| numbers.near(self.elements)).collect()
    }

    pub(crate) fn visit(&self, rank: usize) -> Visit {
        let last = self.ranks.len() - 1;
        let role = match rank {
            _ if last == 0 => Role::Alone,
            0 => Role::First,
            rank if rank == last => Role::Closer,
            _ => Role::Middle,
        };
        let [chunk, slots] = [self.chunk, self.slots].map(|count| NonZeroUsize::new(count).unwrap());
        Visit {
            role,
            shards: self.ranks[rank].clone(),
            elements: self.elements,
            chunk,
            slots,
        }
    }

    /// The sum as the runtime makes it without a device.
    pub(crate) fn expected<T: Float>(&self, shards: &[Vec<T>]) -> Vec<T> {
        let dtype = if size_of::<T>() == 4 { Dtype::F32 } else { Dtype::F64 };
        let spec = TensorSpec {
            name: "gradient".to_owned(),
            dtype,
            shape: vec![self.elements],
        };
        let layout = Layout::new(vec![spec], 0).unwrap();
        let mut sum = vec![T::zeroed(); self.elements];
        let mut terms: Vec<&[u8]> = shards.iter().map(|shard| bytemuck::cast_slice(shard)).collect();
        reduce::sum_into(
            &layout,
            0..size_of::<T>() * self.elements,
            bytemuck::cast_slice_mut(&mut sum),
            &mut terms,
        );
        sum
    }

    /// The same on devices. `alter` may change the steps of a rank's visit.
    pub(crate) fn run<T: Float>(&self, shards: &[Vec<T>], alter: impl Fn(usize, &mut Vec<Step>)) -> Result<Vec<Given<T>>> {
        let mut running: Option<Vec<T>> = None;
        let mut ranks = Vec::new();
        let mut first = 0;
        for (number, own) in self.ranks.iter().enumerate() {
            let visit = self.visit(number);
            let mut rank = OnRank::new(&visit)?;
            let held = rank.compute(&shards[first..first + own.len()], own)?;
            first += own.len();
            let mut steps = visit.steps();
            alter(number, &mut steps);
            running = Some(rank.pass(&steps, held, running.unwrap_or_default())?);
            ranks.push((rank, visit));
        }
        let sum = running.unwrap_or_default();
        ranks.into_iter().map(|(rank, visit)| rank.ends(visit, &sum)).collect()
    }
}

struct OnRank<T> {
    device: Device,
    staged: Staged<T>,
    finished: DeviceTensor<T>,
    keeps: bool,
}

impl<T: Float> OnRank<T> {
    fn new(visit: &Visit) -> Result<Self> {
        let device = Device::open(0)?;
        let staged = Staged::new(&device, visit.chunk, visit.slots)?;
        let finished = DeviceTensor::unset(&device, Stream::Compute, visit.elements)?;
        let keeps = matches!(visit.role, Role::Closer | Role::Alone);
        Ok(Self {
            device,
            staged,
            finished,
            keeps,
        })
    }

    /// Gradients that a kernel on the stream of computing leaves behind.
    fn compute(&self, shards: &[Vec<T>], places: &[Place]) -> Result<Vec<Shard<T>>> {
        let one = |(values, place): (&Vec<T>, &Place)| {
            let values = DeviceTensor::from_slice(&self.device, Stream::Compute, values)?;
            let mut gradient = DeviceTensor::unset(&self.device, Stream::Compute, values.len())?;
            self.device
                .on(Stream::Compute)
                .sum_into::<T>(&mut gradient.view_mut(), &values.view(), &[])?;
            Ok(match place {
                Place::Device => Shard::kept(gradient)?,
                Place::Spilled => Shard::spilled(gradient)?,
            })
        };
        shards.iter().zip(places).map(one).collect()
    }

    /// The running sum as it leaves this rank. The gradients are freed before anything need have been done.
    fn pass(&mut self, steps: &[Step], shards: Vec<Shard<T>>, running: Vec<T>) -> Result<Vec<T>> {
        let mut wire = Wire {
            comes: &running,
            goes: Vec::new(),
        };
        let finished = self.keeps.then_some(&mut self.finished);
        self.staged.carry_out(steps, &shards, finished, &mut wire)?;
        drop(shards);
        let goes = wire.goes;
        Ok(goes)
    }

    /// The finished sum comes back, and is used.
    fn ends(mut self, visit: Visit, sum: &[T]) -> Result<Given<T>> {
        let mut wire = Wire {
            comes: sum,
            goes: Vec::new(),
        };
        self.staged
            .carry_out(&visit.landing(), &[], Some(&mut self.finished), &mut wire)?;
        let mut state = DeviceTensor::unset(&self.device, Stream::Compute, visit.elements)?;
        self.device
            .on(Stream::Compute)
            .sum_into::<T>(&mut state.view_mut(), &self.finished.view(), &[])?;
        let traffic = self.device.traffic();
        Ok(Given {
            finished: state.to_vec()?,
            traffic,
            visit,
        })
    }
}

/// A link: what comes over it, and what went.
struct Wire<'a, T> {
    comes: &'a [T],
    goes: Vec<T>,
}

impl<T: Float> Host<T> for Wire<'_, T> {
    type Error = Infallible;

    fn receive(&mut self, range: Range<usize>, into: &mut [T]) -> std::result::Result<(), Infallible> {
        into.copy_from_slice(&self.comes[range]);
        Ok(())
    }

    fn deliver(&mut self, range: Range<usize>, from: &[T]) -> std::result::Result<(), Infallible> {
        assert_eq!(
            (range.start, range.len()),
            (self.goes.len(), from.len()),
            "chunks go in order"
        );
        self.goes.extend_from_slice(from);
        Ok(())
    }
}
