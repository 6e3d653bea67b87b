//! What leaves a step driver: commands for the worker's actor, and messages for the coordinator.

use bytes::Bytes;
use sardana_collectives::ring::RingInput;
use sardana_protocol::member::NetworkCommand;
use sardana_protocol::messages::{Form, Save, WorkerMessage};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::words::{Generation, Step};
use tokio::sync::{mpsc, oneshot};

use super::{HeldShare, Mismatch};

/// The other ends of a step driver's queues.
#[derive(Debug)]
pub struct Outbox {
    /// What the worker's actor is to do.
    pub commands: mpsc::UnboundedReceiver<ActorCommand>,
    /// What is said to the coordinator, up to the first [`StepDriver::hang_up`](super::StepDriver::hang_up).
    pub messages: mpsc::UnboundedReceiver<WorkerMessage>,
}

/// What the machine wants from the worker's actor, with what the step driver has for it.
#[derive(Debug)]
pub enum ActorCommand {
    /// Make the links of this generation and run its ring.
    Connect {
        /// The generation.
        form: Box<Form>,
        /// What the ring is to be told.
        inbox: mpsc::UnboundedReceiver<RingInput>,
    },
    /// Make the links of a generation to come, beside the ring that runs. Ends what was prepared before.
    Prepare {
        /// The generation.
        form: Box<Form>,
        /// What its ring is to be told, once it begins.
        inbox: mpsc::UnboundedReceiver<RingInput>,
    },
    /// Hash these copies when they come, then [`StepDriver::snapshotted`](super::StepDriver::snapshotted).
    Snapshot {
        /// Which snapshot.
        snapshot: SnapshotId,
        /// Which shares.
        shares: Vec<Share>,
        /// They come from the training thread. Never, if the worker ends.
        copies: oneshot::Receiver<Vec<Bytes>>,
    },
    /// Write shares of a snapshot to depots. Again for the same snapshot: anew, from what was given before, if these are none.
    Save {
        /// What, and where to.
        save: Box<Save>,
        /// All shares that are held of the snapshot; none if they were given before.
        held: Vec<HeldShare>,
    },
    /// End this worker: what its machine wants and what its step driver has do not fit.
    Fail {
        /// The generation that it was in.
        generation: Generation,
        /// The step that it stood at.
        step: Step,
        /// What does not fit.
        mismatch: Mismatch,
    },
    /// What takes nothing from the step driver.
    Network(NetworkCommand),
}
