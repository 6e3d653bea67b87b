//! Executes one rank's parts of a generation's plans, step after step, over its links. Knows no peers' addresses, and never looks into a model: the
//! trainer's thread writes gradients and applies sums.
//!
//! ```text
//!             Begin, Piece…                        completed(sum, trailer)
//! trainer ───────────────────> wait ──> pass ──┬──────────────────────────> trainer applies ──┐
//!                               ^              └ the sum goes on to the next rank             │
//!                               └─────────────────────────────────────────────────────────────┘
//! ```
//! A rank sends nothing of step s+1 before it has `Begin` of s+1, which comes after it has applied s; so none finishes the
//! sum of s+1 before all have applied s.

mod direct;
mod elsewhere;
mod error;
mod fast;
mod inbox;
mod means;
mod ordered;
mod passage;
mod telling;
mod through;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::{LinkKind, Trailer};
use sardana_protocol::plan::{HopId, Part, Plan};
use sardana_protocol::words::{Generation, Rank, ShardRange, Step};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::gradient::{GradientBuffer, GradientView, Sum};
use crate::layout::Layout;
use crate::links::frame::PlanSlot;
use crate::links::{LinkReceiver, LinkSender};

pub use error::{PieceError, RingError};
pub use means::{NotElsewhere, SummationConfig, SummationNote};

use direct::DirectExecutor;
use elsewhere::Elsewhere;
use fast::FastExecutor;
use inbox::{Contribution, Inbox};
use ordered::OrderedExecutor;
use passage::Passage;

/// What a rank must know to take part in its generation's ring.
#[derive(Clone)]
pub struct RingConfig {
    /// The generation; every frame carries it (GEN-3).
    pub generation: Generation,
    /// The rank that is executed here.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: u32,
    /// In which order the job adds.
    pub order: Order,
    /// As what f32 travel in fast order. Exact order does not look at it.
    pub compression: Compression,
    /// Another means than links to sum by, in fast order. Exact order refuses it.
    pub summation: Option<SummationConfig>,
    /// K: how many shards are added.
    pub shards: u32,
    /// The first step.
    pub step: Step,
    /// What this rank does in the first step.
    pub first: Part,
    /// What it does in every later step.
    pub steady: Part,
    /// The bytes of a gradient.
    pub layout: Arc<Layout>,
    /// Told of each chunk of a running sum that is passed on; chaos tests end the process there.
    pub probe: Option<Arc<dyn Probe + Send + Sync>>,
}

/// The links of one plan that end at this rank, by hop.
#[derive(Debug, Default)]
pub struct PlanLinks {
    /// The hops that start here.
    pub outgoing: BTreeMap<HopId, LinkSender>,
    /// The hops that end here.
    pub incoming: BTreeMap<HopId, LinkReceiver>,
}

/// The links of a generation that end at this rank.
#[derive(Debug, Default)]
pub struct RingLinks {
    /// The links of the first step's plan.
    pub first: PlanLinks,
    /// The links of the later steps' plan.
    pub steady: PlanLinks,
}

impl RingLinks {
    /// Whether all of them pass through memory that the workers of a host share: then the network's thread takes in nothing for them but that an end which sleeps was rung.
    #[must_use]
    pub fn share_memory(&self) -> bool {
        let plans = || [&self.first, &self.steady].into_iter();
        let outgoing = plans().flat_map(|plan| plan.outgoing.values().map(LinkSender::kind));
        let incoming = plans().flat_map(|plan| plan.incoming.values().map(LinkReceiver::kind));
        outgoing.chain(incoming).all(|kind| kind == LinkKind::SharedMemory)
    }

    /// All ranks' links, in the order of ranks: a new one for each hop of either plan. For ranks of one process.
    #[must_use]
    pub fn of_all(first: &Plan, steady: &Plan, mut make: impl FnMut() -> (LinkSender, LinkReceiver)) -> Vec<Self> {
        type Slot = fn(&mut RingLinks) -> &mut PlanLinks;
        let mut all: Vec<Self> = first.parts().iter().map(|_| Self::default()).collect();
        let slots: [(&Plan, Slot); 2] = [(first, |links| &mut links.first), (steady, |links| &mut links.steady)];
        for (plan, slot) in slots {
            for hop in plan.hops() {
                let (sender, receiver) = make();
                slot(&mut all[hop.from.index()]).outgoing.insert(hop.id, sender);
                slot(&mut all[hop.to.index()]).incoming.insert(hop.id, receiver);
            }
        }
        all
    }
}

/// What the ring is told by this worker. Nothing comes back but finished sums.
#[derive(Debug)]
pub enum RingInput {
    /// From the trainer: everything before `step` is applied, and here is the room for its sum.
    Begin {
        /// The step that may be summed now.
        step: Step,
        /// The buffer for the sum. What it holds is overwritten.
        into: GradientBuffer,
    },
    /// From the trainer: a gradient is whole, or will be once it is written. It may come before `Begin`.
    Piece {
        /// The step it belongs to.
        step: Step,
        /// The shards it is the sum of, in order. In exact order one shard, or a prefix from shard 0 on.
        shards: ShardRange,
        /// The gradient. It is let go when the step's sum is complete.
        gradient: GradientView,
    },
    /// From the coordinator, by the worker: if this rank closes the sums, the next one carries this trailer. A stop is final, a
    /// switch gives way only to a stop, and a snapshot is asked for once.
    CloseWith(Trailer),
}

/// A sum that is whole, with its trailer.
#[derive(Debug)]
pub struct CompletedSum {
    /// The generation that summed it.
    pub generation: Generation,
    /// The step it updates.
    pub step: Step,
    /// The sum, in the buffer of `Begin`.
    pub sum: Sum,
    /// The orders for this boundary.
    pub trailer: Trailer,
}

/// Is told where a ring stands, at the moments when a fault is most telling.
pub trait Probe {
    /// Called by what carries the ring on, which waits for its return.
    fn reached(&self, point: RingPoint);
}

/// A moment in passing a chunk of a running sum on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingPoint {
    /// What comes next is whole and not sent: of a running sum with all of this rank's shards added, or, on the way to an owner, one gradient.
    BeforePass {
        /// The step.
        step: Step,
        /// The chunk.
        chunk: u32,
    },
    /// Header and half of the chunk are with the transport.
    WhilePassing {
        /// The step.
        step: Step,
        /// The chunk.
        chunk: u32,
    },
    /// The chunk is with the transport.
    AfterPass {
        /// The step.
        step: Step,
        /// The chunk.
        chunk: u32,
    },
}

/// Sums step after step until the inbox is closed, or until a sum closed with [`Trailer::Stop`] or [`Trailer::Switch`] is complete and sent on; then
/// all that was sent by the last plan's links is delivered before it returns (those of the first one are finished, and none
/// has gone on to another step without what they brought). `completed` is called once per step, when the whole sum and its trailer are
/// here. Drop the future to give up in the middle: the links are reset, and all gradients are let go unchanged.
///
/// # Errors
/// See [`RingError`]. The links are reset before it returns.
pub async fn run(
    config: RingConfig,
    links: RingLinks,
    inbox: UnboundedReceiver<RingInput>,
    mut completed: impl FnMut(CompletedSum),
) -> Result<(), RingError> {
    // One for its step and one for all later ones.
    let mut executor = Executor::new(&config, PlanSlot::First, links.first)?;
    let mut next = Some(Executor::new(&config, PlanSlot::Steady, links.steady)?);
    let mut inbox = Inbox::new(&config, inbox);
    let mut step = config.step;
    let mut elsewhere = executor.begin_elsewhere(&config).await?;
    while let Some(contribution) = inbox.contribution(step).await? {
        let passage = Passage { config: &config, step };
        match executor
            .pass(passage, contribution, &mut elsewhere, &mut inbox, &mut completed)
            .await?
        {
            Trailer::Continue | Trailer::Snapshot => {}
            Trailer::Stop | Trailer::Switch(_) => break,
        }
        if let Some(steady) = next.take() {
            executor.finish();
            // Its links, and their memory, are not wanted any more.
            executor = steady;
        }
        step = step.next();
    }
    // It has nothing left to do, and the next generation may wait for its device.
    drop(elsewhere);
    let mut executors = [Some(executor), next];
    for executor in executors.iter_mut().flatten() {
        executor.finish();
    }
    for executor in executors.into_iter().flatten() {
        executor.delivered().await;
    }
    Ok(())
}

/// A plan's part with its links.
#[derive(Debug)]
enum Executor {
    Ordered(OrderedExecutor),
    Direct(DirectExecutor),
    Fast(FastExecutor),
}

impl Executor {
    fn new(config: &RingConfig, slot: PlanSlot, mut links: PlanLinks) -> Result<Self, RingError> {
        Ok(match config.part(slot)? {
            Part::Ordered(part) => Self::Ordered(OrderedExecutor::new(slot, part, &mut links)?),
            Part::Direct(part) => Self::Direct(DirectExecutor::new(slot, part, &mut links)?),
            Part::Ring(part) => Self::Fast(FastExecutor::new(config, slot, part, &mut links)?),
        })
    }

    /// Agrees with the other ranks on another means of summing, if the job asks for one.
    async fn begin_elsewhere(&mut self, config: &RingConfig) -> Result<Option<Elsewhere>, RingError> {
        let Some(summation) = &config.summation else {
            return Ok(None);
        };
        match self {
            Self::Ordered(_) | Self::Direct(_) => Err(RingError::Exact(summation.summation.name())),
            Self::Fast(executor) => executor.begin_elsewhere(config, summation).await,
        }
    }

    async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        elsewhere: &mut Option<Elsewhere>,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        match self {
            Self::Ordered(executor) => executor.pass(passage, contribution, inbox, completed).await,
            Self::Direct(executor) => executor.pass(passage, contribution, inbox, completed).await,
            Self::Fast(executor) => executor.pass(passage, contribution, elsewhere, inbox, completed).await,
        }
    }

    fn finish(&mut self) {
        self.senders().for_each(LinkSender::finish);
    }

    async fn delivered(mut self) {
        for sender in self.senders() {
            sender.delivered().await;
        }
    }

    fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        let (ordered, direct, fast) = match self {
            Self::Ordered(executor) => (Some(executor.senders()), None, None),
            Self::Direct(executor) => (None, Some(executor.senders()), None),
            Self::Fast(executor) => (None, None, Some(executor.senders())),
        };
        let exact = ordered.into_iter().flatten().chain(direct.into_iter().flatten());
        exact.chain(fast.into_iter().flatten())
    }
}

impl RingConfig {
    /// What this rank does in a plan, if that makes sense.
    fn part(&self, plan: PlanSlot) -> Result<&Part, RingError> {
        let part = match plan {
            PlanSlot::First => &self.first,
            PlanSlot::Steady => &self.steady,
        };
        part.check(self.order, self.rank, self.world_size, self.shards)
            .map_err(|source| RingError::Part {
                generation: self.generation,
                plan,
                source,
            })?;
        Ok(part)
    }
}

impl fmt::Debug for RingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingConfig")
            .field("generation", &self.generation)
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("order", &self.order)
            .field("compression", &self.compression)
            .field("summation", &self.summation)
            .field("step", &self.step)
            .field("first", &self.first)
            .field("steady", &self.steady)
            .field("layout", &self.layout)
            .field("probed", &self.probe.is_some())
            .finish()
    }
}
