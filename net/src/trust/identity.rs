//! What a peer is, as its certificate says: one DNS name that holds id, role and job.

use std::fmt;

use rustls_pki_types::CertificateDer;
use sardana_protocol::words::{JobId, WorkerId};
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::role::Role;

/// The last label of every name.
const DOMAIN: &str = "sardana";

/// One process of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// The job it belongs to.
    pub job: JobId,
    /// Its role there.
    pub role: Role,
    /// Which process of its role; 0 for the coordinator.
    pub id: u64,
}

/// Why a peer's certificate names no process of a job. The caller closes the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer showed no certificate, or the handshake is not over.
    #[error("the peer showed no certificate; expected one of this job's authority")]
    NoCertificate,
    /// The certificate cannot be read.
    #[error("the peer's certificate cannot be read: {reason}")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
    /// The certificate has no name, or more than one.
    #[error("the peer's certificate holds {found} names; expected exactly one")]
    Names {
        /// How many there are.
        found: usize,
    },
    /// The name is not `<id>.<role>.<job>.sardana`.
    #[error("the peer's certificate is for `{name}`; expected `<id>.<role>.<job>.sardana`")]
    NotAPeer {
        /// The name found.
        name: String,
    },
}

impl PeerIdentity {
    /// The coordinator of `job`.
    #[must_use]
    pub const fn coordinator(job: JobId) -> Self {
        Self {
            job,
            role: Role::Coordinator,
            id: 0,
        }
    }

    /// The worker `worker` of `job`.
    #[must_use]
    pub const fn worker(job: JobId, worker: WorkerId) -> Self {
        Self {
            job,
            role: Role::Worker,
            id: worker.get(),
        }
    }

    /// The one DNS name of its certificate, by which it is dialled.
    #[must_use]
    pub fn server_name(&self) -> String {
        format!("{:016x}.{}.{}.{DOMAIN}", self.id, self.role, self.job)
    }

    /// Reads a name made by [`PeerIdentity::server_name`].
    ///
    /// # Errors
    /// [`IdentityError::NotAPeer`] for every other text, however similar.
    pub fn parse(name: &str) -> Result<Self, IdentityError> {
        Self::from_labels(name)
            // Two spellings of one identity would be two identities where names are compared.
            .filter(|identity| identity.server_name() == name)
            .ok_or_else(|| IdentityError::NotAPeer { name: name.to_owned() })
    }

    fn from_labels(name: &str) -> Option<Self> {
        let mut labels = name.split('.');
        let (id, role, job) = (labels.next()?, labels.next()?, labels.next()?);
        Some(Self {
            job: JobId::new(u128::from_str_radix(job, 16).ok()?.to_be_bytes()),
            role: Role::VARIANTS.iter().copied().find(|known| known.word() == role)?,
            id: u64::from_str_radix(id, 16).ok()?,
        })
    }

    /// The identity in a certificate that is already verified.
    pub(super) fn in_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|error| IdentityError::Unreadable {
            reason: error.to_string(),
        })?;
        let names: Vec<&str> = certificate.valid_dns_names().collect();
        match names.as_slice() {
            [name] => Self::parse(name),
            names => Err(IdentityError::Names { found: names.len() }),
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Coordinator => write!(f, "coordinator of job {}", self.job),
            Role::Agent => write!(f, "agent {:016x} of job {}", self.id, self.job),
            Role::Worker => write!(f, "worker {} of job {}", WorkerId::new(self.id), self.job),
            Role::Operator => write!(f, "operator {:016x} of job {}", self.id, self.job),
            Role::Checkpoint => write!(f, "checkpoint {:016x} of job {}", self.id, self.job),
        }
    }
}

/// The peer at the other end, by the certificate that the handshake has verified.
///
/// # Errors
/// When there is no certificate yet or it names no peer; the caller closes the connection.
pub fn identity_of(connection: &quinn::Connection) -> Result<PeerIdentity, IdentityError> {
    let shown = connection.peer_identity().ok_or(IdentityError::NoCertificate)?;
    let chain = shown
        .downcast::<Vec<CertificateDer<'static>>>()
        .map_err(|_| IdentityError::NoCertificate)?;
    PeerIdentity::in_certificate(chain.first().ok_or(IdentityError::NoCertificate)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::new([0xab; 16]);

    #[test]
    fn a_name_is_written_and_read() {
        let worker = PeerIdentity::worker(JOB, WorkerId::new(0x1f));
        let name = "000000000000001f.worker.abababababababababababababababab.sardana";
        assert_eq!(worker.server_name(), name);
        assert_eq!(PeerIdentity::parse(name), Ok(worker));
        assert!(name.split('.').all(|label| label.len() <= 63), "a DNS label holds 63 bytes");
    }

    #[test]
    fn only_the_one_spelling_is_a_peer() {
        let name = PeerIdentity::coordinator(JOB).server_name();
        for other in [
            name.to_uppercase(),
            format!("{name}."),
            format!("x.{name}"),
            format!("{name}.org"),
            name.replacen("0000000000000000", "0", 1),
            name.replacen("0000000000000000", "+000000000000000", 1),
            name.replace("coordinator", "emperor"),
            name.replace(".sardana", ""),
            String::new(),
            "é.worker.é.sardana".to_owned(),
        ] {
            assert!(PeerIdentity::parse(&other).is_err(), "{other}");
        }
    }
}
