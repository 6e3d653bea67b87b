//! The job's own certificate authority. Its key is made here and never leaves: not to a file, a message or a log.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use sardana_protocol::words::JobId;

use super::credentials::Credentials;
use super::identity::PeerIdentity;
use super::limits::{AUTHORITY_VALIDITY, CERTIFICATE_VALIDITY, CLOCK_SLACK};
use super::role::Role;

/// Certifies the processes of one job.
pub struct Authority {
    job: JobId,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Why no certificate could be made. The caller gives up: the system has no randomness or no clock.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Making the key or the certificate failed.
    #[error("a key or certificate could not be made: {0}")]
    Generate(#[from] rcgen::Error),
    /// The clock stands before 1970.
    #[error("the system clock stands before 1970, so certificates would be refused; set the clock")]
    Clock,
}

impl Authority {
    /// A new authority for `job`, with a key of its own.
    ///
    /// # Errors
    /// When the system gives no randomness or no time.
    pub fn new(job: JobId) -> Result<Self, AuthorityError> {
        // The job is in the name so that a certificate of another job is told from a forged one of this job.
        let mut params = params(format!("sardana job {job}"), AUTHORITY_VALIDITY)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Self {
            job,
            issuer: CertifiedIssuer::self_signed(params, key)?,
        })
    }

    /// The job it certifies for.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// New credentials for the process `id` of `role`, with a key of their own.
    ///
    /// # Errors
    /// When the system gives no randomness or no time.
    pub fn issue(&self, role: Role, id: u64) -> Result<Credentials, AuthorityError> {
        let identity = PeerIdentity { job: self.job, role, id };
        let name = identity.server_name();
        let mut params = params(format!("sardana {role}"), CERTIFICATE_VALIDITY)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credentials::new(
            identity,
            self.issuer.der().to_vec(),
            certificate.der().to_vec(),
            key.serialize_der(),
        ))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("job", &self.job).finish_non_exhaustive()
    }
}

/// What all certificates have in common.
fn params(common_name: String, validity: Duration) -> Result<CertificateParams, AuthorityError> {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| AuthorityError::Clock)?;
    let now = date_time_ymd(1970, 1, 1) + since_1970;
    let mut params = CertificateParams::default();
    params.not_before = now - CLOCK_SLACK;
    params.not_after = now + validity;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);

    #[test]
    fn a_certificate_carries_exactly_the_identity_asked_for() {
        let authority = Authority::new(JOB).unwrap();
        for role in Role::ALL {
            let credentials = authority.issue(role, 42).unwrap();
            let expected = PeerIdentity { job: JOB, role, id: 42 };
            assert_eq!(credentials.identity(), expected);
            assert_eq!(PeerIdentity::in_certificate(&credentials.certificate()), Ok(expected));
            credentials.check().unwrap();
        }
    }

    #[test]
    fn credentials_with_another_ones_certificate_are_noticed() {
        let authority = Authority::new(JOB).unwrap();
        let worker = authority.issue(Role::Worker, 1).unwrap();
        let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
        let swapped = Credentials::new(coordinator.identity(), Vec::new(), worker.certificate().to_vec(), Vec::new());
        let message = swapped.check().unwrap_err().to_string();
        assert!(message.contains("worker w0000000000000001"), "{message}");
        let garbage = Credentials::new(coordinator.identity(), Vec::new(), vec![1, 2, 3], Vec::new());
        assert!(garbage.check().is_err());
    }

    #[test]
    fn no_key_is_ever_printed() {
        let authority = Authority::new(JOB).unwrap();
        let credentials = authority.issue(Role::Worker, 1).unwrap();
        let shown = format!("{authority:?} {credentials:?} {credentials:#?}");
        let key = credentials.key();
        let start = format!("{:?}", &key.secret_der()[..4]);
        assert!(!shown.contains(start.trim_matches(['[', ']'])), "{shown}");
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn every_certificate_has_its_own_key() {
        let authority = Authority::new(JOB).unwrap();
        let first = authority.issue(Role::Worker, 1).unwrap();
        let second = authority.issue(Role::Worker, 1).unwrap();
        assert_ne!(first.key().secret_der(), second.key().secret_der());
    }
}
