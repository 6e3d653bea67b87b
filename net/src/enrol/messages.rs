//! What is said to enrol: one message each way. Their bytes are fixed by golden tests.

use serde::{Deserialize, Serialize};

use super::invitation::Invitation;

/// From a process without a valid certificate to the coordinator. [`EnrolAnswer`] comes back, and the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolRequest {
    /// By a process that was invited. The same key again is the same use of the invitation.
    Invited {
        /// Its invitation.
        invitation: Invitation,
        /// The request for it, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// By a process of the job whose certificate has run out, or is about to.
    RunOut {
        /// That certificate, X.509 in DER.
        certificate: Vec<u8>,
        /// The request for the next certificate, PKCS #10 in DER, for the same key.
        request: Vec<u8>,
    },
}

impl EnrolRequest {
    /// What it is, for people.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Invited { invitation, .. } => format!("{} by invitation", invitation.role()),
            Self::RunOut { .. } => "a certificate that had run out".to_owned(),
        }
    }
}

/// The coordinator's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolAnswer {
    /// The certificate, X.509 in DER. It says which role and id its holder has.
    Enrolled {
        /// The bytes.
        certificate: Vec<u8>,
    },
    /// There is none.
    Refused {
        /// Expected, found, and what to do.
        reason: String,
    },
}
