//! Invitations, and the decision on them. The authority's secret vouches for each, so that no list is kept of those that were
//! given out.

use std::fmt;

use sardana_protocol::words::JobId;
use serde::{Deserialize, Serialize};

use super::limits::{MAX_INVITATION_LIFE, MAX_USES};
use crate::trust::Moment;
use crate::trust::{Authority, Role};

/// The version of invitations.
pub(super) const VERSION: u16 = 1;

/// What the key of the secrets is derived for.
const KEY_CONTEXT: &str = "sardana 2026-11 invitation secrets";

/// What an invitation allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The role that it is for.
    pub role: Role,
    /// When it expires.
    pub expires: Moment,
    /// How often it may be used.
    pub uses: u32,
}

/// The number that tells invitations apart; drawn at random.
pub type Nonce = [u8; 16];

/// An invitation to enrol. Its secret is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    pub(super) version: u16,
    pub(super) job: JobId,
    pub(super) role: Role,
    pub(super) expires: Moment,
    pub(super) uses: u32,
    pub(super) nonce: Nonce,
    /// The message authentication code of all other fields.
    pub(super) secret: [u8; 32],
}

/// How often an invitation was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// How many uses there were.
    pub count: u32,
    /// When the last use was.
    pub last: Moment,
}

/// Why an invitation could not be made, or is not good. The user asks for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    /// It is of another release.
    #[error("this join file has version {found}, expected {VERSION}; run the same release of sardana everywhere")]
    Version {
        /// The join file's version.
        found: u16,
    },
    /// It is for another job.
    #[error(
        "this join file is for job {found}, expected job {expected}; see whether the address is the right one, or ask for a new \
         one: sardana invite"
    )]
    OtherJob {
        /// The coordinator's.
        expected: JobId,
        /// The invitation's.
        found: JobId,
    },
    /// This job's authority has not made it, or it was changed since.
    #[error("this join file was not made by the authority of this job, or was changed; ask for a new one: sardana invite")]
    Forged,
    /// This role cannot be invited to.
    #[error("no process is invited to be a {role}; expected worker, agent or operator")]
    Role {
        /// The role.
        role: Role,
    },
    /// It could not be used even once, or too often.
    #[error("a join file for {uses} uses; expected 1 to {MAX_USES}")]
    Uses {
        /// How many uses were asked for.
        uses: u32,
    },
    /// It would be good for too long.
    #[error(
        "a join file that expires at {expires}; expected at most {} days from now", MAX_INVITATION_LIFE.as_secs() / 86_400
    )]
    TooLong {
        /// When it would expire.
        expires: Moment,
    },
    /// It is too late.
    #[error(
        "this join file expired at {at}, and it is {now}; ask for a new one: sardana invite (or see whether the clocks agree)"
    )]
    Expired {
        /// When it expired.
        at: Moment,
        /// The clock of the process that says so.
        now: Moment,
    },
    /// It was used as often as it may be.
    #[error("this join file was used up ({count} of {uses}) at {at}; ask for a new one: sardana invite")]
    UsedUp {
        /// How often it was used.
        count: u32,
        /// How often it may be used.
        uses: u32,
        /// When the last use was.
        at: Moment,
    },
}

/// The key that the secrets of an authority's invitations are made with.
#[derive(Clone)]
pub struct InvitationKey([u8; 32]);

impl InvitationKey {
    /// The key of `authority`.
    #[must_use]
    pub fn of(authority: &Authority) -> Self {
        Self(authority.derived_key(KEY_CONTEXT))
    }
}

impl fmt::Debug for InvitationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationKey")
    }
}

impl Terms {
    /// Whether an invitation may say so, if it is made at `now`.
    fn check(&self, now: Moment) -> Result<(), InvitationError> {
        let Self { role, expires, uses } = *self;
        if !role.is_invited() {
            Err(InvitationError::Role { role })
        } else if uses == 0 || uses > MAX_USES {
            Err(InvitationError::Uses { uses })
        } else if expires <= now {
            Err(InvitationError::Expired { at: expires, now })
        } else if expires.seconds() - now.seconds() > MAX_INVITATION_LIFE.as_secs() {
            Err(InvitationError::TooLong { expires })
        } else {
            Ok(())
        }
    }
}

impl Invitation {
    /// The invitation of `job` under these terms, made at `now`. `nonce` is random.
    ///
    /// # Errors
    /// When the terms make no sense.
    pub fn new(key: &InvitationKey, job: JobId, terms: Terms, nonce: Nonce, now: Moment) -> Result<Self, InvitationError> {
        terms.check(now)?;
        let mut invitation = Self {
            version: VERSION,
            job,
            role: terms.role,
            expires: terms.expires,
            uses: terms.uses,
            nonce,
            secret: [0; 32],
        };
        invitation.secret = *invitation.code(key).as_bytes();
        Ok(invitation)
    }

    /// For which job.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// As what.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// When it expires.
    #[must_use]
    pub const fn expires(&self) -> Moment {
        self.expires
    }

    /// How often it may be used.
    #[must_use]
    pub const fn uses(&self) -> u32 {
        self.uses
    }

    /// The number that tells it from others.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Whether it is good for one more use at `now`, after it was `used`. `key` and `job` are the authority's.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn decide(&self, key: &InvitationKey, job: JobId, used: Option<Used>, now: Moment) -> Result<(), InvitationError> {
        if self.version != VERSION {
            return Err(InvitationError::Version { found: self.version });
        }
        if self.job != job {
            return Err(InvitationError::OtherJob {
                expected: job,
                found: self.job,
            });
        }
        // Compares in constant time.
        if self.code(key) != blake3::Hash::from_bytes(self.secret) {
            return Err(InvitationError::Forged);
        }
        if !self.role.is_invited() {
            return Err(InvitationError::Role { role: self.role });
        }
        if self.expires <= now {
            return Err(InvitationError::Expired { at: self.expires, now });
        }
        match used {
            Some(Used { count, last }) if count >= self.uses => Err(InvitationError::UsedUp {
                count,
                uses: self.uses,
                at: last,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The keyed hash of everything that is decided on. Each part has a length of its own, so no two invitations are alike.
    fn code(&self, key: &InvitationKey) -> blake3::Hash {
        let role = self.role.word();
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher
            .update(&self.version.to_le_bytes())
            .update(&self.job.bytes())
            .update(&(role.len() as u64).to_le_bytes())
            .update(role.as_bytes())
            .update(&self.expires.seconds().to_le_bytes())
            .update(&self.uses.to_le_bytes())
            .update(&self.nonce);
        hasher.finalize()
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("job", &self.job)
            .field("role", &self.role)
            .field("expires", &self.expires)
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);
    const NOW: Moment = Moment::new(1_800_000_000);
    const KEY: InvitationKey = InvitationKey([3; 32]);

    const TERMS: Terms = Terms {
        role: Role::Worker,
        expires: Moment::new(NOW.seconds() + 60),
        uses: 2,
    };

    fn invitation() -> Invitation {
        Invitation::new(&KEY, JOB, TERMS, [9; 16], NOW).unwrap()
    }

    fn used(count: u32) -> Option<Used> {
        Some(Used { count, last: NOW })
    }

    #[test]
    fn it_is_good_until_it_expires_or_is_used_up() {
        let good = |invitation: &Invitation, used, now| invitation.decide(&KEY, JOB, used, Moment::new(now));
        let invitation = invitation();
        for (count, now, expected) in [
            (None, NOW.seconds(), true),
            (None, 0, true),
            (None, NOW.seconds() + 59, true),
            (None, NOW.seconds() + 60, false),
            (None, u64::MAX, false),
            (used(0), NOW.seconds(), true),
            (used(1), NOW.seconds(), true),
            (used(2), NOW.seconds(), false),
            (used(u32::MAX), NOW.seconds(), false),
        ] {
            assert_eq!(good(&invitation, count, now).is_ok(), expected, "{count:?} at {now}");
        }
        let words = good(&invitation, used(2), NOW.seconds()).unwrap_err().to_string();
        assert!(words.contains("used up (2 of 2) at Jan 15"), "{words}");
        assert!(words.contains("ask for a new one: sardana invite"), "{words}");
        let words = good(&invitation, None, NOW.seconds() + 61).unwrap_err().to_string();
        assert!(words.contains("expired at Jan 15"), "{words}");
    }

    #[test]
    fn every_change_of_what_is_decided_on_is_a_forgery() {
        let whole = invitation();
        let changes: [fn(&mut Invitation); 6] = [
            |it| it.role = Role::Agent,
            |it| it.role = Role::Coordinator,
            |it| it.expires = Moment::new(it.expires.seconds() + 1),
            |it| it.uses += 1,
            |it| it.nonce[0] ^= 1,
            |it| it.secret[31] ^= 1,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = whole.clone();
            change(&mut changed);
            assert_eq!(
                changed.decide(&KEY, JOB, None, NOW),
                Err(InvitationError::Forged),
                "change {index}"
            );
        }
        assert_eq!(
            whole.decide(&InvitationKey([4; 32]), JOB, None, NOW),
            Err(InvitationError::Forged),
            "another authority's"
        );
    }

    #[test]
    fn another_version_or_job_is_told_from_a_forgery() {
        let mut other = invitation();
        other.version = 2;
        assert_eq!(other.decide(&KEY, JOB, None, NOW), Err(InvitationError::Version { found: 2 }));
        let found = JobId::new([8; 16]);
        let mut other = invitation();
        other.job = found;
        assert_eq!(
            other.decide(&KEY, JOB, None, NOW),
            Err(InvitationError::OtherJob { expected: JOB, found })
        );
    }

    #[test]
    fn senseless_terms_make_no_invitation() {
        let far = Moment::new(NOW.seconds() + MAX_INVITATION_LIFE.as_secs() + 1);
        for (terms, words) in [
            (
                Terms {
                    role: Role::Coordinator,
                    ..TERMS
                },
                "no process is invited to be a coordinator",
            ),
            (Terms { uses: 0, ..TERMS }, "expected 1 to"),
            (
                Terms {
                    uses: MAX_USES + 1,
                    ..TERMS
                },
                "expected 1 to",
            ),
            (Terms { expires: NOW, ..TERMS }, "expired"),
            (Terms { expires: far, ..TERMS }, "at most 30 days"),
        ] {
            let error = Invitation::new(&KEY, JOB, terms, [9; 16], NOW).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for role in [Role::Worker, Role::Agent, Role::Operator, Role::Checkpoint] {
            let terms = Terms { role, ..TERMS };
            let made = Invitation::new(&KEY, JOB, terms, [9; 16], NOW).unwrap();
            made.decide(&KEY, JOB, None, NOW).unwrap();
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?} {KEY:?}", invitation());
        assert!(!shown.contains("secret") && !shown.contains("[3"), "{shown}");
    }
}
