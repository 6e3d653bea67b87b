//! Workers whose gradients lie on the GPU, as far as a step needs them: the ring that workers run, over links through memory as two processes of a host share it, and what
//! each has for it. Must not know what is measured.

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
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
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
    /// Where the next sum comes, if one has come before.
    into: Option<GradientBuffer>,
}

/// In which order the shards of so many workers are added: exactly, as a job does unless it is told otherwise.
pub(super) fn plan(workers: u32) -> Plan {
    let shards = (0..workers).map(|rank| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(rank, rank + 1),
    });
    Plan::new(Order::Exact, workers, &shards.collect::<Vec<_>>())
}

/// One step of all of them, each on a thread of its own.
pub(super) fn step<W: Send, R: Send>(
    workers: &mut [W],
    plan: &Plan,
    step: impl Fn(&mut W, RingLinks) -> Measured<R> + Sync,
) -> Measured<Vec<R>> {
    // It hears the links' sockets, as long as there are some.
    let listening = runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build();
    let listening = listening.expect("a thread that listens can be had");
    thread::scope(|scope| {
        let step = &step;
        let links = {
            let _listens = listening.enter();
            RingLinks::of_all(plan, plan, link)
        };
        let begin = |(worker, links)| scope.spawn(move || step(worker, links));
        let threads: Vec<_> = workers.iter_mut().zip(links).map(begin).collect();
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
            into: None,
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

    /// The ring of a step to which this view of the gradient is offered.
    pub(super) fn ring(&mut self, gradient: GradientView, links: RingLinks) -> (Ring, Coming) {
        let ((tell, sum), (alive, given_up)) = (channel(), oneshot::channel());
        let ring = Ring {
            config: self.config.clone(),
            links,
            inbox: self.told(gradient),
            tell,
            given_up,
        };
        (ring, Coming { sum, _alive: alive })
    }

    /// What the ring is told of one step.
    fn told(&mut self, gradient: GradientView) -> UnboundedReceiver<RingInput> {
        let (inputs, inbox) = unbounded_channel();
        let into = self.into.take();
        let into = into.unwrap_or_else(|| GradientBuffer::in_pages(&self.layout));
        let (step, shard) = (Step::ZERO, self.config.rank.get());
        let shards = ShardRange::new(shard, shard + 1);
        let all = [
            RingInput::Begin { step, into },
            RingInput::Piece { step, shards, gradient },
            RingInput::CloseWith(Trailer::Stop),
        ];
        for input in all {
            // The inbox is here.
            let _ = inputs.send(input);
        }
        inbox
    }

    /// Takes back the memory of a sum that has been used.
    pub(super) fn recycle(&mut self, sum: Sum) {
        self.into = Some(sum.into_buffer());
    }
}

/// A rank's part of one step.
pub(super) struct Ring {
    config: RingConfig,
    links: RingLinks,
    inbox: UnboundedReceiver<RingInput>,
    tell: Sender<Sum>,
    given_up: oneshot::Receiver<()>,
}

/// The sum of a ring that runs meanwhile, on another thread. Dropped, it gives the ring up.
pub(super) struct Coming {
    sum: Receiver<Sum>,
    _alive: oneshot::Sender<()>,
}

impl Ring {
    /// Runs it to its end, or until it is given up.
    pub(super) fn run(self) -> Measured<()> {
        let Self {
            config,
            links,
            inbox,
            tell,
            given_up,
        } = self;
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
}

impl Coming {
    /// Waits for it.
    pub(super) fn wait(&self) -> Measured<Sum> {
        self.sum.recv().map_err(|_| NotMeasured::GivenUp)
    }
}
