//! A checkpoint actor on a host of its own: keeps checkpoints of a job whose coordinator runs elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use sardana_actors::agent::host_name;
use sardana_actors::depot::{self, Depot, DepotConfig, DepotStartError};
use sardana_net::enrol::Enrolled;
use sardana_net::trust::{Role, Wallet};

use super::enrolling::local_ip_towards;
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
    /// The join file was for something else.
    #[error(
        "the join file is for the role {found}, expected checkpoint; ask for another one: sardana invite --role checkpoint"
    )]
    Role {
        /// For which.
        found: Role,
    },
    /// No way leads to the coordinator.
    #[error("no way leads to the coordinator at {coordinator}: {reason}; see whether this host's network is up")]
    NoWay {
        /// Where it is.
        coordinator: SocketAddr,
        /// What the system said.
        reason: String,
    },
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
    let Enrolled {
        credentials,
        coordinator,
        kept,
    } = join.enrolled;
    if credentials.role() != Role::Checkpoint {
        return Err(DepotHostError::Role {
            found: credentials.role(),
        });
    }
    let listen = match join.listen {
        Some(ip) => ip,
        None => local_ip_towards(coordinator.found()).map_err(|error| DepotHostError::NoWay {
            coordinator: coordinator.found(),
            reason: error.to_string(),
        })?,
    };
    let wallet = Wallet::from(credentials);
    if let Some(kept) = kept {
        kept.follow(&wallet);
    }
    let config = DepotConfig {
        folder: join.dir,
        credentials: wallet,
        coordinator,
        listen: SocketAddr::new(listen, 0),
        advertise: join.advertise,
        host: join.host.map_or_else(host_name, String::from),
    };
    Ok(depot::start(config).await?)
}
