//! A coordinator for a job on several hosts, with a state directory that outlives it.

mod error;
mod taking_over;

use std::collections::VecDeque;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
pub use sardana_actors::coordinator::Succession;
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Records, Steering};
use sardana_net::enrol::Registrar;
use sardana_net::whereabouts::MAX_WHEREABOUTS;
use sardana_protocol::membership::{Balance, JobEvent, Saves, Summary};
use sardana_protocol::words::{Incarnation, JobId};
use sardana_storage::lock::FileLock;
use sardana_storage::private::PrivateFolder;
use tokio::sync::mpsc;

use crate::checkpointing::{Keeping, start_depot};
use crate::checkpoints::mirror::MirrorUrl;
use crate::mirroring;

use super::place::{Offered, PlaceError, offer};
use super::state::{Fence, StateDirectory, StateError};
pub use error::HostingError;
use taking_over::take_over;

/// What a coordinator is told.
#[derive(Debug, Clone)]
pub struct CoordinateConfig {
    /// Where to listen. With port 0 join files are good only until it is started again.
    pub listen: SocketAddr,
    /// Where others reach it, if that is not where it listens; port 0 means the port it listens on.
    pub advertise: Option<SocketAddr>,
    /// Where else others may find this job's coordinator some day, should this host be lost: [`Succession::TakeOver`] there.
    pub standbys: Vec<SocketAddr>,
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
    /// Whether it takes over from a coordinator whose state is lost.
    pub succession: Succession,
    /// When checkpoints are taken, if they are.
    pub saves: Option<Saves>,
    /// Where checkpoints are kept on this host, if they are kept here.
    pub checkpoint_dir: Option<PathBuf>,
    /// Where each checkpoint is copied to, if anywhere. It must be kept here, too.
    pub mirror: Option<MirrorUrl>,
}

/// A coordinator that runs, and what happens to its job.
#[derive(Debug)]
pub struct Hosting {
    coordinator: Coordinator,
    events: mpsc::UnboundedReceiver<JobEvent>,
    /// What happened while it took over.
    heard: VecDeque<JobEvent>,
    registrar: Arc<Registrar>,
    addresses: Vec<SocketAddr>,
    offered: Option<Offered>,
    state: StateDirectory,
    /// Ends with this.
    keeping: Option<Keeping>,
    _lock: FileLock,
}

/// Starts a coordinator: for the job of the state directory, or a new one if that is empty. Only processes that enrol take part.
///
/// # Errors
/// See [`HostingError`].
pub fn coordinate(config: CoordinateConfig) -> BoxFuture<'static, Result<Hosting, HostingError>> {
    Box::pin(host(config))
}

async fn host(config: CoordinateConfig) -> Result<Hosting, HostingError> {
    check(&config)?;
    let state = StateDirectory::create(&config.state_dir)?;
    let lock = state.lock()?;
    let fence = state.fence()?;
    if let (Some(Fence { own, by }), Succession::Resume) = (fence, config.succession) {
        return Err(HostingError::Fenced { own, by });
    }
    if config.succession == Succession::TakeOver {
        // A new job would have no workers: they have certificates of the old one.
        match state.authority() {
            Err(StateError::NoJob(path)) => return Err(HostingError::NothingToTakeOver(path)),
            loaded => drop(loaded?),
        }
    }
    let mirror = match (&config.mirror, &config.checkpoint_dir, config.saves) {
        (Some(url), Some(dir), Some(saves)) => Some((mirroring::begin(url, dir).await?, saves.keep)),
        (Some(_), None, _) | (Some(_), _, None) | (None, _, _) => None,
    };
    let mut fresh = [0; 16];
    getrandom::fill(&mut fresh).map_err(|error| HostingError::Random(error.to_string()))?;
    let registrar = Arc::new(state.registrar(JobId::new(fresh))?);
    let Started {
        mut coordinator,
        events,
        heard,
    } = match config.succession {
        Succession::Resume => begin(&config, &state, &registrar, state.next_incarnation(Incarnation::ZERO)?).await?,
        Succession::TakeOver => {
            let known = fence.map_or(Incarnation::ZERO, |fence| fence.by);
            take_over(&config, &state, &registrar, known).await?
        }
    };
    coordinator.watch(&config.standbys);
    let bound = coordinator.address();
    let own = match config.advertise {
        Some(advertise) if advertise.port() == 0 => SocketAddr::new(advertise.ip(), bound.port()),
        Some(advertise) => advertise,
        None => bound,
    };
    let addresses: Vec<SocketAddr> = iter::once(own).chain(config.standbys.iter().copied()).collect();
    state.write_addresses(&addresses)?;
    let keeping = match config.checkpoint_dir {
        Some(dir) => {
            let depot = start_depot(dir, &registrar, bound, Some(own.ip())).await?;
            Some(Keeping::start(depot, mirror, &coordinator).await)
        }
        None => None,
    };
    Ok(Hosting {
        coordinator,
        events,
        heard,
        registrar,
        addresses,
        offered: None,
        state,
        keeping,
        _lock: lock,
    })
}

/// A coordinator that has started.
struct Started {
    coordinator: Coordinator,
    events: mpsc::UnboundedReceiver<JobEvent>,
    /// What was heard of it already.
    heard: VecDeque<JobEvent>,
}

/// Starts a coordinator of this incarnation.
async fn begin(
    config: &CoordinateConfig,
    state: &StateDirectory,
    registrar: &Arc<Registrar>,
    incarnation: Incarnation,
) -> Result<Started, HostingError> {
    let (records, past) = records(state, incarnation, config.succession).await?;
    let coordinating = CoordinatorConfig {
        registrar: Arc::clone(registrar),
        listen: config.listen,
        incarnation,
        past,
        succession: config.succession,
        records: Some(records),
        min: config.min,
        expected: config.expected,
        max: config.max,
        balance: config.balance,
        saves: config.saves,
    };
    let (coordinator, events) = coordinator::start(coordinating).await?;
    Ok(Started {
        coordinator,
        events,
        heard: VecDeque::new(),
    })
}

/// What the coordinator's lives before this one have left.
async fn records(
    state: &StateDirectory,
    incarnation: Incarnation,
    succession: Succession,
) -> Result<(Records, Past), HostingError> {
    let path = state.records();
    let opening = tokio::task::spawn_blocking(move || Records::open(&path));
    let (records, job, repairs) = opening.await.map_err(|_| HostingError::NoCoordinator)??;
    for repair in repairs {
        tracing::warn!(target: "sardana::event::records", %repair, "the job's records were repaired; nothing is lost");
    }
    let past = match job {
        Some(job) => Past::Known(Box::new(job)),
        None if incarnation == Incarnation::new(1) && succession == Succession::Resume => Past::None,
        None => Past::Unknown,
    };
    Ok((records, past))
}

fn check(config: &CoordinateConfig) -> Result<(), HostingError> {
    if config.standbys.len() >= MAX_WHEREABOUTS {
        return Err(HostingError::TooManyStandbys(config.standbys.len()));
    }
    if let Some(mirror) = &config.mirror
        && (config.checkpoint_dir.is_none() || config.saves.is_none())
    {
        let mirror = mirror.clone();
        return Err(HostingError::NothingToMirror(mirror));
    }
    let dialable = |standby: &&SocketAddr| !standby.ip().is_unspecified() && standby.port() != 0;
    if let Some(&standby) = config.standbys.iter().find(|standby| !dialable(standby)) {
        return Err(HostingError::UndialableStandby(standby));
    }
    match config.advertise {
        None if config.listen.ip().is_unspecified() => Err(HostingError::Unadvertised(config.listen)),
        Some(advertise) if advertise.ip().is_unspecified() => Err(HostingError::Undialable(advertise)),
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
        if let Some(event) = self.heard.pop_front() {
            return Some(event);
        }
        let event = self.events.recv().await?;
        if let Some(keeping) = &self.keeping {
            keeping.note(&event);
        }
        if let JobEvent::Fenced { own, by } = event
            && let Err(error) = self.state.write_fence(Fence { own, by })
        {
            tracing::warn!(target: "sardana::event::fenced", %error, "do not start a coordinator with this state directory again");
        }
        Some(event)
    }

    /// Lets another task ask the job to end at the next boundary.
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
            if let JobEvent::Fenced { own, by } = event {
                break Err(HostingError::Fenced { own, by });
            }
            if let JobEvent::Failed { reason } = event {
                break Err(HostingError::Failed(reason));
            }
        };
        self.end().await;
        outcome
    }

    /// Ends the coordinator, and waits until the others have been told.
    pub async fn end(self) {
        if let Some(keeping) = self.keeping {
            keeping.end().await;
        }
        self.coordinator.end().await;
    }
}

#[cfg(test)]
mod tests;
