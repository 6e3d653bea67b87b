//! A worker whose program makes collective calls of its own: it joins a group's job, and hands its program the group of each generation.
//!
//! What the coordinator says goes to the machine; the links that the machine wants are made as any worker's are, and become a
//! [`Group`], which the program has from then on. Must not know what the program calls, nor why it goes on or ends.

mod control;
mod current;
mod linking;
mod nothing;
mod shell;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use futures_util::future::BoxFuture;
use sardana_collectives::group::{Group, GroupError};
use sardana_net::environment::Environment;
use sardana_net::quic::Reach;
use sardana_net::trust::RotatingCredentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_protocol::job::JobIdentity;
use sardana_protocol::words::Generation;
use tokio::sync::mpsc;

use crate::peers::LinkChoice;
use crate::worker::WorkerError;

/// What such a worker needs.
#[derive(Debug)]
pub struct GroupConfig {
    /// Its certificate and key; the worker's id is theirs.
    pub credentials: RotatingCredentials,
    /// Where the coordinator listens, and may listen some day.
    pub coordinator: Whereabouts,
    /// Where to listen for other workers; port 0 takes any.
    pub listen: SocketAddr,
    /// Where others reach it, if that is another address than the one it listens at; the port is the same.
    pub advertise: Option<IpAddr>,
    /// Of a group's job: see [`sardana_protocol::job::JobSpec::group`].
    pub identity: JobIdentity,
    /// What its links go through.
    pub links: LinkChoice,
    /// How far the farthest worker is.
    pub reach: Reach,
}

/// What the program asks for. Where the worker has ended no answer comes, and the reply's other end is dropped.
#[derive(Debug)]
pub enum Request {
    /// The group of the next generation. The one that the program had before is given up.
    Next {
        /// Where it goes. The one who waits there may block.
        reply: SyncSender<Group>,
    },
    /// All work is done, on all ranks of this generation. The worker ends when all have said so.
    Finish {
        /// The generation.
        generation: Generation,
        /// Why it goes on instead, in another generation.
        goes_on: SyncSender<Arc<GroupError>>,
    },
    /// The worker is to leave: it ends when the coordinator has released it.
    Leave {
        /// Why, for people.
        reason: String,
    },
}

/// How such a worker ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEnded {
    /// The job is done, or was stopped.
    Done,
    /// It has left: the others go on.
    Released,
    /// Its program has let go of it.
    Dropped,
}

/// Takes part until the job ends, the worker is released, or nothing can send requests any more.
///
/// # Errors
/// See [`WorkerError`].
pub fn run(
    config: GroupConfig,
    requests: mpsc::UnboundedReceiver<Request>,
) -> BoxFuture<'static, Result<GroupEnded, WorkerError>> {
    Box::pin(shell::take_part(Environment::Host, config, requests))
}
