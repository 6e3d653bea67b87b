//! Where and when a job's checkpoints are kept, and the checkpoint actor that keeps them in this process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sardana_actors::agent::host_name;
use sardana_actors::coordinator::Coordinator;
use sardana_actors::depot::{self, Depot, DepotConfig, DepotStartError};
use sardana_net::enrol::Registrar;
use sardana_net::trust::Role;
use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::membership::{JobEvent, Saves};

use crate::checkpoints::mirror::{Mirror, MirrorUrl};
use crate::mirroring::{self, Mirroring, MirroringError};

/// Checkpoints of a job. None of it reaches the arithmetic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointing {
    /// The folder that they are kept in, on this host. A job that is started again with the same one resumes from the newest.
    pub dir: PathBuf,
    /// How often a checkpoint is taken, on how many hosts it is kept, and for how long. One is taken at the end of the job, too.
    pub saves: Saves,
    /// Where each checkpoint is copied to, if anywhere, and where the job looks for a newer one before it begins.
    pub mirror: Option<MirrorUrl>,
}

impl Checkpointing {
    /// Checkpoints in `dir`, on this host only, kept as long as by default.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, every: Every) -> Self {
        Self {
            dir: dir.into(),
            saves: Saves {
                every,
                replicas: 1,
                keep: Keep::default(),
            },
            mirror: None,
        }
    }

    /// The same, and copied to `url`. Ends with an error if this build has no mirrors (the feature `mirror`).
    #[must_use]
    pub fn mirrored(self, url: MirrorUrl) -> Self {
        let mirror = Some(url);
        Self { mirror, ..self }
    }

    /// Opens the mirror, if there is to be one, and brings what is newer there.
    pub(crate) async fn begin(&self) -> Result<Option<Mirror>, MirroringError> {
        match &self.mirror {
            Some(url) => mirroring::begin(url, &self.dir).await.map(Some),
            None => Ok(None),
        }
    }
}

/// What keeps a job's checkpoints in this process.
#[derive(Debug)]
pub(crate) struct Keeping {
    depot: Depot,
    mirroring: Option<Mirroring>,
}

impl Keeping {
    /// Keeps checkpoints in `depot`, and in a mirror, if there is to be one, as long as [`Keep`] says.
    pub(crate) async fn start(depot: Depot, mirror: Option<(Mirror, Keep)>, coordinator: &Coordinator) -> Self {
        let mirroring = match mirror {
            Some((mirror, keep)) => Some(Mirroring::start(mirror, keep, &depot, coordinator).await),
            None => None,
        };
        Self { depot, mirroring }
    }

    /// Something happened to the job.
    pub(crate) fn note(&self, event: &JobEvent) {
        if let Some(mirroring) = &self.mirroring {
            mirroring.note(event);
        }
    }

    /// Waits until the last checkpoint is in the mirror, or will not be, and ends.
    pub(crate) async fn end(self) {
        if let Some(mirroring) = self.mirroring {
            mirroring.finish().await;
        }
        self.depot.end().await;
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
