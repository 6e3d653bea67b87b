//! The coordinator's machine for snapshots and for the joiners that copy them. A join stops no member: a snapshot is taken at a boundary,
//! the joiners copy it and follow the ring, and are planned in. Checkpoints are made of the same snapshots: a checkpoint that is due asks
//! for a snapshot, as a joiner does, and a snapshot that joiners asked for is used for it.
//!
//! ```text
//!a joiner, or a save due      all have room         a trailer, then all Snapshotted         the last joiner is in, or gone
//!  Idle ────────▶ MakingRoom ──────────────▶ Asked ─────────────────────────────────▶ Serving ─────────────────────────▶ Idle
//!                      ▲              a share has no holder any more                     │
//!                      └─────────────────────────────────────────────────────────────────┘
//! ```
//! It outlives generations: holders are known by their place among the members that took the snapshot. Of membership it knows the [`Facts`]
//! that come with each event, and what it wants done is carried out by the machine that knows the workers, [`crate::membership`].

mod facts;
mod joiner;
mod serving;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use facts::Facts;
use joiner::Joiners;

use crate::holders::{Disagreement, Taken};
use crate::job::Order;
use crate::laggards::Laggards;
use crate::messages::{CoordinatorMessage, Serve, Shares};
use crate::words::{Step, WorkerId};

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Tell a worker, if it is connected.
    Send {
        /// The worker.
        worker: WorkerId,
        /// The message.
        message: CoordinatorMessage,
    },
    /// Tell every worker that is connected and no joiner.
    SendToAll(Serve),
    /// A snapshot is whole: people are told, and it may become a checkpoint. Its holders may be lost before they are heard of again.
    Whole(Box<Taken>),
    /// Two holders of a share have different bytes: the job has failed.
    Disagree {
        /// Of which state.
        step: Step,
        /// The holders.
        found: Disagreement,
    },
    /// Tell people: a joiner follows the ring without a lag.
    CaughtUp {
        /// The joiner.
        worker: WorkerId,
        /// Updates that its state has had.
        step: Step,
    },
    /// Tell people: a joiner's copy will not become a state.
    JoinsAnew {
        /// The joiner.
        worker: WorkerId,
        /// Why.
        reason: String,
    },
    /// No generation is to be planned with a joiner.
    Unplan {
        /// The joiner.
        worker: WorkerId,
    },
    /// Copying beside the ring has failed time and again: all are to wait at a boundary until a joiner has the state.
    Hold {
        /// The joiner.
        worker: WorkerId,
    },
}

/// The coordinator's machine for snapshots and for the joiners that copy them.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRound {
    /// Whether the job keeps checkpoints: then a snapshot may be taken that no joiner asked for.
    keeps_checkpoints: bool,
    /// Whether each joiner copies a snapshot, whatever state it has.
    copies_anew: bool,
    stage: Stage,
    /// How often in a row nothing was heard of a snapshot that was asked for.
    asked_in_vain: u32,
    joiners: Joiners,
    out: Vec<Command>,
}

/// How far the snapshot is that is taken next, or served: the states of the drawing above.
#[derive(Debug, Clone, Default)]
enum Stage {
    /// No snapshot is needed, or none can be served now.
    #[default]
    Idle,
    /// The members find memory for their shares, so that the boundary need not wait for that.
    MakingRoom { awaited: BTreeSet<WorkerId>, at: Duration },
    /// The closer was asked for a snapshot. `at`: when that was, or a holder last said that it hashes it.
    Asked { at: Duration, since: Duration },
    /// Some holders have said what they copied.
    Collecting { taken: Taken, at: Duration, others: Laggards },
    /// Joiners copy it.
    Serving {
        taken: Taken,
        /// What of it its holders were told to keep.
        kept: Kept,
        /// The joiners that its holders were told of.
        named: BTreeSet<WorkerId>,
    },
}

/// What the holders of a snapshot keep of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    shares: Shares,
    /// The first step whose sum they keep.
    sums_from: Step,
}

impl SnapshotRound {
    /// Of a job that no worker joins yet.
    pub(crate) fn new(keeps_checkpoints: bool) -> Self {
        Self {
            keeps_checkpoints,
            ..Self::default()
        }
    }

    /// The same, of a job in this order: in fast order a state that a joiner has need not be the job's.
    #[must_use]
    pub(crate) fn adding_in(self, order: Order) -> Self {
        let copies_anew = order == Order::Fast;
        Self { copies_anew, ..self }
    }

    /// What is to be done, in this order, before the next event comes.
    #[must_use]
    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.out)
    }

    /// Where it stands, by name.
    pub(crate) fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Idle => "idle",
            Stage::MakingRoom { .. } => "making room",
            Stage::Asked { .. } => "asked",
            Stage::Collecting { .. } => "collecting",
            Stage::Serving { .. } => "serving",
        }
    }

    /// The snapshot that is collected or served.
    pub(crate) fn taken(&self) -> Option<&Taken> {
        match &self.stage {
            Stage::Collecting { taken, .. } | Stage::Serving { taken, .. } => Some(taken),
            Stage::Idle | Stage::MakingRoom { .. } | Stage::Asked { .. } => None,
        }
    }

    /// The snapshot that is served, as long as all of its shares are kept.
    pub(crate) fn kept_whole(&self) -> Option<&Taken> {
        let Stage::Serving { taken, kept, .. } = &self.stage else {
            return None;
        };
        (kept.shares == Shares::Keep).then_some(taken)
    }

    /// How many joiners were looked at, since this was asked last.
    #[cfg(test)]
    pub(crate) fn take_visited(&self) -> usize {
        self.joiners.take_visited()
    }

    fn send(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        self.out.push(Command::Send { worker, message });
    }
}
