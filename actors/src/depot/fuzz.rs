//! What is said to depots and by them, and what lies beside their stores, as any bytes.

use std::path::Path;

use sardana_net::fuzzing::message;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::words::JobId;
use sardana_storage::fuzzing::kind;
use sardana_storage::private::{Existing, write_private};

use super::identity::{DEPOT_FILE, SERVED_FILE, identity, served};
use super::limits::{LIST_BYTES, REQUEST_BYTES};
use super::talk::{Answer, Offer, Request, Shown};

/// Messages of any kind, and the notes in a depot's own folder, for which `folder` is used.
///
/// # Panics
/// When `folder` cannot be written.
pub fn fuzz(bytes: &[u8], folder: &Path) {
    let note = |name: &str, rest: &[u8]| {
        write_private(&folder.join(name), rest, Existing::Replace).expect("the folder can be written");
    };
    match kind(bytes, 7) {
        (0, rest) => drop(message::<Request>(rest, REQUEST_BYTES)),
        (1, rest) => drop(message::<Vec<Offer>>(rest, LIST_BYTES)),
        (2, rest) => drop(message::<Answer>(rest, LIST_BYTES)),
        (3, rest) => drop(message::<Shown>(rest, REQUEST_BYTES)),
        (4, rest) => drop(message::<Vec<PieceHash>>(rest, LIST_BYTES)),
        (5, rest) => {
            note(DEPOT_FILE, rest);
            drop(identity(folder));
        }
        (_, rest) => {
            note(SERVED_FILE, rest);
            drop(served(folder, JobId::new([1; 16])));
        }
    }
}
