//! Workers whose gradients lie on the GPU, as far as a step needs them: the ring that workers run, over links through memory as two processes of a host share it, and what
//! each has for it. Must not know what is measured.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use futures_util::future::{Either, select};
use sardana_collectives::gradient::{GradientBuffer, GradientView, Sum};
use sardana_collectives::layout::Layout;
use sardana_collectives::links::{self, LinkReceiver, LinkSender};
use sardana_collectives::ring::{self, RingConfig, RingError, RingInput, RingLinks};
use sardana_cuda::device::Device;
use sardana_cuda::gradient::SumRoom;
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Plan, Visit};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::error::{Measured, NotMeasured};

/// A worker, with one shard. Its rank is the shard's number.
pub(super) struct Worker {
    pub(super) device: Device,
    pub(super) layout: Arc<Layout>,
    pub(super) gradient: GradientBuffer,
    /// Where the sum is for an update.
    pub(super) room: SumRoom,
    config: RingConfig,
    /// Memory of sums that have been used, the oldest first.
    used: VecDeque<GradientBuffer>,
}

/// In which order the shards of so many workers are added: exactly, as a job does unless it is told otherwise.
pub(super) fn plan(workers: u32) -> Plan {
    let shards = (0..workers).map(|rank| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(rank, rank + 1),
    });
    Plan::new(Order::Exact, workers, &shards.collect::<Vec<_>>())
}

/// So many steps of all of them, each on a thread of its own and over the same links, as in a generation: what `step` gives of each worker's, one after the other.
pub(super) fn steps<W: AsMut<Worker> + Send, R: Send>(
    workers: &mut [W],
    plan: &Plan,
    count: u64,
    step: impl Fn(&mut W, &mut Steps) -> Measured<R> + Sync,
) -> Measured<Vec<Vec<R>>> {
    // It hears the links' sockets, as long as there are some.
    let listening = runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build();
    let listening = listening.expect("a thread that listens can be had");
    thread::scope(|scope| {
        let step = &step;
        let links = {
            let _listens = listening.enter();
            RingLinks::of_all(plan, plan, link)
        };
        let mut threads = Vec::new();
        for (worker, links) in workers.iter_mut().zip(links) {
            let config = worker.as_mut().config();
            let all = move |steps: &mut Steps| (0..count).map(|_| step(worker, steps)).collect::<Measured<Vec<R>>>();
            threads.push(scope.spawn(move || beside_ring(config, links, count, all)));
        }
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("a step does not panic"));
        // All have ended by then. Of those that have failed, the one counts that the others do not blame.
        let (done, failed): (Vec<_>, Vec<_>) = ends.partition(Result::is_ok);
        let mut failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
        failed.sort_by_key(|error| matches!(error, NotMeasured::GivenUp | NotMeasured::Ring(_)));
        match failed.into_iter().next() {
            Some(error) => Err(error),
            None => done.into_iter().collect(),
        }
    })
}

/// Lets `train` make so many steps, beside a rank's ring on another thread.
pub(super) fn beside_ring<R>(
    config: RingConfig,
    links: RingLinks,
    count: u64,
    train: impl FnOnce(&mut Steps) -> Measured<R>,
) -> Measured<R> {
    let ((tell, sums), (alive, given_up), (inputs, inbox)) = (channel(), oneshot::channel(), unbounded_channel());
    let mut steps = Steps {
        inputs,
        sums,
        next: config.step,
        last: Step::new(config.step.get() + count - 1),
        _alive: alive,
    };
    thread::scope(|scope| {
        let running = scope.spawn(|| run(config, links, inbox, tell, given_up));
        let trained = train(&mut steps);
        // Where this has failed the ring would wait for ever. Otherwise it still sends the last sum on.
        let steps = trained.is_ok().then_some(steps);
        let ended = running.join().expect("a ring does not panic");
        drop(steps);
        match (trained, ended) {
            (Err(NotMeasured::GivenUp), Err(error)) | (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(found), Ok(())) => Ok(found),
        }
    })
}

/// As two processes of a host have it.
#[cfg(target_os = "linux")]
fn link() -> (LinkSender, LinkReceiver) {
    // Where the system gives none to share.
    links::shared_memory_in_process().unwrap_or_else(|_| links::in_process())
}

/// Within this process: other systems have no memory that processes share so.
#[cfg(not(target_os = "linux"))]
fn link() -> (LinkSender, LinkReceiver) {
    links::in_process()
}

impl Worker {
    pub(super) fn new(device: &Device, layout: &Arc<Layout>, rank: u32, plan: &Plan) -> Measured<Self> {
        let (layout, part) = (Arc::clone(layout), plan.parts()[rank as usize].clone());
        // All of them, since it is known that there is room.
        device.keep_gradients_within(u64::MAX - 1);
        let world_size = plan.parts().len() as u32;
        Ok(Self {
            device: device.clone(),
            gradient: GradientBuffer::in_pages(&layout),
            used: VecDeque::new(),
            room: SumRoom::new(device)?,
            config: RingConfig {
                generation: Generation::new(Incarnation::new(1), 1),
                rank: Rank::new(rank),
                world_size,
                order: Order::Exact,
                compression: Compression::None,
                shards: world_size,
                step: Step::ZERO,
                first: part.clone(),
                steady: part,
                layout: Arc::clone(&layout),
                summation: None,
                probe: None,
            },
            layout,
        })
    }

    /// What its ring is made with.
    pub(super) fn config(&self) -> RingConfig {
        self.config.clone()
    }

    /// Room for a sum: not the last one's, which the other worker may have borrowed until it has the next one.
    fn room_for_sum(&mut self) -> GradientBuffer {
        let used = (self.used.len() > 1).then(|| self.used.pop_front()).flatten();
        used.unwrap_or_else(|| GradientBuffer::in_pages(&self.layout))
    }

    /// Takes back the memory of a sum that has been used.
    pub(super) fn recycle(&mut self, sum: Sum) {
        self.used.push_back(sum.into_buffer());
    }
}

impl AsMut<Self> for Worker {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// The steps of a worker whose ring runs meanwhile, on another thread. Dropped, it gives the ring up.
pub(super) struct Steps {
    inputs: UnboundedSender<RingInput>,
    sums: Receiver<Sum>,
    next: Step,
    last: Step,
    _alive: oneshot::Sender<()>,
}

impl Steps {
    /// Offers this view of the gradient to the ring, for the next step.
    pub(super) fn begin(&mut self, worker: &mut Worker, gradient: GradientView) {
        let (step, shard) = (self.next, worker.config.rank.get());
        self.next = step.next();
        let into = worker.room_for_sum();
        let shards = ShardRange::new(shard, shard + 1);
        let last = (step == self.last).then_some(RingInput::CloseWith(Trailer::Stop));
        let all = [RingInput::Begin { step, into }, RingInput::Piece { step, shards, gradient }];
        for input in last.into_iter().chain(all) {
            // A ring that has ended says why.
            let _ = self.inputs.send(input);
        }
    }

    /// Waits for its sum.
    pub(super) fn sum(&self) -> Measured<Sum> {
        self.sums.recv().map_err(|_| NotMeasured::GivenUp)
    }
}

/// Runs a rank's ring to its end, or until it is given up.
fn run(
    config: RingConfig,
    links: RingLinks,
    inbox: UnboundedReceiver<RingInput>,
    tell: Sender<Sum>,
    given_up: oneshot::Receiver<()>,
) -> Measured<()> {
    let ring = ring::run(config, links, inbox, |done| {
        // A worker that has given the ring up wants none.
        let _ = tell.send(done.sum);
    });
    let runtime = runtime::Builder::new_current_thread().build();
    let ended: Option<Result<(), RingError>> =
        runtime
            .expect("a thread without timers or sockets runs tasks")
            .block_on(async {
                match select(pin!(ring), given_up).await {
                    Either::Left((ended, _)) => Some(ended),
                    Either::Right(_) => None,
                }
            });
    Ok(ended.ok_or(NotMeasured::GivenUp)??)
}
