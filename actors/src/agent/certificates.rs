//! The agent's certificates: those it asks for its children, whose keys it makes, and its own next certificate.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sardana_net::trust::{Credentials, PeerIdentity, PendingKey, Renewal, Role, RotatingCredentials};
use sardana_protocol::messages::AgentMessage;
use sardana_protocol::words::WorkerId;
use tokio::time::Instant;

use super::limits::CERTIFY_DEADLINE;

/// What is asked for and has not come.
#[derive(Debug)]
pub(super) struct Certificates {
    rotating: RotatingCredentials,
    renewal: Renewal,
    waiting: BTreeMap<WorkerId, Waiting>,
    /// For the checkpoint actor.
    depot: Option<(PendingKey, Vec<u8>)>,
}

#[derive(Debug)]
struct Waiting {
    key: PendingKey,
    request: Vec<u8>,
    /// When it was said last.
    since: Instant,
}

impl Certificates {
    /// The certificates of the agent with these credentials.
    pub(super) fn new(rotating: RotatingCredentials) -> Self {
        Self {
            renewal: Renewal::new(rotating.clone()),
            rotating,
            waiting: BTreeMap::new(),
            depot: None,
        }
    }

    /// Makes the key of a new child, and what to say to have it certified.
    pub(super) fn ask(&mut self, now: Instant) -> Result<AgentMessage, String> {
        let worker = WorkerId::new(getrandom::u64().map_err(|error| error.to_string())?);
        let key = PendingKey::generate().map_err(|error| error.to_string())?;
        let request = key.request().map_err(|error| error.to_string())?;
        let since = now;
        self.waiting.insert(
            worker,
            Waiting {
                key,
                request: request.clone(),
                since,
            },
        );
        Ok(AgentMessage::Certify { worker, request })
    }

    /// Makes the key of a checkpoint actor, and what to say to have it certified.
    pub(super) fn ask_for_depot(&mut self) -> Result<AgentMessage, String> {
        let key = PendingKey::generate().map_err(|error| error.to_string())?;
        let request = key.request().map_err(|error| error.to_string())?;
        self.depot = Some((key, request.clone()));
        Ok(AgentMessage::CertifyDepot { request })
    }

    /// The checkpoint actor's certificate came. None if it is not waited for.
    pub(super) fn depot_certified(&mut self, certificate: Vec<u8>) -> Option<Result<Credentials, String>> {
        let (key, _) = self.depot.take()?;
        let credentials = key.certified(&self.rotating.current().authority(), certificate);
        Some(match credentials {
            Ok(credentials) if credentials.role() == Role::Checkpoint => Ok(credentials),
            Ok(credentials) => Err(format!(
                "its certificate is for {}, expected a checkpoint actor",
                credentials.identity()
            )),
            Err(error) => Err(error.to_string()),
        })
    }

    /// What to say again on a new connection: what was said on the last one may be lost.
    pub(super) fn ask_again(&mut self, now: Instant) -> Vec<AgentMessage> {
        let again = |(worker, waiting): (&WorkerId, &mut Waiting)| {
            waiting.since = now;
            AgentMessage::Certify {
                worker: *worker,
                request: waiting.request.clone(),
            }
        };
        let depot = self.depot.iter().map(|(_, request)| AgentMessage::CertifyDepot {
            request: request.clone(),
        });
        self.waiting.iter_mut().map(again).chain(depot).collect()
    }

    /// A child's certificate came. None if it is not waited for.
    pub(super) fn certified(&mut self, worker: WorkerId, certificate: Vec<u8>) -> Option<Result<Credentials, String>> {
        let waiting = self.waiting.remove(&worker)?;
        let credentials = waiting.key.certified(&self.rotating.current().authority(), certificate);
        let expected = PeerIdentity::worker(self.rotating.job(), worker);
        Some(match credentials {
            Ok(credentials) if credentials.identity() == expected => Ok(credentials),
            Ok(credentials) => Err(format!(
                "its certificate is for {}, expected {expected}",
                credentials.identity()
            )),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Gives up certificates that were asked for too long ago, and says how many.
    pub(super) fn give_up(&mut self, now: Instant) -> u32 {
        self.drop_older(now, CERTIFY_DEADLINE)
    }

    /// Gives up all, and says how many.
    pub(super) fn give_up_all(&mut self) -> u32 {
        self.drop_older(Instant::now(), Duration::ZERO)
    }

    fn drop_older(&mut self, now: Instant, age: Duration) -> u32 {
        let before = self.waiting.len();
        self.waiting
            .retain(|_, waiting| now.saturating_duration_since(waiting.since) < age);
        u32::try_from(before - self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// What to say to have the agent's own certificate renewed, if it is time.
    pub(super) fn renewal(&mut self, now: SystemTime) -> Option<AgentMessage> {
        self.renewal.request_due(now).map(|request| AgentMessage::Renew { request })
    }

    /// The agent's own next certificate came.
    pub(super) fn renewed(&mut self, certificate: Vec<u8>, now: SystemTime) {
        match self.renewal.renewed(certificate, now) {
            Ok(()) => tracing::debug!("the agent's certificate is renewed"),
            Err(error) => tracing::warn!(%error, "the agent's new certificate cannot be used; it is asked for again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sardana_net::trust::Authority;
    use sardana_protocol::words::JobId;

    use super::*;

    const JOB: JobId = JobId::new([7; 16]);

    fn certificates() -> (Authority, Certificates) {
        let authority = Authority::new(JOB).unwrap();
        let rotating = RotatingCredentials::from(authority.issue(Role::Agent, 1).unwrap());
        (authority, Certificates::new(rotating))
    }

    fn asked(message: AgentMessage) -> (WorkerId, Vec<u8>) {
        let AgentMessage::Certify { worker, request } = message else {
            panic!("{message:?}");
        };
        (worker, request)
    }

    #[test]
    fn an_answer_becomes_the_credentials_of_one_child() {
        let (authority, mut certificates) = certificates();
        let now = Instant::now();
        let (worker, request) = asked(certificates.ask(now).unwrap());
        let again = certificates.ask_again(now);
        assert_eq!(again.len(), 1);
        assert_eq!(asked(again.into_iter().next().unwrap()), (worker, request.clone()));
        let certificate = authority.certify(Role::Worker, worker.get(), &request).unwrap();
        let credentials = certificates.certified(worker, certificate.clone()).unwrap().unwrap();
        assert_eq!(credentials.identity(), PeerIdentity::worker(JOB, worker));
        assert!(
            certificates.certified(worker, certificate).is_none(),
            "no second one is waited for"
        );
    }

    #[test]
    fn an_answer_for_somebody_else_is_an_error() {
        let (authority, mut certificates) = certificates();
        let (worker, request) = asked(certificates.ask(Instant::now()).unwrap());
        let certificate = authority.certify(Role::Worker, worker.get() ^ 1, &request).unwrap();
        let error = certificates.certified(worker, certificate).unwrap().unwrap_err();
        assert!(error.contains("expected worker"), "{error}");
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        let (_, mut certificates) = certificates();
        let now = Instant::now();
        certificates.ask(now).unwrap();
        certificates.ask(now + CERTIFY_DEADLINE / 2).unwrap();
        assert_eq!(certificates.give_up(now + CERTIFY_DEADLINE / 2), 0);
        assert_eq!(certificates.give_up(now + CERTIFY_DEADLINE), 1);
        assert_eq!(certificates.give_up_all(), 1);
        assert_eq!(certificates.give_up_all(), 0);
    }
}
