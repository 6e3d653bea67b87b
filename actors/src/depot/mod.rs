//! Checkpoint actors, called depots for short: one per host that keeps checkpoints. Each has a store, takes pieces from workers, gives
//! them back, and makes a manifest durable when the coordinator says so.
//!
//! - [`start`]: a depot's process; [`identity`]: which depot a folder is.
//! - [`Server`]: the end that pieces are put to; [`Depots`]: the ends that ask.
//!
//! Must not know when a checkpoint is due, nor how long it is kept: the coordinator says so.

mod access_list;
mod actor;
mod asking;
mod client;
mod error;
mod fetch;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod give;
mod identity;
mod keeper;
pub mod limits;
mod near;
mod parts;
mod patience;
mod pins;
mod put;
mod reader;
#[cfg(test)]
mod refused;
mod reopening;
mod rounds;
mod server;
mod session;
mod shares;
mod shelf;
mod show;
mod stream;
mod talk;
mod turn;
mod window;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorRef};
use sardana_net::dialler::Dialler;
use sardana_net::environment::Environment;
use sardana_net::quic::BindError;
use sardana_net::trust::RotatingCredentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_protocol::checkpoint::DepotId;
use sardana_storage::store::OpenError;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use actor::{Message, Shell};
use keeper::Keeper;
use session::Link;

pub use client::{Depots, Reach};
pub use error::{DepotError, ReadFailed};
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use identity::{DEPOT_FILE, IdentityError, SERVED_FILE, identity};
pub(crate) use near::is_here;
pub use patience::Patience;
pub use reader::{Held, Reader};
pub use server::Server;
pub use shelf::Opener;

/// What a depot needs.
#[derive(Debug)]
pub struct DepotConfig {
    /// Where it keeps checkpoints. Made, if it is not there.
    pub folder: PathBuf,
    /// Its own certificate and key. Which depot it is says its folder, not the certificate.
    pub credentials: RotatingCredentials,
    /// Where the coordinator listens, and may listen some day.
    pub coordinator: Whereabouts,
    /// What people call this host: its host name, if they have no better name for it. Of depots of the same host only one is
    /// given a checkpoint.
    pub host: String,
    /// Where it listens for workers and other depots; port 0 takes any.
    pub listen: SocketAddr,
    /// Where they reach it, if that is another address than the one it listens at.
    pub advertise: Option<IpAddr>,
}

/// Why a depot could not start. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum DepotStartError {
    /// The note of its id is lost.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate is for another role.
    #[error("expected credentials of a checkpoint actor, found those of {found}; enrol it as one")]
    Credentials {
        /// The process that they are for.
        found: sardana_net::trust::PeerIdentity,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No peer could dial it.
    #[error(
        "{listening}: no other process can dial this address; advertise one of this host that the others reach, or listen on that one"
    )]
    Unadvertised {
        /// Where it would listen.
        listening: SocketAddr,
    },
    /// The system says no.
    #[error("the checkpoint actor could not start: {reason}")]
    System {
        /// What it said.
        reason: String,
    },
}

/// A running depot. Dropping it ends it; what is acknowledged stays.
#[derive(Debug)]
pub struct Depot {
    actor: ActorRef<Message>,
    running: JoinHandle<()>,
    server: Arc<Server>,
    keeper: Arc<Keeper>,
    id: DepotId,
    address: SocketAddr,
}

/// Starts a depot. It serves the processes that the coordinator names, and looks for the coordinator as long as it lives.
///
/// # Errors
/// See [`DepotStartError`].
pub fn start(config: DepotConfig) -> BoxFuture<'static, Result<Depot, DepotStartError>> {
    start_with(config, Opener::default())
}

/// The same, with a store that is opened like this.
///
/// # Errors
/// See [`DepotStartError`].
pub fn start_with(config: DepotConfig, opener: Opener) -> BoxFuture<'static, Result<Depot, DepotStartError>> {
    Box::pin(begin(config, opener))
}

async fn begin(config: DepotConfig, opener: Opener) -> Result<Depot, DepotStartError> {
    let (folder, opening, job) = (config.folder.clone(), opener.clone(), config.credentials.job());
    let reading = tokio::task::spawn_blocking(move || {
        let id = identity(&folder)?;
        let opened = opening.open(&folder)?;
        let served = identity::served(&folder, job)?;
        Ok::<_, DepotStartError>((id, opened, served))
    });
    let (id, opened, served) = reading.await.map_err(|error| system(&error))??;
    for finding in &opened.findings {
        tracing::warn!(target: "sardana::event::damaged", depot = %id, folder = %config.folder.display(), %finding, "the store was not as it should be");
    }
    let found = config.credentials.identity();
    if found.role != sardana_net::trust::Role::Checkpoint {
        return Err(DepotStartError::Credentials { found });
    }
    let environment = Environment::Host;
    let server = Server::listen(environment.clone(), &config.credentials, config.listen, opened.store)?;
    let listening = server.local_address().map_err(|error| system(&error))?;
    let address = SocketAddr::new(config.advertise.unwrap_or(listening.ip()), listening.port());
    if address.ip().is_unspecified() {
        return Err(DepotStartError::Unadvertised { listening: address });
    }
    let depots = Depots::new(environment.clone(), server.endpoint.clone(), config.credentials.clone());
    let keeper = Keeper::new(id, config.folder, opener, served, Arc::clone(&server), depots);
    let link = Link {
        dialler: Dialler::new(environment, config.credentials, &config.coordinator),
        host: config.host,
        address,
        keeper: Arc::clone(&keeper),
    };
    let (actor, running) = Actor::spawn(None, Shell, link).await.map_err(|error| system(&error))?;
    Ok(Depot {
        actor,
        running,
        server,
        keeper,
        id,
        address,
    })
}

fn system(error: &impl ToString) -> DepotStartError {
    DepotStartError::System {
        reason: error.to_string(),
    }
}

impl Depot {
    /// Which it is.
    #[must_use]
    pub const fn id(&self) -> DepotId {
        self.id
    }

    /// Where workers and other depots reach it.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends by itself, since the job is over.
    pub async fn over(&mut self) {
        if !self.running.is_finished() {
            // It fails only if the actor panicked, which is an end as well.
            let _ = (&mut self.running).await;
        }
    }

    /// The job is over, and others may still read what was saved last: waits until the coordinator says that they do not, or until there
    /// is no coordinator any more, and ends it.
    pub async fn let_go(mut self) {
        let alone = async {
            while self.keeper.is_heard() {
                sleep(limits::LET_GO_EVERY).await;
            }
        };
        tokio::select! {
            _ = &mut self.running => {}
            // What it has not said by then will not be heard.
            () = sleep(limits::LET_GO_MOST) => {}
            () = alone => {}
        }
        self.end().await;
    }

    /// Ends it, and waits until its clients have been told.
    pub async fn end(mut self) {
        self.actor.stop(None);
        self.over().await;
        self.server.close("the checkpoint actor ends").await;
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.actor.kill();
        self.server.endpoint.close(0_u32.into(), b"the checkpoint actor ends");
    }
}
