//! What a worker's machine is told, and what it wants done.

use crate::messages::{CatchUp, Form, MemberAddress, StepReport, Trailer, WorkerMessage};
use crate::state::StateHash;
use crate::words::{Generation, ShardRange, Step, WorkerId};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The coordinator's `Halt`.
    Halt {
        /// Its generation.
        generation: Generation,
    },
    /// The coordinator's `Form`.
    Form(Box<Form>),
    /// The coordinator's `CloseWithStop`.
    CloseWithStop {
        /// Its generation.
        generation: Generation,
    },
    /// All links of the generation are made.
    LinksReady {
        /// Which generation.
        generation: Generation,
    },
    /// A link broke or could not be made, or a donor did not deliver.
    LinkBroken {
        /// Of which generation.
        generation: Generation,
        /// Whom it led to.
        peer: WorkerId,
    },
    /// The ring has the whole sum of a step.
    Summed {
        /// The ring's generation.
        generation: Generation,
        /// The step.
        step: Step,
        /// The orders for its boundary.
        trailer: Trailer,
    },
    /// What was fetched to catch up is there, complete and checked.
    Fetched {
        /// The generation that asked for it.
        generation: Generation,
        /// The step of the sum, or of the state.
        step: Step,
    },
    /// The trainer has computed the gradient that [`Work::Gradient`] asked for.
    Computed {
        /// The step.
        step: Step,
        /// The piece.
        piece: ShardRange,
        /// The shard.
        shard: u32,
    },
    /// The trainer has applied the sum that [`Work::Apply`] asked for.
    Applied {
        /// The step's report.
        report: StepReport,
    },
    /// The trainer has loaded the state that [`Work::Load`] asked for.
    Loaded,
    /// The trainer has done what [`Work::Conclude`] asked for.
    Concluded {
        /// Hash of the final state.
        hash: StateHash,
        /// What the model's evaluation found.
        results: Vec<(String, f64)>,
    },
    /// Reports are due; every so often a heartbeat as well.
    Beat {
        /// Whether to speak even without news.
        heartbeat: Heartbeat,
    },
}

/// Whether a beat must be sent although there is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// It is time to say something.
    Due,
    /// Only if there is something to say.
    NotDue,
}

/// What is to be done, at once and without blocking.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Tell the coordinator.
    Send(WorkerMessage),
    /// Make the ring's links of this generation, then say [`Event::LinksReady`].
    Connect(Box<Form>),
    /// End the ring of this generation: nothing of it is accepted any more.
    Abort {
        /// Which.
        generation: Generation,
    },
    /// Let the ring work on this step.
    Begin {
        /// Which.
        step: Step,
    },
    /// Give a complete piece of the step under way to the ring.
    Offer {
        /// Which.
        piece: ShardRange,
    },
    /// Drop the buffers of all pieces but these.
    Retain {
        /// Which to keep.
        pieces: Vec<ShardRange>,
    },
    /// There is no ring: add up these pieces, in order, to the sum of the step under way.
    SumAlone {
        /// All of 0..K.
        pieces: Vec<ShardRange>,
    },
    /// Keep the sum, or state, that came with this event: it is the one to be applied, or loaded, next.
    Accept,
    /// The ring's next closed sum says stop.
    CloseWithStop,
    /// Fetch from a donor, then say [`Event::Fetched`] or [`Event::LinkBroken`].
    Fetch {
        /// For which generation.
        generation: Generation,
        /// Sum or state.
        what: CatchUp,
        /// The step of the sum, or of the state.
        step: Step,
        /// The donor.
        donor: MemberAddress,
    },
}

/// What the trainer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Compute the gradient of `shard` into the buffer of `piece`.
    Gradient {
        /// The step.
        step: Step,
        /// The buffer's piece.
        piece: ShardRange,
        /// The shard: the piece's first is stored, later ones are added.
        shard: u32,
    },
    /// Apply the sum of this step.
    Apply {
        /// Which.
        step: Step,
    },
    /// Load the state that was fetched.
    Load {
        /// Its step.
        step: Step,
    },
    /// The last update is applied: hash the state and evaluate the model.
    Conclude {
        /// The last step.
        step: Step,
    },
    /// Nothing until the next event.
    Wait,
}
