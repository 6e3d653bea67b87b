//! The holder of a certificate that may have run out: the authority knows its own signature whatever the time is.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authority::Authority;
use super::identity::{IdentityError, PeerIdentity};
use super::limits::CERTIFICATE_BYTES;
use super::moment::Moment;
use super::public_key::KeyDigest;

/// The holder of a certificate of this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The identity that the certificate names.
    pub identity: PeerIdentity,
    /// For which key it is.
    pub key: KeyDigest,
    /// The last second in which it is valid.
    pub ends: Moment,
}

/// Why a certificate says nothing. The peer that shows it is told so.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// It is no certificate of a peer.
    #[error("the certificate cannot be used: {0}")]
    Unreadable(#[from] IdentityError),
    /// It is far too long.
    #[error("the certificate cannot be used: it has {found} bytes, at most {CERTIFICATE_BYTES} are looked at")]
    TooLong {
        /// Its length.
        found: usize,
    },
    /// This authority has not made it.
    #[error(
        "the certificate is not of this job's authority ({reason}); see whether the address is the right one, or ask for a join file of \
         this job: sardana invite"
    )]
    Foreign {
        /// What is wrong with its signature.
        reason: String,
    },
}

impl Authority {
    /// The holder of `certificate` (X.509 in DER), if this authority has made it. Whether it is valid now is not asked.
    ///
    /// # Errors
    /// When it is no certificate, or of another authority.
    pub fn holder_of(&self, certificate: &[u8]) -> Result<Holder, HolderError> {
        let found = certificate.len();
        if found > CERTIFICATE_BYTES {
            return Err(HolderError::TooLong { found });
        }
        let unreadable = |reason: String| HolderError::Unreadable(IdentityError::Unreadable { reason });
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| unreadable(error.to_string()))?;
        let ends = u64::try_from(parsed.validity().not_after.timestamp())
            .map_err(|_| unreadable("it ends before 1970".to_owned()))?;
        let key = KeyDigest::of(parsed.public_key().subject_public_key.data.as_ref());
        let der = CertificateDer::from(certificate);
        self.has_signed(&der, ends)?;
        Ok(Holder {
            identity: PeerIdentity::in_certificate(&der)?,
            key,
            ends: Moment::new(ends),
        })
    }

    /// Whether this authority has made `certificate`, as TLS would say at its last valid second.
    fn has_signed(&self, certificate: &CertificateDer<'_>, ends: u64) -> Result<(), HolderError> {
        let foreign = |error: webpki::Error| HolderError::Foreign {
            reason: error.to_string(),
        };
        let end_entity = EndEntityCert::try_from(certificate).map_err(foreign)?;
        let anchors = [anchor_from_trusted_cert(self.certificate()).map_err(foreign)?];
        let time = UnixTime::since_unix_epoch(Duration::from_secs(ends));
        let algorithms = [webpki::ring::ECDSA_P256_SHA256];
        let usage = KeyUsage::client_auth();
        let verified = end_entity.verify_for_usage(&algorithms, &anchors, &[], time, usage, None, None);
        verified.map(drop).map_err(foreign)
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::JobId;

    use super::super::clock::Clock;
    use super::super::role::Role;
    use super::*;

    const JOB: JobId = JobId::new([7; 16]);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn whose_a_certificate_is_is_known_whenever_it_ends() {
        for clock in [Clock::behind(30 * DAY), Clock::Host, Clock::ahead(30 * DAY)] {
            let authority = Authority::new(JOB).unwrap().with_clock(clock);
            let credentials = authority.issue(Role::Agent, 3).unwrap();
            let holder = authority.holder_of(&credentials.certificate()).unwrap();
            assert_eq!(holder.identity, credentials.identity());
        }
    }

    #[test]
    fn one_of_another_authority_or_with_a_flipped_bit_says_nothing() {
        let (own, other) = (Authority::new(JOB).unwrap(), Authority::new(JOB).unwrap());
        let foreign = other.issue(Role::Worker, 1).unwrap();
        let error = own.holder_of(&foreign.certificate()).unwrap_err();
        assert!(matches!(error, HolderError::Foreign { .. }), "{error}");
        let good = own.issue(Role::Worker, 1).unwrap().certificate().to_vec();
        own.holder_of(&good).unwrap();
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1;
            assert!(own.holder_of(&flipped).is_err(), "byte {at}");
            assert!(own.holder_of(&good[..at]).is_err(), "cut at {at}");
        }
        for senseless in [vec![], vec![0; CERTIFICATE_BYTES + 1], vec![0x30; 100]] {
            assert!(own.holder_of(&senseless).is_err());
        }
    }
}
