//! Files that a user hands over, or that another life of a process has left.

use std::cell::OnceCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sardana::checkpoints;
use sardana::hosts::state::{ADDRESS_FILE, FENCE_FILE, INCARNATION_FILE, StateDirectory};
use sardana::hosts::{Existing, JoinFile, Missing, PrivateFolder};
use sardana_actors::fuzzing;
use sardana_actors::worker::TallyFile;
use sardana_net::enrol::{USES_FILE, Uses};
use sardana_net::trust::{AUTHORITY_FILE, Authority};
use sardana_protocol::words::Incarnation;
use sardana_storage::fuzzing::kind;
use sardana_storage::private::write_private;
use tempfile::TempDir;

/// Calls `use_it` with a folder of this thread's own, in memory where the system has such.
pub(crate) fn in_folder(use_it: impl FnOnce(&Path)) {
    thread_local! {
        static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    }
    let make = || {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        tempfile::Builder::new()
            .prefix("sardana-fuzz")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(place)
            .expect("a folder can be made")
    };
    FOLDER.with(|folder| use_it(folder.get_or_init(make).path()));
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    write_private(&folder.join(name), bytes, Existing::Replace).expect("the folder can be written");
}

/// A text followed by its hash, as several files have it.
fn sealed(bytes: &[u8], between: &[u8]) -> Vec<u8> {
    [bytes, between, blake3::hash(bytes).to_hex().as_bytes(), b"\n"].concat()
}

/// Messages of depots, and the notes beside a store.
pub(crate) fn depots(bytes: &[u8]) {
    in_folder(|folder| fuzzing::depots(bytes, folder));
}

/// A join file; what is one is the same when it is written and read again.
pub(crate) fn join_files(bytes: &[u8]) {
    in_folder(|folder| {
        put(folder, "join", bytes);
        let path = folder.join("join");
        if let Ok(join) = JoinFile::read_any(&path) {
            join.write(&path, Existing::Replace).expect("what was read can be written");
            JoinFile::read_any(&path).expect("what was written can be read");
        }
    });
}

/// The short files of a coordinator's state directory, and its authority.
pub(crate) fn state_directories(bytes: &[u8]) {
    in_folder(|folder| {
        let state = StateDirectory::open(folder).expect("the folder is private");
        let both = |name: &str, rest: &[u8], read: &dyn Fn()| {
            for bytes in [rest.to_vec(), sealed(rest, b" ")] {
                put(folder, name, &bytes);
                read();
            }
            fs::remove_file(folder.join(name)).expect("it was written");
        };
        match kind(bytes, 4) {
            (0, rest) => both(INCARNATION_FILE, rest, &|| {
                drop(state.next_incarnation(Incarnation::new(3)));
            }),
            (1, rest) => both(FENCE_FILE, rest, &|| drop(state.fence())),
            (2, rest) => both(ADDRESS_FILE, rest, &|| drop(state.addresses())),
            (_, rest) => both(AUTHORITY_FILE, rest, &|| {
                drop(PrivateFolder::open(folder, Missing::Refuse).map(|folder| Authority::load(&folder)));
            }),
        }
    });
}

/// The file that says how often invitations were used.
pub(crate) fn uses(bytes: &[u8]) {
    sardana_net::fuzzing::uses(bytes);
    in_folder(|folder| {
        put(folder, USES_FILE, bytes);
        let folder = PrivateFolder::open(folder, Missing::Refuse).expect("the folder is private");
        drop(Uses::kept(&folder));
    });
}

/// The join file that the keys of the corpus are for: its kept keys were certified by its authority.
const JOIN_OF_KEYS: &[u8] = include_bytes!("../corpus/join_files/keyring");

/// A file of a keyring: a key, and what it was traded for.
pub(crate) fn keyrings(bytes: &[u8]) {
    in_folder(|folder| {
        put(folder, "join", JOIN_OF_KEYS);
        let join = JoinFile::read_any(&folder.join("join")).expect("it was kept");
        sardana_net::fuzzing::keyring(bytes, &join, &folder.join("key"));
    });
}

/// A count of gradients that a worker has left; what is one is the same when it is written and read again.
pub(crate) fn tallies(bytes: &[u8]) {
    in_folder(|folder| {
        let path = folder.join("tally");
        put(folder, "tally", bytes);
        if let Some(tally) = TallyFile::read(&path) {
            TallyFile::open(&path).expect("it can be mapped").write(tally);
            assert_eq!(TallyFile::read(&path), Some(tally));
            assert_eq!(fs::read(&path).expect("it is there"), bytes, "nothing else is in it");
        }
    });
}

/// A file of tensors, as an import reads it.
pub(crate) fn safetensors(bytes: &[u8]) {
    in_folder(|folder| {
        let path = folder.join("tensors");
        fs::write(&path, bytes).expect("the folder can be written");
        checkpoints::tensors(&path);
        // A header whose length is right, before some bytes of tensors.
        let length = (bytes.len() as u64).to_le_bytes();
        fs::write(&path, [&length[..], bytes, &[0; 16]].concat()).expect("the folder can be written");
        checkpoints::tensors(&path);
    });
}
