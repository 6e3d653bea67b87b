//! What agents and the coordinator say to each other.

use serde::{Deserialize, Serialize};
use strum::Display;

use super::Tally;
use crate::words::WorkerId;

/// From agent to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentMessage {
    /// It wants to start a child: here is the signing request for its certificate. `Certified` comes back.
    Certify {
        /// The id that the child will have.
        worker: WorkerId,
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// It keeps checkpoints, too: here is the signing request of its checkpoint actor. `DepotCertified` comes back.
    CertifyDepot {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// A child was started. Nothing comes back.
    ChildStarted {
        /// The worker.
        worker: WorkerId,
        /// Its process on the agent's host.
        pid: u32,
    },
    /// The agent was asked to end, or its machine is to go away: its children are to leave at a boundary. Nothing comes back; they end
    /// one by one.
    Leave {
        /// Why, for people.
        reason: String,
    },
    /// The agent's own certificate runs out: here is a signing request for the next. `Renewed` comes back.
    Renew {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// A child has ended.
    ChildExited {
        /// The worker.
        worker: WorkerId,
        /// How, in words: `signal 9`, `exit code 1`.
        how: String,
        /// What it had computed, read after its end; none if it never said.
        tally: Option<Tally>,
        /// Whether the agent starts a successor.
        restarting: bool,
    },
    /// The agent stays after all: what it had said with `Leave` is off, and it starts workers again. Workers that leave already go on
    /// leaving. Nothing comes back.
    Stay {
        /// Why, for people.
        reason: String,
    },
    /// A child stands still, as by SIGSTOP, or goes on. Nothing comes back.
    ChildMotion {
        /// The worker.
        worker: WorkerId,
        /// What its process does now.
        motion: Motion,
    },
}

/// Whether a process runs, as far as its agent sees.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motion {
    /// It runs.
    #[strum(to_string = "runs")]
    Runs,
    /// It stands still until a signal lets it go on.
    #[strum(to_string = "stands still")]
    Stopped,
}

/// From coordinator to agent. Nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentOrder {
    /// The job is over: restart no child, let all of them end.
    JobOver,
    /// Answer to `Certify`.
    Certified {
        /// The child.
        worker: WorkerId,
        /// Its certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Answer to `CertifyDepot`.
    DepotCertified {
        /// Its certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Answer to `Renew`.
    Renewed {
        /// The new certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// Kill this child at once, as an operator wants it. It is replaced like any that died.
    Kill {
        /// The worker.
        worker: WorkerId,
    },
    /// Start so many workers more.
    Start {
        /// How many.
        workers: u32,
    },
}
