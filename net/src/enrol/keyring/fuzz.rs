//! A file of a keyring, as any bytes.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sardana_storage::private::{Existing, write_private};

use super::entry::{Certified, Entry, sealed};
use super::{JoinFile, Moment};
use crate::trust::Authority;

/// Reads a file at `path` for `join`, as it is and with the right hash. An entry is the same when it is written and read again.
///
/// # Panics
/// When it is not, or `path` cannot be written.
pub fn fuzz(bytes: &[u8], join: &JoinFile, path: &Path) {
    for bytes in [Some(bytes.to_vec()), sealed(bytes)].into_iter().flatten() {
        write_private(path, &bytes, Existing::Replace).expect("the folder can be written");
        Entry::is_useless(path, Moment::new(1 << 40));
        let Ok(entry) = Entry::read(path, join) else { continue };
        let written = put(&entry, path);
        let again = Entry::read(path, join).expect("what was written can be read");
        assert!(written == put(&again, path), "{again:?}");
    }
}

fn put(entry: &Entry, path: &Path) -> Vec<u8> {
    entry.write(path).expect("what was read can be written");
    fs::read(path).expect("it was written")
}

/// Two files for `join`, which is of `authority`: one of a key that was not used yet, and one of a key that was traded for a certificate.
///
/// # Panics
/// When there is a file at `path` that is not one for `join`, or none can be made.
#[must_use]
pub fn examples(authority: &Authority, join: &JoinFile, path: &Path) -> [Vec<u8>; 2] {
    let mut entry = Entry::make(path, join).expect("a key can be made");
    let new = put(&entry, path);
    entry.certified = Some(Certified {
        credentials: authority.issue(join.invitation.role(), 5).expect("it is certified"),
        received: SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30),
    });
    [new, put(&entry, path)]
}
