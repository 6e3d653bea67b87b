//! Where and when a job's checkpoints are kept, and the checkpoint actor that keeps them in this process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sardana_actors::agent::host_name;
use sardana_actors::depot::{self, Depot, DepotConfig, DepotStartError};
use sardana_actors::enrol::Registrar;
use sardana_actors::trust::Role;
use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::membership::Saves;

/// Checkpoints of a job. None of it reaches the arithmetic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointing {
    /// The folder that they are kept in, on this host. A job that is started again with the same one resumes from the newest.
    pub dir: PathBuf,
    /// How often one is taken, on how many hosts it is kept, and for how long. One is taken at the end of the job, too.
    pub saves: Saves,
}

impl Checkpointing {
    /// Kept in `dir`, on this host only, as long as by default.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, every: Every) -> Self {
        Self {
            dir: dir.into(),
            saves: Saves {
                every,
                replicas: 1,
                keep: Keep::default(),
            },
        }
    }
}

/// Starts the checkpoint actor of `dir` for the job of `registrar`, whose coordinator listens at `coordinator` in this process.
pub(crate) async fn start_depot(
    dir: PathBuf,
    registrar: &Registrar,
    coordinator: SocketAddr,
    advertise: Option<IpAddr>,
) -> Result<Depot, DepotStartError> {
    let system = |error: &dyn ToString| DepotStartError::System {
        reason: error.to_string(),
    };
    let id = getrandom::u64().map_err(|error| system(&error))?;
    let issued = registrar.authority().issue(Role::Checkpoint, id);
    let credentials = issued.map_err(|error| system(&error))?;
    depot::start(DepotConfig {
        folder: dir,
        credentials: credentials.into(),
        coordinator: coordinator.into(),
        listen: SocketAddr::new(coordinator.ip(), 0),
        advertise,
        host: host_name(),
    })
    .await
}
