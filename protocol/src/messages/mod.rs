//! What is said over control connections. Each type's doc says which process sends it and what comes back.
//!
//! These are the wire types of [`crate::limits::WIRE_VERSION`]; their bytes are fixed by golden tests beside the codec.

mod agent;
mod coordinator;
mod depot;
mod form;
mod hello;
mod links;
mod sense;
mod worker;

pub use agent::{AgentMessage, AgentOrder, Motion};
pub use coordinator::{CoordinatorMessage, Joiners, Serve, Shares, Snapshot, Trailer};
pub use depot::{DepotHello, DepotMessage, DepotOrder, Restore, Save};
pub use form::{CatchUp, Form, Last, MemberAddress, MembersDigest, Peer};
pub use hello::{AgentHello, Call, Greeting, Hello, HostHash, Introduction, Ring, Seated, WorkerHello};
pub use links::{LinkKind, LinkLine, LinkPath, LinkReport, Passed};
pub use sense::{Bounds, Senseless, Sensible};
pub use worker::{Standing, StepReport, Tally, WorkerMessage};
