//! A checkpoint actor on a host of its own: keeps checkpoints of a job whose coordinator runs elsewhere.

use std::net::IpAddr;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use sardana_actors::agent::host_name;
use sardana_actors::depot::{self, Depot, DepotConfig, DepotStartError};
use sardana_net::enrol::Enrolled;
use sardana_net::trust::Role;

use super::enrolling::{Arrival, ArrivalError, arrive};
use super::name::HostName;

/// What a checkpoint actor is told.
#[derive(Debug)]
pub struct DepotJoin {
    /// Its credentials, and where the coordinator is: see [`super::enrol()`].
    pub enrolled: Enrolled,
    /// What this host is called, if not what the system calls it. Of depots on hosts of the same name only one keeps a checkpoint.
    pub host: Option<HostName>,
    /// The folder that checkpoints are kept in.
    pub dir: PathBuf,
    /// At which of this host's addresses it listens; by default the one that leads to the coordinator.
    pub listen: Option<IpAddr>,
    /// At which address others reach it, if that is another one.
    pub advertise: Option<IpAddr>,
}

/// Why there is no checkpoint actor.
#[derive(Debug, thiserror::Error)]
pub enum DepotHostError {
    /// Its join file is of no use to it here.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// It could not start.
    #[error(transparent)]
    Depot(#[from] DepotStartError),
}

/// Starts a checkpoint actor. It ends when the job does; dropping it ends it at once.
///
/// # Errors
/// See [`DepotHostError`].
pub fn keep_checkpoints(join: DepotJoin) -> BoxFuture<'static, Result<Depot, DepotHostError>> {
    Box::pin(begin(join))
}

async fn begin(join: DepotJoin) -> Result<Depot, DepotHostError> {
    let Arrival {
        credentials,
        coordinator,
        listen,
    } = arrive(join.enrolled, Role::Checkpoint, join.listen)?;
    let config = DepotConfig {
        folder: join.dir,
        credentials,
        coordinator,
        listen,
        advertise: join.advertise,
        host: join.host.map_or_else(host_name, String::from),
    };
    Ok(depot::start(config).await?)
}
