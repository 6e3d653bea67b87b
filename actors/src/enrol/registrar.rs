//! Decides who is certified: invitations, renewals, children. What is decided is in [`super::invitation`]; this remembers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sardana_protocol::words::JobId;

use super::invitation::{Invitation, InvitationError, InvitationKey, Terms};
use super::messages::EnrolRequest;
use super::uses::{Uses, UsesError};
use crate::trust::Moment;
use crate::trust::{Authority, CertifyError, PrivateFolder};

/// The authority with what it needs to certify others.
#[derive(Debug)]
pub struct Registrar {
    authority: Arc<Authority>,
    key: InvitationKey,
    uses: Mutex<Uses>,
    ids: Ids,
}

/// Where the ids of those who enrol come from.
enum Ids {
    /// The system's randomness.
    System,
    /// Whoever made the registrar.
    Given(Box<dyn Fn() -> u64 + Send + Sync>),
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Given(_) => "Given",
        })
    }
}

impl Ids {
    fn draw(&self) -> Result<u64, EnrolRefusal> {
        match self {
            Self::System => getrandom::u64().map_err(|error| EnrolRefusal::Random(error.to_string())),
            Self::Given(draw) => Ok(draw()),
        }
    }
}

/// Why somebody was not enrolled; it is told so.
#[derive(Debug, thiserror::Error)]
pub enum EnrolRefusal {
    /// The invitation is not good.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The signing request is not.
    #[error(transparent)]
    Certify(#[from] CertifyError),
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
            ids: Ids::System,
        }
    }

    /// The same registrar, which gives the ids that `draw` draws; they must differ. For simulations, where one seed decides who is who.
    #[must_use]
    pub fn with_ids(mut self, draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.ids = Ids::Given(Box::new(draw));
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

    /// Invites somebody.
    ///
    /// # Errors
    /// When the terms make no sense.
    pub fn invite(&self, terms: Terms, now: Moment) -> Result<Invitation, InviteError> {
        invite(&self.authority, terms, now)
    }

    /// Enrols somebody who was invited, and returns the certificate. The role is the invitation's, the id is drawn here. May write
    /// to a disk.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn enrol(&self, asked: &EnrolRequest, now: Moment) -> Result<Vec<u8>, EnrolRefusal> {
        let EnrolRequest { invitation, request } = asked;
        let id = self.ids.draw()?;
        // Held to the end: two who come at once cannot both have the last use.
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        invitation.decide(&self.key, self.job(), uses.of(&invitation.nonce()), now)?;
        let certificate = self.authority.certify(invitation.role(), id, request)?;
        uses.note(invitation, now)?;
        Ok(certificate)
    }
}

/// Invites somebody to the job of `authority`.
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
    use std::time::SystemTime;

    use super::*;
    use crate::trust::{Otherwise, PendingKey, Role};

    const JOB: JobId = JobId::new([7; 16]);

    fn terms(now: Moment, uses: u32) -> Terms {
        Terms {
            role: Role::Agent,
            expires: Moment::new(now.seconds() + 60),
            uses,
        }
    }

    fn asked(invitation: &Invitation) -> EnrolRequest {
        EnrolRequest {
            invitation: invitation.clone(),
            request: PendingKey::generate().unwrap().request().unwrap(),
        }
    }

    #[test]
    fn an_invitation_is_used_up_also_across_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&place.path().join("state"), Otherwise::Make).unwrap();
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
        let mut senseless = asked(&invitation);
        senseless.request = vec![1; 100];
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
}
