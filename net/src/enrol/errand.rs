//! What a process with a join file does once it has found the coordinator.

use super::join_file::JoinFile;
use super::messages::EnrolRequest;
use crate::environment::Environment;
use crate::trust::{AuthorityError, Credentials, PendingKey};

/// What is done there.
#[derive(Debug)]
pub(super) enum Errand {
    /// Nothing: these credentials are good.
    Show(Credentials),
    /// A certificate is asked for.
    Ask(Box<Asking>),
}

/// A certificate that is asked for.
#[derive(Debug)]
pub(super) struct Asking {
    /// The key to be certified.
    pub(super) key: PendingKey,
    /// Like this.
    pub(super) asked: EnrolRequest,
}

impl Errand {
    /// To ask for a certificate for `key`, by invitation.
    pub(super) fn invited(environment: &Environment, join: &JoinFile, key: PendingKey) -> Result<Self, AuthorityError> {
        let asked = EnrolRequest::Invited {
            invitation: join.invitation.clone(),
            request: environment.signed(|| key.request())?,
        };
        Ok(Self::Ask(Box::new(Asking { key, asked })))
    }

    /// To ask for the certificate that follows `credentials`, which have run out or are about to.
    pub(super) fn renewal(environment: &Environment, credentials: &Credentials) -> Result<Self, AuthorityError> {
        Ok(Self::Ask(Box::new(Asking::renewal(environment, credentials)?)))
    }
}

impl Asking {
    /// For the certificate that follows `credentials`.
    pub(super) fn renewal(environment: &Environment, credentials: &Credentials) -> Result<Self, AuthorityError> {
        let key = PendingKey::of(credentials)?;
        let asked = EnrolRequest::RunOut {
            certificate: credentials.certificate().to_vec(),
            request: environment.signed(|| key.request())?,
        };
        Ok(Self { key, asked })
    }
}
