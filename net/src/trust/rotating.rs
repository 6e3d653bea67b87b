//! What all parts of a process share of its credentials: the present ones, which a renewal replaces under their hands.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sardana_protocol::words::JobId;
use tokio::sync::watch;

use super::credentials::{Credentials, CredentialsError};
use super::identity::PeerIdentity;
use super::limits::{RENEW_AGAIN_PERCENT, RENEW_FROM_PERCENT, RENEW_SPREAD_PERCENT};
use super::request::{PendingKey, life_of};
use super::role::Role;

/// A process's credentials, of which the certificate and the key are replaced from time to time. Clones share them: every endpoint
/// made with one shows the newest certificate in its next handshake, and connections that exist go on. The identity never changes.
#[derive(Clone)]
pub struct RotatingCredentials {
    identity: PeerIdentity,
    held: Arc<watch::Sender<Held>>,
}

#[derive(Debug)]
struct Held {
    credentials: Arc<Credentials>,
    since: SystemTime,
    life: Duration,
}

impl RotatingCredentials {
    /// Rotating credentials with `credentials` that were received at `now`.
    #[must_use]
    pub fn new(credentials: Credentials, now: SystemTime) -> Self {
        Self {
            identity: credentials.identity(),
            held: Arc::new(watch::Sender::new(Held::new(credentials, now))),
        }
    }

    /// The present credentials.
    #[must_use]
    pub fn current(&self) -> Arc<Credentials> {
        Arc::clone(&self.held.borrow().credentials)
    }

    /// The process that they are for.
    #[must_use]
    pub const fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// The job they are for.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.identity.job
    }

    /// The role they prove.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.identity.role
    }

    /// The id they prove.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.identity.id
    }

    /// Puts in newer credentials of the same identity.
    ///
    /// # Errors
    /// When they are another process's; the present ones stay.
    pub fn replace(&self, credentials: Credentials, now: SystemTime) -> Result<(), CredentialsError> {
        if credentials.identity() != self.identity {
            return Err(CredentialsError::Mismatch {
                expected: self.identity,
                found: credentials.identity(),
            });
        }
        self.held.send_replace(Held::new(credentials, now));
        Ok(())
    }

    /// Whether it is time to renew them.
    #[must_use]
    pub fn is_due(&self, now: SystemTime) -> bool {
        let held = self.held.borrow();
        // A clock that was set back says nothing of their age: they are renewed to be safe.
        now.duration_since(held.since)
            .map_or(true, |age| age >= renew_after(held.life, self.identity.id))
    }

    /// Tells of each renewal from now on.
    #[must_use]
    pub fn renewals(&self) -> Renewals {
        Renewals(self.held.subscribe())
    }

    fn life(&self) -> Duration {
        self.held.borrow().life
    }
}

impl Held {
    fn new(credentials: Credentials, now: SystemTime) -> Self {
        Self {
            // What cannot be read cannot be used either; the attempt says so.
            life: life_of(&credentials.certificate()).unwrap_or(Duration::MAX),
            credentials: Arc::new(credentials),
            since: now,
        }
    }
}

impl From<Credentials> for RotatingCredentials {
    fn from(credentials: Credentials) -> Self {
        Self::new(credentials, SystemTime::now())
    }
}

impl From<&Credentials> for RotatingCredentials {
    fn from(credentials: &Credentials) -> Self {
        credentials.clone().into()
    }
}

impl From<&RotatingCredentials> for RotatingCredentials {
    fn from(rotating: &RotatingCredentials) -> Self {
        rotating.clone()
    }
}

impl From<&RotatingCredentials> for PeerIdentity {
    fn from(rotating: &RotatingCredentials) -> Self {
        rotating.identity
    }
}

impl fmt::Debug for RotatingCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatingCredentials")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Tells of the renewals of rotating credentials.
#[derive(Debug)]
pub struct Renewals(watch::Receiver<Held>);

impl Renewals {
    /// The credentials after the next renewal, and when they were received; of several that happen meanwhile the last. None once no owner
    /// has the credentials any more.
    pub async fn next(&mut self) -> Option<(Arc<Credentials>, SystemTime)> {
        self.0.changed().await.ok()?;
        let held = self.0.borrow_and_update();
        Some((Arc::clone(&held.credentials), held.since))
    }
}

/// When credentials with such a life are renewed: early, so that much of their life is left whatever happens, and not all at once.
fn renew_after(life: Duration, id: u64) -> Duration {
    let hash = blake3::hash(&id.to_le_bytes());
    let spread = u32::from(hash.as_bytes()[0]) * RENEW_SPREAD_PERCENT / u32::from(u8::MAX);
    percent(life, RENEW_FROM_PERCENT + spread)
}

fn percent(life: Duration, percent: u32) -> Duration {
    life / 100 * percent
}

/// The renewal of rotating credentials over a control connection: says when to ask, and takes in the answer.
#[derive(Debug)]
pub struct Renewal {
    rotating: RotatingCredentials,
    asked: Option<(PendingKey, SystemTime)>,
}

impl Renewal {
    /// The renewal of `rotating`.
    #[must_use]
    pub const fn new(rotating: RotatingCredentials) -> Self {
        Self { rotating, asked: None }
    }

    /// The signing request to send now, if it is time: for the first time, or again because no answer came.
    pub fn request_due(&mut self, now: SystemTime) -> Option<Vec<u8>> {
        if !self.rotating.is_due(now) {
            return None;
        }
        let again = percent(self.rotating.life(), RENEW_AGAIN_PERCENT);
        if let Some((_, asked)) = &self.asked
            && now.duration_since(*asked).is_ok_and(|waited| waited < again)
        {
            return None;
        }
        let made = PendingKey::generate().and_then(|key| Ok((key.request()?, key)));
        match made {
            Ok((request, key)) => {
                self.asked = Some((key, now));
                Some(request)
            }
            Err(error) => {
                tracing::warn!(%error, "no request for a new certificate could be made; it is tried again");
                None
            }
        }
    }

    /// The answer came: from now on the new certificate is shown.
    ///
    /// # Errors
    /// When it is not the certificate that was asked for; the present one stays, and another is asked for in time.
    pub fn renewed(&mut self, certificate: Vec<u8>, now: SystemTime) -> Result<(), CredentialsError> {
        let (key, _) = self.asked.as_ref().ok_or(CredentialsError::OtherKey)?;
        let credentials = key.certified(&self.rotating.current().authority(), certificate)?;
        self.rotating.replace(credentials, now)?;
        self.asked = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Authority;

    const JOB: JobId = JobId::new([7; 16]);
    const LIFE: Duration = Duration::from_secs(1_000);

    fn rotating() -> (Authority, RotatingCredentials, SystemTime) {
        let authority = Authority::new(JOB).unwrap().with_validity(LIFE);
        let now = SystemTime::now();
        let rotating = RotatingCredentials::new(authority.issue(Role::Worker, 3).unwrap(), now);
        (authority, rotating, now)
    }

    #[test]
    fn renewals_are_due_early_and_not_all_at_once() {
        let due: std::collections::BTreeSet<Duration> = (0..100).map(|id| renew_after(LIFE, id)).collect();
        assert!(due.iter().all(|due| (150..=250).contains(&due.as_secs())), "{due:?}");
        assert!(due.len() > 5, "{due:?}");
    }

    #[test]
    fn a_renewal_is_asked_for_in_time_again_if_unanswered_and_then_no_more() {
        let (authority, rotating, now) = rotating();
        let mut renewal = Renewal::new(rotating.clone());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(renewal.request_due(at(149)), None);
        assert!(renewal.request_due(at(250)).is_some());
        assert_eq!(renewal.request_due(at(299)), None, "the answer may be on its way");
        let request = renewal.request_due(at(301)).expect("no answer came");
        let before = rotating.current();
        let certificate = authority.certify(Role::Worker, 3, &request).unwrap();
        renewal.renewed(certificate.clone(), at(302)).unwrap();
        assert_ne!(rotating.current().certificate(), before.certificate());
        assert_eq!(rotating.current().certificate().to_vec(), certificate);
        assert_eq!(renewal.request_due(at(450)), None);
        assert!(renewal.request_due(at(560)).is_some());
    }

    #[test]
    fn a_clock_that_was_set_back_renews() {
        let (_, rotating, now) = rotating();
        assert!(rotating.is_due(now - Duration::from_secs(1)));
    }

    #[test]
    fn an_answer_for_another_key_or_peer_changes_nothing() {
        let (authority, rotating, now) = rotating();
        let mut renewal = Renewal::new(rotating.clone());
        let before = rotating.current();
        assert!(renewal.renewed(vec![1, 2, 3], now).is_err(), "nothing was asked");
        let request = renewal.request_due(now + LIFE).unwrap();
        let other_key = authority.issue(Role::Worker, 3).unwrap().certificate().to_vec();
        let other_peer = authority.certify(Role::Worker, 4, &request).unwrap();
        for wrong in [other_key, other_peer, vec![], vec![0; 1 << 20]] {
            assert!(renewal.renewed(wrong, now).is_err());
        }
        assert_eq!(rotating.current(), before);
        let right = authority.certify(Role::Worker, 3, &request).unwrap();
        renewal.renewed(right, now).unwrap();
    }
}
