//! Why a ring ends before its time, and what its worker does then.

use sardana_protocol::plan::{HopId, PartError};
use sardana_protocol::words::{Generation, Rank, ShardRange, Step};

use crate::gradient::ResidentError;
use crate::links::LinkError;
use crate::links::frame::PlanSlot;

/// Why a ring ended.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A link broke. The worker tells the coordinator which worker it led to, keeps its gradients, and waits for the next generation.
    #[error("{generation} {step}: hop {hop} with {peer} failed: {source}")]
    Link {
        /// The generation of the link.
        generation: Generation,
        /// The step under way.
        step: Step,
        /// The hop.
        hop: HopId,
        /// The rank at its other end.
        peer: Rank,
        /// How the link broke.
        source: LinkError,
    },
    /// The links that were handed over lack one of the plan's. A mistake of the caller, which gives the generation up.
    #[error("hop {hop} with {peer} has no link: make all links of the plan before the ring is run")]
    LinkMissing {
        /// The hop.
        hop: HopId,
        /// The rank at its other end.
        peer: Rank,
    },
    /// A part of a plan makes no sense for this rank. The generation is wrong as a whole: the caller gives it up.
    #[error("{generation}: this rank's part of the {plan:?} plan cannot be executed: {source}")]
    Part {
        /// The generation.
        generation: Generation,
        /// The plan, of its two.
        plan: PlanSlot,
        /// What is wrong with the part.
        source: PartError,
    },
    /// Exact order cannot be summed elsewhere. A mistake of the caller, which gives the generation up.
    #[error(
        "expected order fast for sums by {0}, found exact: {0} chooses in which order it adds, and exact order is shard by shard, whatever the ranks; set \
         order fast, or leave {0} out"
    )]
    Exact(&'static str),
    /// A gradient of this rank's own lies on a device, and did not come from there: no peer is to blame, and the worker ends.
    #[error("{generation} {step}: {source}")]
    Lowering {
        /// The generation.
        generation: Generation,
        /// The step under way.
        step: Step,
        /// Why it did not come.
        source: ResidentError,
    },
    /// A step began twice or out of order. A mistake of the trainer, whose worker ends.
    #[error(
        "the step that may begin next is {expected}, found {found}: begin each step once, after applying the one before"
    )]
    Begin {
        /// The step that was under way or awaited.
        expected: Step,
        /// The step that was begun.
        found: Step,
    },
    /// A buffer is of another layout. A mistake of the trainer, whose worker ends.
    #[error("a buffer of {step} has {found} bytes, expected {expected}: make it with the ring's layout")]
    BufferLength {
        /// The step it was for.
        step: Step,
        /// Bytes of the layout.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// A gradient cannot be part of the sum. A mistake of the trainer, whose worker ends.
    #[error("the gradient of {step}, shards {shards}, cannot be added: {source}")]
    Piece {
        /// Its step.
        step: Step,
        /// Its shards.
        shards: ShardRange,
        /// Why it cannot.
        source: PieceError,
    },
}

/// Why a gradient cannot be part of a sum. All are mistakes of the trainer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceError {
    /// The ring is at this step. Hand gradients over while their step is under way.
    #[error("the ring is at {0} already: hand each gradient over before its step's sum is complete")]
    Late(Step),
    /// Hand over only what the plan assigns to this rank: these runs of shards.
    #[error("this rank brings shards {0:?}: hand over those and no others")]
    NotAssigned(Vec<ShardRange>),
    /// These shards came before. Hand each shard over once.
    #[error("shards {0} are here already: hand each shard over once")]
    Overlap(ShardRange),
    /// In exact order only a prefix from shard 0 on can be one running sum.
    #[error(
        "only a prefix from shard 0 on can be added before it is handed over: hand other shards over one by one (BITS-1)"
    )]
    NotPrefix,
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::Incarnation;

    use super::*;

    #[test]
    fn it_is_told_why_a_link_broke() {
        let error = RingError::Link {
            generation: Generation::new(Incarnation::new(1), 4),
            step: Step::new(7),
            hop: 3,
            peer: Rank::new(1),
            source: LinkError::Reset,
        };
        let expected = "g1.4 s7: hop 3 with r1 failed: the peer reset the link: wait for the next generation";
        assert_eq!(error.to_string(), expected);
    }
}
