//! What the coordinator certifies for processes it knows: children of agents, and the next certificate of each that is still part of the
//! job. A process that is not is refused, so that its certificate is soon worthless.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use sardana_net::enrol::Registrar;
use sardana_net::log::refused;
use sardana_net::trust::{CertifyError, Clock, Moment, Role, RotatingCredentials};
use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::messages::{AgentOrder, CoordinatorMessage, DepotOrder};
use sardana_protocol::words::WorkerId;

use super::lately::Lately;
use super::limits::{DEPOTS_KEPT, WORKERS_KEPT};

/// Most children of one agent that have not ended: as many as a job can have.
const MAX_CHILDREN: usize = MAX_WORKERS as usize;

/// Which processes were certified, and which will not be again.
#[derive(Debug)]
pub(super) struct Certifying {
    registrar: Arc<Registrar>,
    own: RotatingCredentials,
    clock: Clock,
    /// Children of which no end was seen, and which agent's they are: the last ones, as agents may vanish with theirs. Of a forgotten child
    /// any agent may speak.
    children: Lately<WorkerId, u64>,
    /// Workers that agents call their children, and whose certificates an earlier life has made: the last ones, too.
    claimed: Lately<WorkerId, u64>,
    /// The id in each depot's certificate.
    depots: Lately<DepotId, u64>,
    /// Workers that ended, or were dismissed or released, and which agent's they were. An id is never used again by another process.
    /// A forgotten worker has no connection on which it could ask.
    gone: Lately<WorkerId, Option<u64>>,
}

/// Why a certificate was refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("worker {0} is no longer part of the job")]
    Gone(WorkerId),
    #[error("worker {0} is the child of another agent")]
    OtherAgent(WorkerId),
    #[error("the agent has {MAX_CHILDREN} children already")]
    TooMany,
    #[error(transparent)]
    Certify(#[from] CertifyError),
}

impl Certifying {
    /// Certifies through `registrar`. `own` is the coordinator's credentials.
    pub(super) fn new(registrar: Arc<Registrar>, own: RotatingCredentials, clock: Clock) -> Self {
        Self {
            registrar,
            own,
            clock,
            children: Lately::new(WORKERS_KEPT),
            claimed: Lately::new(WORKERS_KEPT),
            depots: Lately::new(DEPOTS_KEPT),
            gone: Lately::new(WORKERS_KEPT),
        }
    }

    /// An agent wants a certificate for a child. None if it is refused.
    pub(super) fn child(&mut self, agent: u64, worker: WorkerId, request: &[u8]) -> Option<AgentOrder> {
        match self.certify_child(agent, worker, request) {
            Ok(certificate) => Some(AgentOrder::Certified { worker, certificate }),
            Err(refusal) => {
                refused!(agent = %format_args!("{agent:016x}"), %worker, %refusal, "a child was not certified");
                None
            }
        }
    }

    fn certify_child(&mut self, agent: u64, worker: WorkerId, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        if self.gone.contains(&worker) {
            return Err(Refusal::Gone(worker));
        }
        let claimed = self.claimed.get(&worker).is_some_and(|parent| *parent != agent);
        if claimed || !self.may_report(agent, worker) {
            return Err(Refusal::OtherAgent(worker));
        }
        if self.children.values().filter(|&&parent| parent == agent).count() >= MAX_CHILDREN {
            return Err(Refusal::TooMany);
        }
        let authority = self.registrar.authority();
        let certificate = authority.certify(Role::Worker, worker.get(), request)?;
        self.children.insert(worker, agent);
        Ok(certificate)
    }

    /// An agent has these children: it may have had them certified by a coordinator before this one. It has no others: their ends it
    /// reports next, and what it still waits for it asks for again. An agent started anew under the same id knows no earlier children.
    pub(super) fn has_children(&mut self, agent: u64, children: &[WorkerId]) {
        let present: BTreeSet<WorkerId> = children.iter().take(MAX_CHILDREN).copied().collect();
        self.children
            .retain(|worker, parent| *parent != agent || present.contains(worker));
        self.claimed.retain(|_, parent| *parent != agent);
        for worker in present {
            if !self.gone.contains(&worker) && !self.children.contains(&worker) {
                self.claimed.insert_new(worker, agent);
            }
        }
    }

    /// An agent wants its next certificate. None if it is refused.
    pub(super) fn renewed_agent(&self, agent: u64, request: &[u8]) -> Option<AgentOrder> {
        self.renewed(Role::Agent, agent, request)
            .map(|certificate| AgentOrder::Renewed { certificate })
    }

    /// A worker wants its next certificate. None if it is refused.
    pub(super) fn renewed_worker(&self, worker: WorkerId, request: &[u8]) -> Option<CoordinatorMessage> {
        if self.gone.contains(&worker) {
            let refusal = Refusal::Gone(worker);
            refused!(%worker, %refusal, "a certificate was not renewed");
            return None;
        }
        self.renewed(Role::Worker, worker.get(), request)
            .map(|certificate| CoordinatorMessage::Renewed { certificate })
    }

    /// An agent wants a certificate for its checkpoint actor. None if it is refused. An agent has at most one checkpoint actor, with the
    /// agent's own id.
    pub(super) fn depot_of(&self, agent: u64, request: &[u8]) -> Option<AgentOrder> {
        self.renewed(Role::Checkpoint, agent, request)
            .map(|certificate| AgentOrder::DepotCertified { certificate })
    }

    /// A depot is connected with the certificate of this id.
    pub(super) fn has_depot(&mut self, depot: DepotId, certified: u64) {
        self.depots.insert(depot, certified);
    }

    /// A depot wants its next certificate. None if it is refused.
    pub(super) fn renewed_depot(&self, depot: DepotId, request: &[u8]) -> Option<DepotOrder> {
        self.renewed(Role::Checkpoint, *self.depots.get(&depot)?, request)
            .map(|certificate| DepotOrder::Renewed { certificate })
    }

    fn renewed(&self, role: Role, id: u64, request: &[u8]) -> Option<Vec<u8>> {
        let certified = self.registrar.authority().certify(role, id, request);
        certified
            .inspect_err(|error| {
                refused!(%role, id = %format_args!("{id:016x}"), %error, "a certificate was not renewed");
            })
            .ok()
    }

    /// A worker has ended, or was dismissed or released.
    pub(super) fn is_gone(&mut self, worker: WorkerId) {
        let claimed = self.claimed.remove(&worker);
        let agent = self.children.remove(&worker).or(claimed);
        self.gone.insert_new(worker, agent);
        // Nor by showing a certificate that has run out.
        self.registrar.note_gone(worker, Moment::of(self.clock.now()));
    }

    /// A worker that was dismissed never heard of it, and takes part again: it is the same agent's child as before.
    pub(super) fn is_back(&mut self, worker: WorkerId) {
        self.registrar.note_back(worker);
        if let Some(Some(agent)) = self.gone.remove(&worker) {
            self.children.insert(worker, agent);
        }
    }

    /// Whether this life has certified a worker for an agent.
    pub(super) fn is_child(&self, agent: u64, worker: WorkerId) -> bool {
        self.children.get(&worker) == Some(&agent)
    }

    /// Whether an agent may speak about a worker: not if this life has certified it for another agent. What agents say of children whose
    /// certificates an earlier life has made need not be true.
    pub(super) fn may_report(&self, agent: u64, worker: WorkerId) -> bool {
        self.children.get(&worker).is_none_or(|parent| *parent == agent)
    }

    /// Renews the coordinator's own certificate, if it is time.
    pub(super) fn renew_own(&self) {
        self.renew_own_at(self.clock.now());
    }

    fn renew_own_at(&self, now: SystemTime) {
        if !self.own.is_due(now) {
            return;
        }
        let issued = self.registrar.authority().issue(self.own.role(), self.own.id());
        let replaced = issued
            .map_err(|error| error.to_string())
            .and_then(|credentials| self.own.replace(credentials, now).map_err(|error| error.to_string()));
        if let Err(error) = replaced {
            tracing::warn!(%error, "the coordinator's own certificate could not be renewed; it is tried again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sardana_net::trust::limits::CERTIFICATE_VALIDITY;
    use sardana_net::trust::{Authority, PeerIdentity, PendingKey};
    use sardana_protocol::words::JobId;

    use super::*;

    const JOB: JobId = JobId::new([7; 16]);
    const WORKER: WorkerId = WorkerId::new(5);

    fn certifying() -> (Certifying, RotatingCredentials) {
        let authority = Arc::new(Authority::new(JOB).unwrap());
        let own = RotatingCredentials::from(authority.issue(Role::Coordinator, 0).unwrap());
        let registrar = Arc::new(Registrar::new(authority));
        (Certifying::new(registrar, own.clone(), Clock::Host), own)
    }

    fn request() -> Vec<u8> {
        PendingKey::generate().unwrap().request().unwrap()
    }

    #[test]
    fn a_child_is_certified_under_its_own_name_for_one_agent() {
        let (mut certifying, _) = certifying();
        let key = PendingKey::generate().unwrap();
        let order = certifying.child(1, WORKER, &key.request().unwrap());
        let Some(AgentOrder::Certified { worker, certificate }) = order else {
            panic!("{order:?}");
        };
        assert_eq!(worker, WORKER);
        let authority = certifying.registrar.authority();
        let credentials = key.certified(authority.certificate(), certificate).unwrap();
        assert_eq!(credentials.identity(), PeerIdentity::worker(JOB, WORKER));
        assert!(
            certifying.child(1, WORKER, &request()).is_some(),
            "asked again after a lost answer"
        );
        assert!(certifying.child(2, WORKER, &request()).is_none());
        assert!(certifying.may_report(1, WORKER) && !certifying.may_report(2, WORKER));
    }

    #[test]
    fn a_worker_that_is_gone_gets_nothing_more() {
        let (mut certifying, _) = certifying();
        assert!(certifying.renewed_worker(WORKER, &request()).is_some());
        certifying.is_gone(WORKER);
        assert!(certifying.renewed_worker(WORKER, &request()).is_none());
        assert!(certifying.child(1, WORKER, &request()).is_none());
    }

    #[test]
    fn a_worker_that_comes_back_is_its_agents_again() {
        let (mut certifying, _) = certifying();
        assert!(certifying.child(1, WORKER, &request()).is_some());
        certifying.is_gone(WORKER);
        certifying.is_gone(WORKER);
        certifying.is_back(WORKER);
        assert!(certifying.renewed_worker(WORKER, &request()).is_some());
        assert!(certifying.may_report(1, WORKER) && !certifying.may_report(2, WORKER));
    }

    #[test]
    fn a_senseless_request_gets_nothing() {
        let (mut certifying, _) = certifying();
        assert!(certifying.child(1, WORKER, &[1, 2, 3]).is_none());
        assert!(certifying.renewed_worker(WORKER, &[]).is_none());
        assert!(certifying.renewed_agent(1, &[0; 100_000]).is_none());
        assert!(certifying.renewed_agent(1, &request()).is_some());
    }

    #[test]
    fn an_agent_has_a_bounded_number_of_children() {
        let (mut certifying, _) = certifying();
        for id in 0..MAX_CHILDREN as u64 {
            certifying.children.insert(WorkerId::new(id + 10), 1);
        }
        assert!(certifying.child(1, WORKER, &request()).is_none());
        assert!(certifying.child(2, WORKER, &request()).is_some());
        certifying.is_gone(WorkerId::new(10));
        assert!(certifying.child(1, WorkerId::new(6), &request()).is_some());
    }

    #[test]
    fn what_is_known_of_the_gone_does_not_grow_with_the_lives_of_workers() {
        let (mut certifying, _) = certifying();
        let request = request();
        for life in 0..3 * WORKERS_KEPT as u64 {
            let worker = WorkerId::new(life + 10);
            // Some end as their agents see; some agents vanish with their children.
            certifying.has_children(life % 5, &[worker]);
            if life % 5 > 0 {
                certifying.is_gone(worker);
                assert!(certifying.renewed_worker(worker, &request).is_none());
            }
        }
        let known = certifying.gone.len() + certifying.children.len() + certifying.claimed.len();
        assert!(known <= 3 * WORKERS_KEPT, "{known}");
    }

    #[test]
    fn an_agent_that_is_started_anew_has_room_for_children_whatever_became_of_those_before() {
        let (mut certifying, _) = certifying();
        for id in 0..MAX_CHILDREN as u64 {
            certifying.children.insert(WorkerId::new(id + 10), 1);
        }
        certifying.children.insert(WorkerId::new(9), 2);
        certifying.has_children(1, &[WorkerId::new(10), WorkerId::new(8)]);
        assert!(certifying.child(1, WORKER, &request()).is_some());
        let mine = |worker| certifying.children.get(&WorkerId::new(worker)).copied();
        assert_eq!([mine(8), mine(10), mine(11), mine(9)], [None, Some(1), None, Some(2)]);
        assert_eq!(certifying.claimed.get(&WorkerId::new(8)), Some(&1));
        assert!(certifying.may_report(1, WorkerId::new(11)), "it may still say how they ended");
    }

    #[test]
    fn the_coordinator_renews_its_own() {
        let (certifying, own) = certifying();
        let before = own.current();
        let now = SystemTime::now();
        certifying.renew_own_at(now + CERTIFICATE_VALIDITY / 10);
        assert_eq!(own.current(), before);
        certifying.renew_own_at(now + CERTIFICATE_VALIDITY * 3 / 4);
        assert_ne!(own.current().certificate(), before.certificate());
        assert_eq!(own.current().identity(), before.identity());
        assert!(!own.is_due(now + CERTIFICATE_VALIDITY * 3 / 4 + Duration::from_secs(1)));
    }
}
