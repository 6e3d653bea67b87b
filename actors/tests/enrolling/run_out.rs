//! Certificates that ran out while there was no coordinator: their holders get back in, and no other process does. That much time has passed is
//! shown by certificates that were made long ago.

use std::time::Duration;

use sardana_actors::agent::AgentConfig;
use sardana_actors::depot::{self, DepotConfig};
use sardana_actors::worker::{JoinError, WorkerError};
use sardana_net::enrol::{RenewError, renew_run_out};
use sardana_net::environment::Environment;
use sardana_net::trust::{Authority, Clock, Credentials, Role, RotatingCredentials};
use sardana_protocol::membership::{CheckpointEvent, JobEvent, WorkerEvent};
use sardana_protocol::words::{JobId, WorkerId};
use sardana_storage::private::{Missing, PrivateFolder};

use super::bystanders::{bystander, run};
use super::log::Log;
use super::raw::{JOB, LOOPBACK, Site, believing, soon, start_agent, until};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An authority that more than one coordinator may have.
struct Shared {
    _place: tempfile::TempDir,
    folder: PrivateFolder,
}

impl Shared {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        Self { _place: place, folder }
    }

    fn authority(&self) -> Authority {
        Authority::load_or_create(&self.folder, JOB).unwrap()
    }

    /// What this authority gave out so long ago.
    fn old(&self, role: Role, id: u64, ago: Duration) -> Credentials {
        self.authority().with_clock(Clock::behind(ago)).issue(role, id).unwrap()
    }
}

fn is_new(rotating: &RotatingCredentials, old: &Credentials) -> bool {
    rotating.current().certificate() != old.certificate()
}

#[tokio::test]
async fn a_worker_whose_certificate_has_run_out_is_renewed_and_welcome() {
    let shared = Shared::new();
    let mut site = Site::of(shared.authority()).await;
    let old = shared.old(Role::Worker, 1, 3 * HOUR);
    let rotating = RotatingCredentials::from(&old);
    let (_failure, running) = run(bystander(&rotating, site.coordinator.address()));
    let running = tokio::spawn(running);
    let joined = site.event().await;
    assert!(matches!(joined, JobEvent::Worker(WorkerEvent::Joined { .. })), "{joined:?}");
    assert!(is_new(&rotating, &old) && !running.is_finished());
    assert_eq!(rotating.current().identity(), old.identity());
}

#[tokio::test]
async fn agents_and_depots_get_back_in_after_a_day() {
    let shared = Shared::new();
    let place = tempfile::tempdir().unwrap();
    let site = Site::of(shared.authority()).await;
    let (agents, depots) = (shared.old(Role::Agent, 2, DAY), shared.old(Role::Checkpoint, 3, DAY));
    // They are connected when the coordinator goes.
    let fresh = |role, id| RotatingCredentials::from(site.authority.issue(role, id).unwrap());
    let (agent_rotating, depot_rotating) = (fresh(Role::Agent, 2), fresh(Role::Checkpoint, 3));
    let agent = AgentConfig {
        credentials: agent_rotating.clone(),
        workers: 0,
        ..site.agent("true", &[])
    };
    let (_agent, _told) = start_agent(agent).await.unwrap();
    let depot = depot::start(DepotConfig {
        folder: place.path().join("depot"),
        credentials: depot_rotating.clone(),
        coordinator: site.coordinator.address().into(),
        host: "h".to_owned(),
        listen: LOOPBACK,
        advertise: None,
    });
    let depot = depot.await.unwrap();
    let address = site.coordinator.address();
    site.coordinator.end().await;
    // A day goes by.
    let now = std::time::SystemTime::now();
    agent_rotating.replace(agents.clone(), now).unwrap();
    depot_rotating.replace(depots.clone(), now).unwrap();
    let mut site = Site::again(|| shared.authority(), address).await;
    until(|| is_new(&agent_rotating, &agents)).await;
    until(|| is_new(&depot_rotating, &depots)).await;
    let worker = RotatingCredentials::from(site.authority.issue(Role::Worker, 1).unwrap());
    let (_failure, running) = run(bystander(worker, site.coordinator.address()));
    let _running = tokio::spawn(running);
    let came = async {
        loop {
            if let JobEvent::Checkpoint(CheckpointEvent::DepotCame { .. }) = site.events.recv().await.unwrap() {
                return;
            }
        }
    };
    soon(came).await;
    depot.end().await;
}

/// Why these are not renewed.
async fn refused(site: &Site, credentials: &Credentials) -> String {
    let rotating = RotatingCredentials::from(credentials);
    let renewed = renew_run_out(&Environment::Host, &rotating, site.coordinator.address()).await;
    assert!(!is_new(&rotating, credentials));
    match renewed.unwrap_err() {
        RenewError::Refused { reason, .. } => reason,
        error @ RenewError::Again { .. } => panic!("expected a refusal, found: {error}"),
    }
}

#[tokio::test]
async fn strangers_other_jobs_the_late_and_the_gone_are_told_why_not() {
    let log = Log::new();
    let shared = Shared::new();
    let site = Site::of(shared.authority()).await;
    site.registrar
        .note_gone(WorkerId::new(9), sardana_net::enrol::Moment::of(std::time::SystemTime::now()));
    let old = |authority: Authority| authority.with_clock(Clock::behind(3 * HOUR)).issue(Role::Worker, 1).unwrap();
    let other_job = old(Authority::new(JobId::new([4; 16])).unwrap());
    let same_name = old(Authority::new(JOB).unwrap());
    for (credentials, words) in [
        (shared.old(Role::Worker, 1, 5 * HOUR), "ran out at"),
        (shared.old(Role::Agent, 1, 9 * DAY), "within 168 hours after its end"),
        (
            shared.old(Role::Worker, 9, 3 * HOUR),
            "has left the job, was left out of it, or was seen to end",
        ),
        (
            shared.old(Role::Operator, 1, 3 * HOUR),
            "its join file serves until it expires",
        ),
        (shared.old(Role::Coordinator, 0, 3 * HOUR), "is never renewed"),
        (believing(&same_name, &site), "not of this job's authority"),
    ] {
        let reason = refused(&site, &credentials).await;
        assert!(reason.contains(words), "{words}: {reason}");
        log.refused(&["a process was not enrolled", words]).await;
    }
    // Of another job, it does not dial this one's coordinator.
    let rotating = RotatingCredentials::from(believing(&other_job, &site));
    let error = renew_run_out(&Environment::Host, &rotating, site.coordinator.address())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("expected coordinator of job 0404"), "{error}");
    log.refused(&["a connection was refused", "the peer refused this end"]).await;
    // A certificate that can be renewed is.
    let rotating = RotatingCredentials::from(shared.old(Role::Worker, 1, 3 * HOUR));
    renew_run_out(&Environment::Host, &rotating, site.coordinator.address())
        .await
        .unwrap();
    log.nothing_more();
}

#[tokio::test]
async fn a_worker_that_is_not_renewed_ends_with_the_reason() {
    let shared = Shared::new();
    let site = Site::of(shared.authority()).await;
    let rotating = RotatingCredentials::from(shared.old(Role::Worker, 1, 5 * HOUR));
    let (_failure, running) = run(bystander(&rotating, site.coordinator.address()));
    let ended = soon(running).await;
    let Err(WorkerError::Join(error)) = ended else {
        panic!("{ended:?}")
    };
    assert!(matches!(*error, JoinError::Refused { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("ran out at") && words.contains("within 2 hours"), "{words}");
}
