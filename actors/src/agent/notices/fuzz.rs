//! What clouds answer, as any bytes.

use sardana_storage::fuzzing::kind;

/// The bodies of answers, and the words and times in them.
pub fn fuzz(bytes: &[u8]) {
    match kind(bytes, 4) {
        (0, rest) => drop(super::aws::interruption(&rest.to_vec().into())),
        (1, rest) => drop(super::azure::document(rest, "machine")),
        (2, rest) => drop(std::str::from_utf8(rest).ok().and_then(super::gce::maintained)),
        (_, rest) => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            super::words::word(text);
            super::words::iso_time(text);
            super::words::http_time(text);
            drop(text.parse::<super::MetadataAddress>());
        }
    }
}
