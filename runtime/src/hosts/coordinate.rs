//! A coordinator for a job on several hosts, with a state directory that outlives it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardana_actors::coordinator::{
    self, Coordinator, CoordinatorConfig, CoordinatorError, Past, Records, RecordsError, Steering,
};
use sardana_actors::enrol::Registrar;
use sardana_actors::trust::PrivateFolder;
use sardana_protocol::membership::{Balance, JobEvent, Summary};
use sardana_protocol::words::{Incarnation, JobId};
use tokio::sync::mpsc;

use super::place::{Offered, PlaceError, offer};
use super::state::{StateDirectory, StateError, StateLock};

/// What a coordinator is told.
#[derive(Debug, Clone)]
pub struct CoordinateConfig {
    /// Where to listen. With port 0 join files are good only until it is started again.
    pub listen: SocketAddr,
    /// Where others reach it, if that is not where it listens; port 0 means the port it listens on.
    pub advertise: Option<SocketAddr>,
    /// Where it keeps the job's authority, and what it must remember.
    pub state_dir: PathBuf,
    /// Fewer workers than this do not train.
    pub min: u32,
    /// Workers beyond this are spares.
    pub max: u32,
    /// How many workers the first generation waits for.
    pub expected: u32,
    /// Whether shards move towards faster workers, so that all finish together.
    pub balance: Balance,
}

/// Why there is no coordinator, or its job did not finish.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    /// It would listen everywhere and nobody would know where to find it.
    #[error(
        "listening on {listen} means every address of this host, which nobody can dial: say at which one others reach it \
         (--advertise ADDRESS:PORT), or listen on that one"
    )]
    Unadvertised {
        /// Where it should listen.
        listen: SocketAddr,
    },
    /// An address that nobody can dial was to be advertised.
    #[error("nobody can dial {advertise}: advertise an address of this host that the others reach")]
    Undialable {
        /// Which.
        advertise: SocketAddr,
    },
    /// Its state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What is written down of its job cannot be used.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// It could not start.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// No id for the job could be drawn.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// The job failed.
    #[error("the job failed: {reason}")]
    Failed {
        /// Why, and what to do.
        reason: String,
    },
    /// The coordinator, a part of this process, broke. Report it.
    #[error("the coordinator ended before the job; its last words are in the log")]
    NoCoordinator,
}

/// A coordinator that runs, and what happens to its job.
#[derive(Debug)]
pub struct Hosting {
    coordinator: Coordinator,
    events: mpsc::UnboundedReceiver<JobEvent>,
    registrar: Arc<Registrar>,
    addresses: Vec<SocketAddr>,
    offered: Option<Offered>,
    _lock: StateLock,
}

/// Starts a coordinator: for the job of the state directory, or a new one if that is empty. Nobody but who enrols takes part.
///
/// # Errors
/// See [`HostingError`].
pub async fn coordinate(config: CoordinateConfig) -> Result<Hosting, HostingError> {
    check(&config)?;
    let state = StateDirectory::create(&config.state_dir)?;
    let lock = state.lock()?;
    let mut fresh = [0; 16];
    getrandom::fill(&mut fresh).map_err(|error| HostingError::Random(error.to_string()))?;
    let registrar = Arc::new(state.registrar(JobId::new(fresh))?);
    let incarnation = state.next_incarnation()?;
    let (records, past) = records(&state, incarnation).await?;
    let coordinating = CoordinatorConfig {
        registrar: Arc::clone(&registrar),
        listen: config.listen,
        incarnation,
        past,
        records: Some(records),
        min: config.min,
        expected: config.expected,
        max: config.max,
        balance: config.balance,
    };
    let (coordinator, events) = coordinator::start(coordinating).await?;
    let bound = coordinator.address();
    let addresses = match config.advertise {
        Some(advertise) if advertise.port() == 0 => vec![SocketAddr::new(advertise.ip(), bound.port())],
        Some(advertise) => vec![advertise],
        None => vec![bound],
    };
    state.write_addresses(&addresses)?;
    Ok(Hosting {
        coordinator,
        events,
        registrar,
        addresses,
        offered: None,
        _lock: lock,
    })
}

/// What the coordinator's lives before this one have left.
async fn records(state: &StateDirectory, incarnation: Incarnation) -> Result<(Records, Past), HostingError> {
    let path = state.records();
    let opening = tokio::task::spawn_blocking(move || Records::open(&path));
    let (records, job, repairs) = opening.await.map_err(|_| HostingError::NoCoordinator)??;
    for repair in repairs {
        tracing::warn!(target: "sardana::event::records", ?repair, "the job's records were repaired; nothing is lost");
    }
    let past = match job {
        Some(job) => Past::Known(Box::new(job)),
        None if incarnation > Incarnation::new(1) => Past::Unknown,
        None => Past::None,
    };
    Ok((records, past))
}

fn check(config: &CoordinateConfig) -> Result<(), HostingError> {
    match config.advertise {
        None if config.listen.ip().is_unspecified() => Err(HostingError::Unadvertised { listen: config.listen }),
        Some(advertise) if advertise.ip().is_unspecified() => Err(HostingError::Undialable { advertise }),
        Some(_) | None => Ok(()),
    }
}

impl Hosting {
    /// The job.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.coordinator.job()
    }

    /// Where others reach it.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The next event. None when the coordinator has ended, so that nothing can happen any more.
    pub async fn next_event(&mut self) -> Option<JobEvent> {
        self.events.recv().await
    }

    /// Lets somebody else ask the job to end at the next boundary.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.coordinator.steering()
    }

    /// The coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Lets operators of this user on this host find the job: writes a join file for them into `place`, which is removed with this.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn operator_join_file(&mut self, place: &PrivateFolder) -> Result<&Path, PlaceError> {
        let offered = offer(place, &self.registrar, self.addresses.clone())?;
        Ok(self.offered.insert(offered).path())
    }

    /// Follows the job to its end, and shows every event to `observe`.
    ///
    /// # Errors
    /// When the job fails.
    pub async fn finish(mut self, mut observe: impl FnMut(&Self, &JobEvent)) -> Result<Summary, HostingError> {
        let outcome = loop {
            let Some(event) = self.next_event().await else {
                break Err(HostingError::NoCoordinator);
            };
            observe(&self, &event);
            if let JobEvent::Done(summary) = event {
                break Ok(summary);
            }
            if let JobEvent::Failed { reason } = event {
                break Err(HostingError::Failed { reason });
            }
        };
        self.end().await;
        outcome
    }

    /// Ends the coordinator, and waits until the others have been told.
    pub async fn end(self) {
        self.coordinator.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, advertise: Option<&str>) -> CoordinateConfig {
        CoordinateConfig {
            listen: listen.parse().unwrap(),
            advertise: advertise.map(|address| address.parse().unwrap()),
            state_dir: PathBuf::new(),
            min: 1,
            max: 8,
            balance: Balance::default(),
            expected: 1,
        }
    }

    #[test]
    fn nobody_can_dial_every_address() {
        for listen in ["0.0.0.0:1", "[::]:1"] {
            let error = check(&config(listen, None)).unwrap_err().to_string();
            assert!(error.contains("--advertise"), "{error}");
            check(&config(listen, Some("10.0.0.1:1"))).unwrap();
            assert!(check(&config(listen, Some("0.0.0.0:1"))).is_err());
        }
        check(&config("127.0.0.1:0", None)).unwrap();
    }
}
