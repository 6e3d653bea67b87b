//! Who is known to the coordinator, and where each stands.

use std::net::SocketAddr;
use std::time::Duration;

use super::balancing::Measured;
use super::silence::{Pulse, Work};
use crate::messages::{Standing, Tally};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Pace, Rank, Step, WorkerId};

/// One worker.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Order of arrival.
    pub(super) arrival: u64,
    pub(super) address: SocketAddr,
    pub(super) capacity: u32,
    /// How fast it is, once it has told.
    pub(super) measured: Option<Measured>,
    /// Its rank in the last generation that was formed with it.
    pub(super) rank: Option<Rank>,
    pub(super) place: Place,
    /// Since when it is to leave, if it is.
    pub(super) leaving: Option<Duration>,
    /// Gradients computed, as last told.
    pub(super) computed: u64,
    /// When it last said something.
    pub(super) heard: Duration,
    /// Since when its process stands still, if its agent sees that.
    pub(super) stopped: Option<Duration>,
    pub(super) pulse: Pulse,
    /// What it has computed, as last told.
    pub(super) work: Work,
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
    /// It is no member yet, and comes to the state while the others train.
    Joining(Joining),
    /// The trailer that switched to this generation has left it out; it goes once nobody needs it any more.
    Left(Generation, Standing),
}

/// How far a joiner is.
#[derive(Debug, Clone)]
pub(super) struct Joining {
    /// What it was told to copy.
    pub(super) copies: Option<SnapshotId>,
    /// Whether it has the state of that snapshot.
    pub(super) loaded: bool,
    /// Whether it follows the ring without a lag.
    pub(super) caught_up: bool,
    /// Since when it follows.
    pub(super) follows: Option<Duration>,
    /// Updates that its state has had.
    pub(super) step: Step,
    /// Copies that have failed.
    pub(super) attempts: u32,
    /// The last snapshot that could not be copied.
    pub(super) failed: Option<SnapshotId>,
    tally: Tally,
}

impl Joining {
    pub(super) fn new(standing: &Standing) -> Self {
        Self {
            copies: None,
            loaded: false,
            caught_up: false,
            follows: None,
            step: standing.step,
            attempts: 0,
            failed: None,
            tally: standing.tally,
        }
    }
}

/// What a worker ended with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    pub(super) step: Step,
    pub(super) hash: StateHash,
    pub(super) results: Vec<(String, f64)>,
    /// Gradients it had computed of a step that the job did not come to: it stopped where others were missing.
    pub(super) in_vain: u32,
}

impl Ending {
    pub(super) fn of(step: Step, hash: StateHash, results: Vec<(String, f64)>, tally: Tally) -> Self {
        let in_vain = tally.computed_in(step);
        Self {
            step,
            hash,
            results,
            in_vain,
        }
    }

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
            Place::Called | Place::Ready | Place::Finished(_) | Place::Joining(_) | Place::Left(..) => None,
        }
    }

    pub(super) fn ending(&self) -> Option<&Ending> {
        match &self.place {
            Place::Finished(ending) => Some(ending),
            Place::Quiet(_) | Place::Called | Place::Ready | Place::Joining(_) | Place::Left(..) => None,
        }
    }

    pub(super) fn joining(&self) -> Option<&Joining> {
        match &self.place {
            Place::Joining(joining) => Some(joining),
            Place::Quiet(_) | Place::Called | Place::Ready | Place::Finished(_) | Place::Left(..) => None,
        }
    }

    pub(super) fn joining_mut(&mut self) -> Option<&mut Joining> {
        match &mut self.place {
            Place::Joining(joining) => Some(joining),
            Place::Quiet(_) | Place::Called | Place::Ready | Place::Finished(_) | Place::Left(..) => None,
        }
    }

    /// Whether it must halt before another generation is formed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.place, Place::Called | Place::Ready | Place::Finished(_))
    }

    /// What it has computed, if it stands still.
    pub(super) fn tally(&self) -> Option<Tally> {
        match &self.place {
            Place::Quiet(standing) | Place::Left(_, standing) => Some(standing.tally),
            Place::Joining(joining) => Some(joining.tally),
            Place::Called | Place::Ready | Place::Finished(_) => None,
        }
    }

    /// How fast it computes, if it has told.
    pub(super) fn pace(&self) -> Option<Pace> {
        self.measured.map(Measured::pace)
    }

    pub(super) fn is_called(&self) -> bool {
        matches!(self.place, Place::Called)
    }

    /// Survivors keep their order, newcomers follow in order of arrival.
    pub(super) fn order(&self, worker: WorkerId) -> (bool, Option<Rank>, u64, WorkerId) {
        (self.rank.is_none(), self.rank, self.arrival, worker)
    }
}
