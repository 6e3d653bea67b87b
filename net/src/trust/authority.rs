//! The job's own certificate authority. Its key is made here and never leaves: not to a message or a log, and to a file only if
//! the job is to outlive this process.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sardana_protocol::words::JobId;

use super::clock::Clock;
use super::credentials::Credentials;
use super::even::{ends_evenly, even_serial};
use super::identity::PeerIdentity;
use super::limits::{AUTHORITY_VALIDITY, CERTIFICATE_VALIDITY, CLOCK_SLACK};
use super::public_key::SigningRequest;
use super::role::Role;

/// Certifies the processes of one job.
pub struct Authority {
    job: JobId,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    validity: Duration,
    clock: Clock,
    /// Whether certificates that are alike but for their keys are equally long.
    even: bool,
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

/// Why a signing request was refused. The caller tells its sender.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// It is no request that this release makes.
    #[error("the signing request cannot be used: {reason}; expected PKCS #10 in DER for a P-256 key, signed with it")]
    Request {
        /// What is wrong.
        reason: String,
    },
    /// The certificate could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

impl Authority {
    /// A new authority for `job`, with a key of its own.
    ///
    /// # Errors
    /// When the system gives no randomness or no time.
    pub fn new(job: JobId) -> Result<Self, AuthorityError> {
        // The job is in the name so that a certificate of another job is told from a forged one of this job.
        let mut params = params(format!("sardana job {job}"), &Clock::Host, AUTHORITY_VALIDITY)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            job,
            certificate,
            issuer: Issuer::new(params, key),
            validity: CERTIFICATE_VALIDITY,
            clock: Clock::Host,
            even: false,
        })
    }

    /// The authority that was made before, from its certificate and key.
    pub(super) fn from_parts(job: JobId, certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key), &PKCS_ECDSA_P256_SHA256)?;
        let certificate = CertificateDer::from(certificate);
        Ok(Self {
            job,
            issuer: Issuer::from_ca_cert_der(&certificate, key)?,
            certificate,
            validity: CERTIFICATE_VALIDITY,
            clock: Clock::Host,
            even: false,
        })
    }

    /// The same authority, whose certificates are valid for `validity` instead of [`CERTIFICATE_VALIDITY`].
    #[must_use]
    pub const fn with_validity(mut self, validity: Duration) -> Self {
        self.validity = validity;
        self
    }

    /// The same authority with another clock than the host's: for simulations, and for tests of hosts whose clocks disagree.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The same authority, whose certificates are all of one length, if they are for the same role: for simulations, which must see
    /// datagrams of the same sizes each time.
    #[must_use]
    pub const fn with_even_lengths(mut self) -> Self {
        self.even = true;
        self
    }

    /// The job it certifies for.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// Its own certificate, which every process of the job believes.
    #[must_use]
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its own key, PKCS #8: for the one file that may hold it.
    pub(super) fn key(&self) -> &[u8] {
        self.issuer.key().serialized_der()
    }

    /// A key for the purpose that `context` names, derived from its own, so that nothing more has to be kept secret.
    #[must_use]
    pub fn derived_key(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, self.key())
    }

    /// New credentials for the process `id` of `role`, with a key of their own.
    ///
    /// # Errors
    /// When the system gives no randomness or no time.
    pub fn issue(&self, role: Role, id: u64) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let (identity, certificate) = self.sign(role, id, &key)?;
        Ok(Credentials::new(
            identity,
            self.certificate.to_vec(),
            certificate,
            key.serialize_der(),
        ))
    }

    /// A certificate, in DER, for the process `id` of `role` with the public key of `request`, which is PKCS #10 in DER. Nothing
    /// else of the request counts.
    ///
    /// # Errors
    /// When the request is not signed with the key that it is for, or is none.
    pub fn certify(&self, role: Role, id: u64, request: &[u8]) -> Result<Vec<u8>, CertifyError> {
        self.certify_read(role, id, &SigningRequest::read(request)?)
    }

    /// The same, for a request that was looked at.
    ///
    /// # Errors
    /// When the system gives no time.
    pub fn certify_read(&self, role: Role, id: u64, request: &SigningRequest) -> Result<Vec<u8>, CertifyError> {
        Ok(self.sign(role, id, request.key())?.1)
    }

    fn sign(&self, role: Role, id: u64, key: &impl PublicKeyData) -> Result<(PeerIdentity, Vec<u8>), AuthorityError> {
        let identity = PeerIdentity { job: self.job, role, id };
        let mut params = params(format!("sardana {role}"), &self.clock, self.validity)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(identity.server_name().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        if self.even {
            even_serial(&mut params, key);
        }
        loop {
            let signed = params.clone().signed_by(key, &self.issuer)?;
            if !self.even || ends_evenly(signed.der()) {
                return Ok((identity, signed.der().to_vec()));
            }
        }
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("job", &self.job).finish_non_exhaustive()
    }
}

/// What all certificates have in common.
fn params(common_name: String, clock: &Clock, validity: Duration) -> Result<CertificateParams, AuthorityError> {
    let since_1970 = clock.now().duration_since(UNIX_EPOCH).map_err(|_| AuthorityError::Clock)?;
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
    use sardana_protocol::words::WorkerId;

    use super::super::credentials::CredentialsError;
    use super::super::limits::SIGNING_REQUEST_BYTES;
    use strum::VariantArray;

    use super::super::request::PendingKey;
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);

    #[test]
    fn a_certificate_carries_exactly_the_identity_asked_for() {
        let authority = Authority::new(JOB).unwrap();
        for &role in Role::VARIANTS {
            let credentials = authority.issue(role, 42).unwrap();
            let expected = PeerIdentity { job: JOB, role, id: 42 };
            assert_eq!(credentials.identity(), expected);
            assert_eq!(PeerIdentity::in_certificate(&credentials.certificate()), Ok(expected));
            credentials.check().unwrap();
        }
    }

    #[test]
    fn a_request_gives_its_key_and_nothing_else() {
        let authority = Authority::new(JOB).unwrap();
        let key = PendingKey::generate().unwrap();
        let certificate = authority.certify(Role::Worker, 9, &key.request().unwrap()).unwrap();
        let credentials = key.certified(authority.certificate(), certificate.clone()).unwrap();
        assert_eq!(credentials.identity(), PeerIdentity::worker(JOB, WorkerId::new(9)));
        credentials.check().unwrap();
        let other = PendingKey::generate().unwrap();
        let error = other.certified(authority.certificate(), certificate).unwrap_err();
        assert_eq!(error, CredentialsError::OtherKey);
    }

    #[test]
    fn what_a_request_asks_for_is_not_looked_at() {
        let authority = Authority::new(JOB).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut greedy = CertificateParams::new(vec![PeerIdentity::coordinator(JOB).server_name()]).unwrap();
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        greedy.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let request = greedy.serialize_request(&key).unwrap();
        let certificate = CertificateDer::from(authority.certify(Role::Worker, 9, request.der()).unwrap());
        let found = PeerIdentity::in_certificate(&certificate).unwrap();
        assert_eq!(found, PeerIdentity::worker(JOB, WorkerId::new(9)));
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).unwrap();
        assert!(!parsed.is_ca());
    }

    #[test]
    fn a_request_that_is_damaged_or_of_another_kind_is_refused() {
        let authority = Authority::new(JOB).unwrap();
        let key = PendingKey::generate().unwrap();
        let request = key.request().unwrap();
        let mut refused = 0;
        for at in 0..request.len() {
            let mut damaged = request.clone();
            damaged[at] ^= 1;
            match authority.certify(Role::Worker, 9, &damaged) {
                Err(_) => refused += 1,
                // The name of the signature's algorithm is not signed: the key is, and it is the same.
                Ok(certificate) => drop(key.certified(authority.certificate(), certificate).unwrap()),
            }
        }
        assert!(refused > request.len() * 9 / 10, "{refused} of {}", request.len());
        for wrong in [vec![], vec![0; SIGNING_REQUEST_BYTES], vec![0x30; SIGNING_REQUEST_BYTES + 1]] {
            let error = authority.certify(Role::Worker, 9, &wrong).unwrap_err().to_string();
            assert!(error.contains("expected PKCS #10"), "{error}");
        }
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let request = CertificateParams::default().serialize_request(&other).unwrap();
        let error = authority.certify(Role::Worker, 9, request.der()).unwrap_err().to_string();
        assert!(error.contains("another kind"), "{error}");
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
