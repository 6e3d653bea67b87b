//! Signatures of one length. A signature of ECDSA in DER has 70 to 72 bytes, as it comes; datagrams then have other sizes each time, and a
//! simulation would never replay. It signs again until the length is the commonest.

use rcgen::{CertificateParams, PublicKeyData, SerialNumber};

/// The commonest length of a signature of P-256.
pub const EVEN_BYTES: usize = 71;

/// Whether a certificate or request in DER ends with a signature of that length: a bit string, whose first byte counts unused bits.
#[must_use]
pub(crate) fn ends_evenly(der: &[u8]) -> bool {
    let mut head = [0x03, 0, 0, 0x30, 0];
    // Both fit a byte.
    head[1] = EVEN_BYTES as u8 + 1;
    head[4] = EVEN_BYTES as u8 - 2;
    let begins = der.len().checked_sub(EVEN_BYTES + 3);
    begins.and_then(|at| der.get(at..)).is_some_and(|end| end.starts_with(&head))
}

/// Gives a certificate a serial number of one length: it is a hash of the key, whose leading zeros are left out otherwise.
pub(super) fn even_serial(params: &mut CertificateParams, key: &impl PublicKeyData) {
    let mut serial = blake3::hash(key.der_bytes()).as_bytes()[..20].to_vec();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

    use super::*;

    #[test]
    fn certificates_that_end_evenly_have_one_length() {
        let (mut lengths, mut uneven) = (std::collections::BTreeSet::new(), 0);
        for _ in 0..200 {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            let mut params = CertificateParams::default();
            even_serial(&mut params, &key);
            let certificate = params.self_signed(&key).unwrap();
            if ends_evenly(certificate.der()) {
                lengths.insert(certificate.der().len());
            } else {
                uneven += 1;
            }
        }
        assert_eq!(lengths.len(), 1, "{lengths:?}");
        assert!(uneven > 50, "{uneven}: then there would be nothing to even");
        assert!(!ends_evenly(&[]));
        assert!(!ends_evenly(&[0x03; 74]));
    }
}
