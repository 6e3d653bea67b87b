//! Who is known to the coordinator, and where each stands.

use std::net::SocketAddr;
use std::time::Duration;

use crate::messages::Standing;
use crate::state::StateHash;
use crate::words::{Rank, Step, WorkerId};

/// One worker.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Order of arrival.
    pub(super) arrival: u64,
    pub(super) address: SocketAddr,
    pub(super) capacity: u32,
    /// Its rank in the last generation that was formed with it.
    pub(super) rank: Option<Rank>,
    pub(super) place: Place,
    /// Gradients computed, as last told.
    pub(super) computed: u64,
    /// When it last said something.
    pub(super) heard: Duration,
    /// When it was last asked something that it has not answered yet.
    pub(super) asked: Duration,
    /// How often in a row others could not link with it.
    pub(super) accusations: u32,
}

/// What a worker is doing, as far as the coordinator knows.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// It has promised to accept nothing old and waits for a `Form`.
    Quiet(Standing),
    /// It was sent a `Form`, or came while training.
    Called,
    /// Its links are made.
    Ready,
    /// It has applied the last update.
    Finished(Ending),
}

/// What a worker ended with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    pub(super) step: Step,
    pub(super) hash: StateHash,
    pub(super) results: Vec<(String, f64)>,
}

impl Ending {
    /// Equal to the bit (NaN included).
    pub(super) fn same_bits(&self, other: &Self) -> bool {
        let bits = |ending: &Self| {
            ending
                .results
                .iter()
                .map(|(name, value)| (name.clone(), value.to_bits()))
                .collect::<Vec<_>>()
        };
        self.step == other.step && self.hash == other.hash && bits(self) == bits(other)
    }
}

impl Record {
    pub(super) fn quiet(&self) -> Option<&Standing> {
        match &self.place {
            Place::Quiet(standing) => Some(standing),
            Place::Called | Place::Ready | Place::Finished(_) => None,
        }
    }

    pub(super) fn ending(&self) -> Option<&Ending> {
        match &self.place {
            Place::Finished(ending) => Some(ending),
            Place::Quiet(_) | Place::Called | Place::Ready => None,
        }
    }

    pub(super) fn is_called(&self) -> bool {
        matches!(self.place, Place::Called)
    }

    /// Survivors keep their order, newcomers follow in order of arrival.
    pub(super) fn order(&self, worker: WorkerId) -> (bool, Option<Rank>, u64, WorkerId) {
        (self.rank.is_none(), self.rank, self.arrival, worker)
    }
}
