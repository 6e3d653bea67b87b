//! What a worker tells of its links. Knows no transport.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::words::{Generation, WorkerId};

/// What the bytes of a link pass through.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LinkKind {
    /// Memory that two processes of one host share.
    #[strum(to_string = "shared memory")]
    SharedMemory,
    /// A stream of a QUIC connection.
    #[strum(to_string = "QUIC")]
    Quic,
    /// A channel within one process.
    #[strum(to_string = "within a process")]
    InProcess,
}

/// What has passed a worker's links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The generation of the links.
    pub generation: Generation,
    /// When they were looked at, by the worker's own clock: since it began.
    pub at: Duration,
    /// One for each other worker and kind, in this order; none, if there are no links any more.
    pub lines: Vec<LinkLine>,
    /// So many links more there are.
    pub untold: u32,
}

/// All links of one kind between the worker that tells it and one other, of one generation: there is one for each hop of its plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkLine {
    /// The other worker.
    pub peer: WorkerId,
    /// What the links pass through.
    pub kind: LinkKind,
    /// The links on which this worker sends.
    pub outgoing: Passed,
    /// The links from which it receives.
    pub incoming: Passed,
    /// What they go over, if that is a network.
    pub path: Option<LinkPath>,
}

/// What has passed some links in one direction since they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// How many links.
    pub links: u32,
    /// Bytes of whole frames, headers among them. What the transport adds is not.
    pub bytes: u64,
}

/// The connection of two workers, as one end sees it. All that the two say to each other goes over it: their links share these figures,
/// also with each other and with transfers of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkPath {
    /// Packets that this end has sent, since the connection was made.
    pub sent_packets: u64,
    /// Those of them that count as lost.
    pub lost_packets: u64,
    /// How long an answer takes now.
    pub round_trip: Duration,
}
