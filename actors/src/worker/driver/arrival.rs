//! Sums and states that come to a step driver, each with the event that it came with.

use bytes::Bytes;
use sardana_collectives::alone;
use sardana_collectives::gradient::{GradientBuffer, Sum};
use sardana_collectives::layout::Layout;
use sardana_protocol::member::{Event, Followed};
use sardana_protocol::messages::Trailer;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Step};
use smallvec::SmallVec;

/// A state that can be loaded.
#[derive(Debug)]
pub struct SavedState {
    /// Its bytes.
    pub bytes: Bytes,
    /// If it was copied from a snapshot, or read from a checkpoint: the hash of each of its shares. The model must have them once it is loaded.
    pub shares: Vec<StateHash>,
    /// Whether these bytes were compared with those hashes where they are: it is enough then that the model has these bytes.
    pub compared_here: bool,
}

/// What has come to the step driver.
#[derive(Debug)]
pub enum Arrival {
    /// The ring has the whole sum of a step.
    Summed {
        /// The ring's generation.
        generation: Generation,
        /// The orders for its boundary.
        trailer: Trailer,
        /// The sum.
        sum: Sum,
    },
    /// The sum that a member lacked.
    FetchedSum {
        /// The generation that asked for it.
        generation: Generation,
        /// The sum.
        sum: Sum,
    },
    /// The state that a member lacked, or that its generation starts from.
    FetchedState {
        /// The generation that asked for it.
        generation: Generation,
        /// The step that it stands at.
        step: Step,
        /// The state.
        state: SavedState,
    },
    /// The state of a snapshot, for a joiner.
    Copied {
        /// Of which snapshot.
        snapshot: SnapshotId,
        /// The state.
        state: SavedState,
    },
    /// The next sum that a joiner follows with.
    Followed {
        /// What the keeper has said of it.
        told: Followed,
        /// The sum.
        sum: Sum,
    },
}

/// What the machine may accept.
#[derive(Debug)]
pub(crate) enum Payload {
    Sum(Sum),
    State(SavedState),
    /// The gradients of a step, which are all.
    Alone(Alone),
    /// The training thread adds those up.
    AddedUp(Step),
}

/// The gradients of a step of a worker that is alone, in shard order, to be added up.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) step: Step,
    pub(super) pieces: SmallVec<[GradientBuffer; 1]>,
}

impl Alone {
    /// Waits for what of them lies on a device.
    pub(super) fn add_up(self, layout: &Layout) -> Result<Sum, Mismatch> {
        let sum = alone::add_up(layout, self.step, self.pieces);
        sum.map_err(|lost| Mismatch::NotBrought(lost.to_string()))
    }
}

impl Arrival {
    /// What the machine is told, and what it may then accept.
    pub(super) fn into_parts(self) -> (Event, Payload) {
        match self {
            Self::Summed {
                generation,
                trailer,
                sum,
            } => {
                let step = sum.step();
                let event = Event::Summed {
                    generation,
                    step,
                    trailer,
                };
                (event, Payload::Sum(sum))
            }
            Self::FetchedSum { generation, sum } => {
                let step = sum.step();
                (Event::Fetched { generation, step }, Payload::Sum(sum))
            }
            Self::FetchedState { generation, step, state } => (Event::Fetched { generation, step }, Payload::State(state)),
            Self::Copied { snapshot, state } => (Event::Copied { snapshot }, Payload::State(state)),
            Self::Followed { told, sum } => (Event::Followed(told), Payload::Sum(sum)),
        }
    }
}

/// What the machine wants does not fit what has come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It accepts a sum or a state, or lays a sum aside, and none came.
    #[error("the machine accepts what has not come")]
    NothingCame,
    /// It has a sum applied, and another one, or a state, was accepted.
    #[error("the sum that is to be applied is not the one that was accepted")]
    OtherSum,
    /// It has a state loaded, and a sum was accepted.
    #[error("the state that is to be loaded was not accepted")]
    NoState,
    /// It has this worker's gradients added up, and one of them did not come from the device that it lies on.
    #[error("{0}")]
    NotBrought(String),
}

/// What the machine has accepted and the training thread has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// With a sum's trailer.
    next: Option<(Payload, Trailer)>,
    /// A sum that is applied after that.
    aside: Option<Sum>,
}

impl Accepted {
    pub(super) fn accept(&mut self, payload: Option<Payload>, trailer: Trailer) -> Result<(), Mismatch> {
        self.next = Some((payload.ok_or(Mismatch::NothingCame)?, trailer));
        Ok(())
    }

    /// Whether something was accepted.
    pub(super) const fn is_there(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn lay_aside(&mut self, payload: Option<Payload>) -> Result<(), Mismatch> {
        let Some(Payload::Sum(sum)) = payload else {
            return Err(Mismatch::NothingCame);
        };
        self.aside = Some(sum);
        Ok(())
    }

    pub(super) fn accept_aside(&mut self, trailer: Trailer) -> Result<(), Mismatch> {
        let aside = self.aside.take();
        self.accept(aside.map(Payload::Sum), trailer)
    }

    /// What was accepted and is still to be added up, unless somebody does so already.
    pub(super) fn take_alone(&mut self) -> Option<Alone> {
        match self.next.take() {
            Some((Payload::Alone(alone), trailer)) => {
                self.next = Some((Payload::AddedUp(alone.step), trailer));
                Some(alone)
            }
            other @ (Some(_) | None) => {
                self.next = other;
                None
            }
        }
    }

    /// This is the sum of it, unless something else was accepted meanwhile.
    pub(super) fn added_up(&mut self, sum: Sum) {
        let awaited = |payload: &Payload| matches!(payload, Payload::AddedUp(step) if *step == sum.step());
        if let Some((payload, _)) = self.next.as_mut().filter(|(payload, _)| awaited(payload)) {
            *payload = Payload::Sum(sum);
        }
    }

    /// The sum of `step`, with its trailer.
    pub(super) fn take_sum(&mut self, step: Step) -> Result<(Sum, Trailer), Mismatch> {
        match self.next.take() {
            Some((Payload::Sum(sum), trailer)) if sum.step() == step => Ok((sum, trailer)),
            Some(_) | None => Err(Mismatch::OtherSum),
        }
    }

    pub(super) fn take_state(&mut self) -> Result<SavedState, Mismatch> {
        match self.next.take() {
            Some((Payload::State(state), _)) => Ok(state),
            Some((Payload::Sum(_) | Payload::Alone(_) | Payload::AddedUp(_), _)) | None => Err(Mismatch::NoState),
        }
    }
}
