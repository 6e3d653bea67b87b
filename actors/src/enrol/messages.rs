//! What is said to enrol: one message each way. Their bytes are fixed by golden tests.

use serde::{Deserialize, Serialize};

use super::invitation::Invitation;

/// From somebody without a certificate to the coordinator. [`EnrolAnswer`] comes back, and the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// Why it should get one.
    pub invitation: Invitation,
    /// The request for it, PKCS #10 in DER.
    pub request: Vec<u8>,
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
