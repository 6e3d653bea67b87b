//! Decides which processes are certified: invitations, renewals, children. The decision is in [`super::invitation`]; this remembers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sardana_protocol::words::{JobId, WorkerId};
use sardana_storage::private::PrivateFolder;

use super::invitation::{Invitation, InvitationError, InvitationKey, Terms};
use super::messages::EnrolRequest;
use super::run_out::{Gone, RunOutRefusal, decide};
use super::uses::{Uses, UsesError};
use crate::trust::{Authority, CertifyError, HolderError, KeyDigest, Moment, Role, SigningRequest};

/// What the key is derived for with which ids follow from keys.
const ID_CONTEXT: &str = "sardana 2026-11 ids of enrolled processes";

/// The authority with what it needs to certify others.
#[derive(Debug)]
pub struct Registrar {
    authority: Arc<Authority>,
    key: InvitationKey,
    uses: Mutex<Uses>,
    gone: Mutex<Gone>,
    ids: Ids,
}

/// Where the ids of enrolled processes come from: the system's randomness, or the caller that made the registrar.
struct Ids(Box<dyn Fn() -> Result<u64, getrandom::Error> + Send + Sync>);

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

/// Why a process was not enrolled; it is told so.
#[derive(Debug, thiserror::Error)]
pub enum EnrolRefusal {
    /// The invitation is not good.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The signing request is not.
    #[error(transparent)]
    Certify(#[from] CertifyError),
    /// The certificate that has run out says nothing.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// It is not renewed.
    #[error(transparent)]
    RunOut(#[from] RunOutRefusal),
    /// Its use could not be remembered.
    #[error(transparent)]
    Uses(#[from] UsesError),
    /// No id could be drawn.
    #[error("the coordinator's system gives no random numbers: {0}")]
    Random(String),
}

/// Why no invitation was made.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// Its terms make no sense.
    #[error(transparent)]
    Terms(#[from] InvitationError),
    /// No nonce could be drawn.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

impl Registrar {
    /// A registrar that remembers uses as long as it lives.
    #[must_use]
    pub fn new(authority: Arc<Authority>) -> Self {
        Self::with(authority, Uses::default())
    }

    /// A registrar that remembers uses in `folder`.
    ///
    /// # Errors
    /// When what is remembered there cannot be read.
    pub fn kept(authority: Arc<Authority>, folder: &PrivateFolder) -> Result<Self, UsesError> {
        Ok(Self::with(authority, Uses::kept(folder)?))
    }

    fn with(authority: Arc<Authority>, uses: Uses) -> Self {
        Self {
            key: InvitationKey::of(&authority),
            authority,
            uses: Mutex::new(uses),
            gone: Mutex::default(),
            ids: Ids(Box::new(getrandom::u64)),
        }
    }

    /// The same registrar, which gives the ids that `draw` draws; they must differ. For simulations, where one seed decides the ids.
    #[must_use]
    pub fn with_ids(mut self, draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.ids = Ids(Box::new(move || Ok(draw())));
        self
    }

    /// The authority that it certifies with.
    #[must_use]
    pub const fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// The job that it is for.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.authority.job()
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// When the terms make no sense.
    pub fn invite(&self, terms: Terms, now: Moment) -> Result<Invitation, InviteError> {
        invite(&self.authority, terms, now)
    }

    /// Certifies a process that has no valid certificate, and returns the new one. May write to a disk.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn enrol(&self, asked: &EnrolRequest, now: Moment) -> Result<Vec<u8>, EnrolRefusal> {
        match asked {
            EnrolRequest::Invited { invitation, request } => self.invited(invitation, request, now),
            EnrolRequest::RunOut { certificate, request } => self.run_out(certificate, request, now),
        }
    }

    /// Enrols a process that was invited. The role is the invitation's.
    fn invited(&self, invitation: &Invitation, request: &[u8], now: Moment) -> Result<Vec<u8>, EnrolRefusal> {
        // Held to the end: two processes that come at once cannot both have the last use.
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anything else is looked at.
        invitation.decide(&self.key, self.job(), None, now)?;
        let request = SigningRequest::read(request)?;
        // The process that has used it may use it again, until it expires.
        let again = uses.is_of(&invitation.nonce(), request.digest());
        if !again {
            invitation.decide(&self.key, self.job(), uses.of(&invitation.nonce()), now)?;
        }
        let id = self.id(invitation.role(), request.digest())?;
        let certificate = self.authority.certify_read(invitation.role(), id, &request)?;
        if !again {
            uses.note(invitation, request.digest(), now)?;
        }
        Ok(certificate)
    }

    /// Certifies a process of the job whose certificate has run out: with the same role, id and key.
    fn run_out(&self, certificate: &[u8], request: &[u8], now: Moment) -> Result<Vec<u8>, EnrolRefusal> {
        let holder = self.authority.holder_of(certificate)?;
        let request = SigningRequest::read(request)?;
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        decide(holder, self.job(), request.digest(), &gone, now)?;
        drop(gone);
        Ok(self
            .authority
            .certify_read(holder.identity.role, holder.identity.id, &request)?)
    }

    /// The id of the process that enrols as `role` with `key`. A worker's is new with every process; processes of other roles are known by
    /// their keys, and have the same id when they enrol again.
    fn id(&self, role: Role, key: KeyDigest) -> Result<u64, EnrolRefusal> {
        match role {
            Role::Worker => (self.ids.0)().map_err(|error| EnrolRefusal::Random(error.to_string())),
            Role::Agent | Role::Operator | Role::Checkpoint | Role::Coordinator => {
                let hash = blake3::keyed_hash(&self.authority.derived_key(ID_CONTEXT), &key.bytes());
                let mut id = [0; 8];
                id.copy_from_slice(&hash.as_bytes()[..8]);
                Ok(u64::from_le_bytes(id))
            }
        }
    }

    /// A worker has left, was left out, or was seen to end: it gets no further certificate.
    pub fn note_gone(&self, worker: WorkerId, now: Moment) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).note(worker, now);
    }

    /// It is there after all.
    pub fn note_back(&self, worker: WorkerId) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).forgive(worker);
    }
}

/// Makes an invitation to the job of `authority`.
///
/// # Errors
/// When the terms make no sense.
pub fn invite(authority: &Authority, terms: Terms, now: Moment) -> Result<Invitation, InviteError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| InviteError::Random(error.to_string()))?;
    let key = InvitationKey::of(authority);
    Ok(Invitation::new(&key, authority.job(), terms, nonce, now)?)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use sardana_storage::private::Missing;

    use super::*;
    use crate::trust::{Clock, Credentials, PeerIdentity, PendingKey};

    const JOB: JobId = JobId::new([7; 16]);

    fn terms(now: Moment, uses: u32) -> Terms {
        Terms {
            role: Role::Agent,
            expires: Moment::new(now.seconds() + 60),
            uses,
        }
    }

    fn asked(invitation: &Invitation) -> EnrolRequest {
        asked_with(invitation, &PendingKey::generate().unwrap())
    }

    fn asked_with(invitation: &Invitation, key: &PendingKey) -> EnrolRequest {
        EnrolRequest::Invited {
            invitation: invitation.clone(),
            request: key.request().unwrap(),
        }
    }

    /// The identity that a certificate for `key` names.
    fn identity(registrar: &Registrar, key: &PendingKey, certificate: Vec<u8>) -> PeerIdentity {
        let credentials = key.certified(registrar.authority().certificate(), certificate);
        credentials.unwrap().identity()
    }

    #[test]
    fn an_invitation_is_used_up_also_across_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        let now = Moment::of(SystemTime::now());
        let authority = Arc::new(Authority::new(JOB).unwrap());
        let registrar = Registrar::kept(Arc::clone(&authority), &folder).unwrap();
        let invitation = registrar.invite(terms(now, 2), now).unwrap();
        registrar.enrol(&asked(&invitation), now).unwrap();
        drop(registrar);
        let registrar = Registrar::kept(authority, &folder).unwrap();
        registrar.enrol(&asked(&invitation), now).unwrap();
        let error = registrar.enrol(&asked(&invitation), now).unwrap_err();
        assert!(
            matches!(
                error,
                EnrolRefusal::Invitation(InvitationError::UsedUp { count: 2, uses: 2, .. })
            ),
            "{error}"
        );
    }

    #[test]
    fn a_senseless_request_uses_nothing_up() {
        let now = Moment::of(SystemTime::now());
        let registrar = Registrar::new(Arc::new(Authority::new(JOB).unwrap()));
        let invitation = registrar.invite(terms(now, 1), now).unwrap();
        let senseless = EnrolRequest::Invited {
            invitation: invitation.clone(),
            request: vec![1; 100],
        };
        assert!(matches!(registrar.enrol(&senseless, now), Err(EnrolRefusal::Certify(_))));
        registrar.enrol(&asked(&invitation), now).unwrap();
    }

    #[test]
    fn of_many_at_once_only_as_many_as_invited_are_enrolled() {
        let now = Moment::of(SystemTime::now());
        let registrar = Registrar::new(Arc::new(Authority::new(JOB).unwrap()));
        let invitation = registrar.invite(terms(now, 3), now).unwrap();
        let enrolled = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| registrar.enrol(&asked(&invitation), now).is_ok()))
                .collect();
            tries.into_iter().map(|join| join.join().unwrap()).filter(|&ok| ok).count()
        });
        assert_eq!(enrolled, 3);
    }

    #[test]
    fn the_same_key_is_the_same_use_also_across_a_restart_and_another_key_is_another() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        let now = Moment::of(SystemTime::now());
        let authority = Arc::new(Authority::new(JOB).unwrap());
        let mut registrar = Registrar::kept(Arc::clone(&authority), &folder).unwrap();
        let (invitation, key) = (registrar.invite(terms(now, 1), now).unwrap(), PendingKey::generate().unwrap());
        let mut ids = Vec::new();
        for _ in 0..3 {
            let certificate = registrar.enrol(&asked_with(&invitation, &key), now).unwrap();
            ids.push(identity(&registrar, &key, certificate));
            let error = registrar.enrol(&asked(&invitation), now).unwrap_err().to_string();
            assert!(error.contains("used up (1 of 1)"), "{error}");
            registrar = Registrar::kept(Arc::clone(&authority), &folder).unwrap();
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "an agent is who it was: {ids:?}");
        let late = invitation.expires();
        let error = registrar.enrol(&asked_with(&invitation, &key), late).unwrap_err().to_string();
        assert!(error.contains("expired at"), "{error}");
    }

    #[test]
    fn a_worker_that_enrols_again_is_another_worker() {
        let now = Moment::of(SystemTime::now());
        let registrar = Registrar::new(Arc::new(Authority::new(JOB).unwrap()));
        let terms = Terms {
            role: Role::Worker,
            ..terms(now, 1)
        };
        let (invitation, key) = (registrar.invite(terms, now).unwrap(), PendingKey::generate().unwrap());
        let [one, two] = [(), ()].map(|()| {
            let certificate = registrar.enrol(&asked_with(&invitation, &key), now).unwrap();
            identity(&registrar, &key, certificate)
        });
        assert_ne!(one, two);
    }

    fn run_out(credentials: &Credentials) -> EnrolRequest {
        EnrolRequest::RunOut {
            certificate: credentials.certificate().to_vec(),
            request: PendingKey::of(credentials).unwrap().request().unwrap(),
        }
    }

    #[test]
    fn a_certificate_that_has_run_out_is_renewed_for_who_has_its_key_and_is_not_gone() {
        const HOURS: Duration = Duration::from_secs(3 * 60 * 60);
        let now = Moment::of(SystemTime::now());
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Missing::Create).unwrap();
        let registrar = Registrar::new(Arc::new(Authority::load_or_create(&folder, JOB).unwrap()));
        let before = Authority::load(&folder).unwrap().with_clock(Clock::behind(HOURS));
        for role in [Role::Worker, Role::Agent, Role::Checkpoint] {
            let old = before.issue(role, 5).unwrap();
            let certificate = registrar.enrol(&run_out(&old), now).unwrap();
            let key = PendingKey::of(&old).unwrap();
            assert_eq!(identity(&registrar, &key, certificate), old.identity());
        }
        let old = before.issue(Role::Worker, 5).unwrap();
        registrar.note_gone(WorkerId::new(5), now);
        let error = registrar.enrol(&run_out(&old), now).unwrap_err();
        assert!(
            error.to_string().contains("worker w5") || error.to_string().contains("0005 has left"),
            "{error}"
        );
        registrar.note_back(WorkerId::new(5));
        registrar.enrol(&run_out(&old), now).unwrap();

        let stolen = EnrolRequest::RunOut {
            certificate: old.certificate().to_vec(),
            request: PendingKey::generate().unwrap().request().unwrap(),
        };
        let error = registrar.enrol(&stolen, now).unwrap_err();
        assert!(matches!(error, EnrolRefusal::RunOut(RunOutRefusal::OtherKey)), "{error}");
        let foreign = Authority::new(JOB).unwrap().with_clock(Clock::behind(HOURS));
        let error = registrar
            .enrol(&run_out(&foreign.issue(Role::Worker, 5).unwrap()), now)
            .unwrap_err();
        assert!(matches!(error, EnrolRefusal::Holder(_)), "{error}");
        let operator = before.issue(Role::Operator, 5).unwrap();
        let error = registrar.enrol(&run_out(&operator), now).unwrap_err().to_string();
        assert!(error.contains("its join file serves until it expires"), "{error}");
    }
}
