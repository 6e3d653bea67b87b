//! The coordinator's machine for checkpoints: when one is taken and from which members, when its manifest is made, on which hosts it is
//! kept, what expires, and from which one a job resumes.
//!
//! It knows checkpoint actors and the holders of snapshots. Of training it knows the [`Facts`] that come with each event, and what it
//! wants done is carried out by the machine that knows the workers, [`crate::membership`]. It outlives generations.

mod committing;
mod depot;
mod depots;
mod event;
mod facts;
mod last_save;
mod recounting;
mod replicating;
mod restores;
mod restoring;
mod saves;
mod saving;
#[cfg(test)]
mod testing;
mod unusable;
mod view;

use depot::{Depots, Vanished};
pub use depots::DepotEvent;
pub use event::CheckpointEvent;
pub(crate) use facts::{End, Facts};
use replicating::Replicating;
pub(crate) use restores::Restores;
use restoring::Restoring;
pub use saves::{Contents, SaveCounts, Saves};
pub(crate) use saves::{Described, WrittenPart};
use saves::{Saved, Saving};

use std::time::Duration;

use crate::checkpoint::DepotId;
use crate::job::Task;
use crate::messages::{Bounds, CoordinatorMessage, DepotOrder, Senseless};
use crate::state::StateHash;
use crate::words::WorkerId;

/// What never changes in a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// When checkpoints are taken, if they are.
    pub(crate) saves: Option<Saves>,
    /// The job that a checkpoint must be of, to be resumed from.
    pub(crate) task: Task,
    /// The program and kind of machine that must have made it.
    pub(crate) build: StateHash,
    /// What can be said in this job.
    pub(crate) bounds: Bounds,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Tell a worker, if it is connected.
    Send {
        /// The worker.
        worker: WorkerId,
        /// The message.
        message: CoordinatorMessage,
    },
    /// Tell a checkpoint actor.
    Order {
        /// The checkpoint actor.
        depot: DepotId,
        /// The order.
        order: Box<DepotOrder>,
    },
    /// Tell all checkpoint actors which processes may put and read pieces: all workers that are connected, and each other.
    NamePeers,
    /// Make a manifest of these contents and of the job, and give it to these checkpoint actors.
    Commit {
        /// The checkpoint actors.
        to: Vec<DepotId>,
        /// What the checkpoint consists of.
        contents: Box<Contents>,
    },
    /// Tell people.
    Tell(CheckpointEvent),
    /// A worker has said what cannot be: it is to be left out.
    Senseless {
        /// The worker.
        worker: WorkerId,
        /// What it said.
        said: Senseless,
    },
    /// A member alone cannot load the checkpoint that all others load: it is to be left out.
    CannotLoad {
        /// The member.
        worker: WorkerId,
        /// What was wrong.
        reason: String,
    },
    /// A member could not load the checkpoint: all are to form a generation anew.
    FormAnew,
}

/// The coordinator's machine for checkpoints.
#[derive(Debug)]
pub(crate) struct CheckpointManager {
    rules: Rules,
    depots: Depots,
    vanished: Vanished,
    /// The checkpoint under way.
    saving: Option<Saving>,
    saved: Saved,
    replicating: Replicating,
    restoring: Restoring,
    out: Vec<Command>,
}

impl CheckpointManager {
    /// Of a job of which no checkpoint is known, at the time `now`.
    pub(crate) fn new(rules: Rules, now: Duration) -> Self {
        Self {
            rules,
            depots: Depots::new(),
            vanished: Vanished::default(),
            saving: None,
            saved: Saved::new(now),
            replicating: Replicating::default(),
            restoring: Restoring::default(),
            out: Vec::new(),
        }
    }

    /// What is to be done, in this order, before the next event comes.
    #[must_use]
    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        self.out.push(Command::Send { worker, message });
    }

    fn tell(&mut self, event: CheckpointEvent) {
        self.out.push(Command::Tell(event));
    }
}
