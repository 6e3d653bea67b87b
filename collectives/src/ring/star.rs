//! Executes the star plan: the leaves send the hub the gradients of their shards, the hub adds all of them in shard order and sends the sum to
//! all.
//!
//! ```text
//! leaf:  my shards, one after the other ─> hub          sum's buffer <─ receive the sum
//! hub:   for each chunk: mine, and what comes from each leaf, in shard order ─> sum's buffer ─> every leaf
//! ```
//! A leaf without shards sends an empty frame for each chunk: by it the hub knows that the leaf is at this step.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Brought, HopId, HubPart, LeafPart, StarPart};
use sardana_protocol::words::ShardRange;

use super::inbox::{Contribution, Inbox, Piece, own};
use super::ordered::{Closing, receive, send_on};
use super::passage::{Chunk, Incoming, Outgoing, Passage, terms};
use super::{CompletedSum, PlanLinks, RingError};
use crate::gradient::{Filling, Sum};
use crate::links::LinkSender;
use crate::links::frame::PlanSlot;

/// One rank's part of a star plan, with its links.
#[derive(Debug)]
pub(super) enum StarExecutor {
    Hub(Hub),
    Leaf(Leaf),
}

#[derive(Debug)]
pub(super) struct Hub {
    adds: Vec<Brought>,
    from: BTreeMap<HopId, Incoming>,
    sums_to: Vec<Outgoing>,
    /// A chunk to which gradients are being added.
    running: Vec<u8>,
    closing: Closing,
}

#[derive(Debug)]
pub(super) struct Leaf {
    brings: Vec<ShardRange>,
    to: Outgoing,
    sum_from: Incoming,
}

impl StarExecutor {
    pub(super) fn new(slot: PlanSlot, part: &StarPart, links: &mut PlanLinks) -> Result<Self, RingError> {
        Ok(match part {
            StarPart::Hub(part) => Self::Hub(Hub::new(slot, part, links)?),
            StarPart::Leaf(LeafPart { brings, to, sum_from }) => Self::Leaf(Leaf {
                brings: brings.clone(),
                to: Outgoing::take(slot, *to, links)?,
                sum_from: Incoming::take(slot, *sum_from, links)?,
            }),
        })
    }

    /// Sums one step.
    pub(super) async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        match self {
            Self::Hub(hub) => hub.pass(passage, contribution, inbox, completed).await,
            Self::Leaf(leaf) => leaf.pass(passage, contribution, completed).await,
        }
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        let outgoing = match self {
            Self::Hub(hub) => hub.sums_to.as_mut_slice(),
            Self::Leaf(leaf) => std::slice::from_mut(&mut leaf.to),
        };
        outgoing.iter_mut().map(|to| &mut to.link)
    }
}

impl Hub {
    fn new(slot: PlanSlot, part: &HubPart, links: &mut PlanLinks) -> Result<Self, RingError> {
        let mut from = BTreeMap::new();
        for end in part.adds.iter().filter_map(|brought| brought.from) {
            if let Entry::Vacant(place) = from.entry(end.hop) {
                place.insert(Incoming::take(slot, end, links)?);
            }
        }
        let sums_to = part.sums_to.iter().map(|&end| Outgoing::take(slot, end, links));
        Ok(Self {
            adds: part.adds.clone(),
            from,
            sums_to: sums_to.collect::<Result<_, _>>()?,
            running: Vec::new(),
            closing: Closing::default(),
        })
    }

    async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        let Self {
            adds,
            from,
            sums_to,
            running,
            closing,
        } = self;
        let Contribution { into, pieces } = contribution;
        let (mut filling, sum) = Filling::begin(passage.layout(), into);
        closing.begin();
        let complete = async {
            for index in passage.layout().travel() {
                add(passage, adds, from, &pieces, index, running).await?;
                filling.fill(index, |out| out.copy_from_slice(running));
            }
            // The trainer may write the next step's gradients where this step's were.
            drop(pieces);
            let trailer = inbox.trailer()?;
            closing.close(trailer);
            completed(CompletedSum {
                generation: passage.config.generation,
                step: passage.step,
                sum: Sum::from_buffer(passage.step, filling.finish()),
                trailer,
            });
            Ok(trailer)
        };
        let sending = send_on(passage, sums_to, sum, closing);
        let (trailer, ()) = tokio::try_join!(complete, sending)?;
        Ok(trailer)
    }
}

/// Adds up chunk `index`.
async fn add(
    passage: Passage<'_>,
    adds: &[Brought],
    from: &mut BTreeMap<HopId, Incoming>,
    pieces: &[Piece],
    index: u32,
    running: &mut Vec<u8>,
) -> Result<(), RingError> {
    running.clear();
    for brought in adds {
        let Some(end) = brought.from else {
            for gradient in terms(None, own(brought.shards, pieces), index).await {
                passage.add(index, running, gradient);
            }
            continue;
        };
        let link = from.get_mut(&end.hop).expect("a hub has a link from each leaf");
        if brought.shards.is_empty() {
            link.receive(passage, Chunk::nothing(index)).await?;
        }
        for _ in 0..Brought::gradients(brought.shards) {
            let gradient = link.receive(passage, Chunk::running(index)).await?;
            passage.add(index, running, &gradient);
        }
    }
    Ok(())
}

impl Leaf {
    async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        let Self { brings, to, sum_from } = self;
        let Contribution { into, pieces } = contribution;
        let (mut filling, _) = Filling::begin(passage.layout(), into);
        let bringing = async {
            for index in passage.layout().travel() {
                for &run in &*brings {
                    bring(passage, to, run, own(run, &pieces), index).await?;
                }
            }
            Ok(())
        };
        let receiving = async {
            receive(passage, sum_from, &mut filling).await?;
            sum_from.receive_trailer(passage).await
        };
        let ((), trailer) = tokio::try_join!(bringing, receiving)?;
        // The trainer may write the next step's gradients where this step's were.
        drop(pieces);
        completed(CompletedSum {
            generation: passage.config.generation,
            step: passage.step,
            sum: Sum::from_buffer(passage.step, filling.finish()),
            trailer,
        });
        Ok(trailer)
    }
}

/// Sends chunk `index` of each gradient of a run.
async fn bring(
    passage: Passage<'_>,
    to: &mut Outgoing,
    run: ShardRange,
    own: &[Piece],
    index: u32,
) -> Result<(), RingError> {
    if run.is_empty() {
        return to.send(passage, Chunk::nothing(index), |_| ()).await;
    }
    let terms = terms(None, own, index).await;
    if Brought::gradients(run) == 1 {
        return to
            .pass(passage, Chunk::running(index), |out| passage.sum(index, out, &terms))
            .await;
    }
    for term in terms {
        to.pass(passage, Chunk::running(index), |out| out.copy_from_slice(term))
            .await?;
    }
    Ok(())
}
