//! Why a job on several hosts has no coordinator, or did not finish.

use std::net::SocketAddr;
use std::path::PathBuf;

use sardana_actors::coordinator::{CoordinatorError, RecordsError};
use sardana_actors::depot::DepotStartError;
use sardana_net::whereabouts::MAX_WHEREABOUTS;
use sardana_protocol::words::Incarnation;

use crate::checkpoints::mirror::MirrorUrl;
use crate::hosts::state::StateError;
use crate::mirroring::MirroringError;

/// Why there is no coordinator, or its job did not finish.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    /// It would listen everywhere, and no worker would know where to find it.
    #[error(
        "listening on {0} means every address of this host, which no process can dial: say at which one others reach it \
         (--advertise ADDRESS:PORT), or listen on that one"
    )]
    Unadvertised(SocketAddr),
    /// An address that cannot be dialled was to be advertised.
    #[error("no process can dial {0}: advertise an address of this host that the others reach")]
    Undialable(SocketAddr),
    /// A standby's address that cannot be dialled.
    #[error(
        "no process can dial the standby {0}: expected the address and port at which a coordinator on that host would be reached"
    )]
    UndialableStandby(SocketAddr),
    /// So many standbys, more than a process would try.
    #[error("expected at most {most} standbys, found {0}: every process that looks for the coordinator tries each of them", most = MAX_WHEREABOUTS - 1)]
    TooManyStandbys(usize),
    /// It should take over, and its state directory does not say which job.
    #[error("{}: expected a copy of the lost coordinator's authority.json, found none; copy it there first, then take over", .0.display())]
    NothingToTakeOver(PathBuf),
    /// Its state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What is written down of its job cannot be used.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// It could not start.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The folder of checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] DepotStartError),
    /// The mirror of its checkpoints cannot be used.
    #[error(transparent)]
    Mirror(#[from] MirroringError),
    /// There is nothing to copy to this mirror.
    #[error(
        "expected a directory for checkpoints on this host, and how often they are taken, with the mirror {0} \
         (--checkpoint-dir DIR --checkpoint-every STEPS|TIME): it is copied from there"
    )]
    NothingToMirror(MirrorUrl),
    /// No id for the job could be drawn.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// The job failed, for this reason.
    #[error("the job failed: {0}")]
    Failed(String),
    /// Another coordinator leads the job.
    #[error(
        "another coordinator ({by}) leads the job; this one ({own}) has no say any more: leave the job to the other, or, if that one \
         is gone for good, take over (--take-over)"
    )]
    Fenced {
        /// This one.
        own: Incarnation,
        /// The other.
        by: Incarnation,
    },
    /// The coordinator, a part of this process, broke. Report it.
    #[error("the coordinator ended before the job; its last words are in the log")]
    NoCoordinator,
}
