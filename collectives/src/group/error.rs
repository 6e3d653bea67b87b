//! Why an operation of a group fails, and what the program does then.

use std::sync::Arc;

use sardana_protocol::words::{Generation, Rank};

use super::call::Call;
use crate::links::LinkError;

/// Why an operation failed: by a mistake, or because [the generation is over](Self::generation_is_over). With the first error the group is broken on all its ranks: each rank's call, and each later one, returns an error,
/// and no buffer that an operation failed on may be used. Make a new group, with the ranks that are left.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// The ranks call different operations, or the same ones with other types, lengths, reductions, orders, compressions or roots. A mistake of the
    /// program: it makes the same calls on all ranks, in the same order.
    #[error(
        "operation {number} of {generation}: this rank calls {ours}, {peer} calls {theirs}: make the same calls on all ranks"
    )]
    Mismatch {
        /// The generation of the group.
        generation: Generation,
        /// The operation, counted from 0.
        number: u64,
        /// The rank that calls something else.
        peer: Rank,
        /// What this rank calls.
        ours: Call,
        /// What that rank calls.
        theirs: Call,
    },
    /// The rank before this one says what no call of this version says. Run the same program on all ranks.
    #[error("operation {number} of {generation}: what {peer} calls is not known: run the same program on all ranks")]
    Unknown {
        /// The generation of the group.
        generation: Generation,
        /// The operation, counted from 0.
        number: u64,
        /// The rank that calls it.
        peer: Rank,
    },
    /// A link broke: the rank at its other end is gone, or has given the group up.
    #[error("operation {number} of {generation}, {call}: the link with {peer} failed: {source}")]
    Link {
        /// The generation of the group.
        generation: Generation,
        /// The operation, counted from 0.
        number: u64,
        /// What this rank called.
        call: Call,
        /// The rank at the link's other end.
        peer: Rank,
        /// How the link broke.
        source: LinkError,
    },
    /// Another rank, or the coordinator of these ranks, has ended the group.
    #[error("the group of {generation} has ended: {source}")]
    Ended {
        /// The generation of the group.
        generation: Generation,
        /// Why: for groups of threads, the first error of any rank.
        source: Arc<GroupError>,
    },
    /// The coordinator of these ranks, or another holder of the group's alarm, has ended the generation. Ask there for the next one.
    #[error("{generation} is over: {reason}")]
    Over {
        /// The generation of the group.
        generation: Generation,
        /// Why, for people.
        reason: String,
    },
    /// The group was used after its first error, a mistake of the program.
    #[error("the group of {generation} is broken since: {source}: make a new one")]
    Broken {
        /// The generation of the group.
        generation: Generation,
        /// Its first error.
        source: Arc<GroupError>,
    },
    /// Integers have no mean that all would agree on. Sum them, and divide as you mean it.
    #[error("{call}: integers have no mean here: call for their sum, and divide as you mean it")]
    MeanOfIntegers {
        /// What was called.
        call: Call,
    },
    /// There is no such rank.
    #[error("{call}: ranks are below {world_size}: give the same existing rank on all ranks")]
    NoSuchRank {
        /// What was called.
        call: Call,
        /// How many ranks there are.
        world_size: u32,
    },
    /// What all ranks have together cannot be held here. Gather less.
    #[error("{call}: no memory for what all ranks have together: gather less at once")]
    TooLong {
        /// What was called.
        call: Call,
    },
}

impl GroupError {
    /// Whether a change of membership explains it: a rank is gone, or the coordinator forms another generation. Nothing is wrong with the
    /// program then, which goes back to ask for the next group. All others are mistakes, of this rank or of the one that is named.
    #[must_use]
    pub fn generation_is_over(&self) -> bool {
        match self {
            Self::Link { .. } | Self::Over { .. } => true,
            Self::Ended { source, .. } => source.generation_is_over(),
            Self::Mismatch { .. }
            | Self::Unknown { .. }
            | Self::Broken { .. }
            | Self::MeanOfIntegers { .. }
            | Self::NoSuchRank { .. }
            | Self::TooLong { .. } => false,
        }
    }
}
