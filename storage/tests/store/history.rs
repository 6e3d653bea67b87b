//! Checkpoints that are a function of their number, so that any process can say what must be in them.

use sardana_protocol::words::Step;
use sardana_storage::store::{
    CollectError, CommitError, DeleteError, Manifest, ManifestKey, PieceHash, PinId, Store, WriteError,
};

use crate::random::Random;

/// Why a store could do no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Delete(#[from] DeleteError),
    #[error(transparent)]
    Collect(#[from] CollectError),
}

/// Pieces of a checkpoint: most are those of the one before.
const PIECES: u64 = 24;

/// A fifth of the pieces change with each checkpoint.
pub(crate) fn pieces(number: u64) -> Vec<Vec<u8>> {
    (0..PIECES)
        .map(|slot| {
            let version = (number + slot) / 5;
            let mut random = Random::new(slot << 32 | version);
            let len = if slot.is_multiple_of(6) {
                random.within(50_000..120_000)
            } else {
                random.within(1..9_000)
            };
            (0..len).map(|_| random.next().to_le_bytes()[1]).collect()
        })
        .collect()
}

pub(crate) fn manifest(number: u64) -> Manifest {
    let hashes = pieces(number).iter().map(|piece| PieceHash::of(piece)).collect();
    Manifest::new(Step::new(number), hashes, format!("checkpoint {number}").into_bytes())
}

pub(crate) fn key(number: u64) -> ManifestKey {
    ManifestKey {
        step: Step::new(number),
        id: manifest(number).key().id,
    }
}

/// What is said of a checkpoint, once it is so; and of a deletion, before it is begun.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Committed,
    Deleting,
    Deleted,
}

/// So many checkpoints stay.
pub(crate) const KEPT: u64 = 4;

/// Makes the checkpoint of this number, and deletes an old one now and then.
pub(crate) fn make(store: &Store, number: u64, mut say: impl FnMut(Word, u64)) -> Result<(), Ended> {
    let bytes = pieces(number);
    let slices: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
    let pin = PinId::new(number);
    for half in slices.chunks(slices.len() / 2) {
        store.put(pin, half)?;
        store.sync()?;
    }
    store.commit(&manifest(number))?;
    store.unpin(pin);
    say(Word::Committed, number);
    let steps: Vec<u64> = store.list().iter().map(|listed| listed.key.step.get()).collect();
    for &old in steps.iter().filter(|&&old| old + KEPT <= number) {
        say(Word::Deleting, old);
        store.delete(key(old))?;
        say(Word::Deleted, old);
    }
    if number.is_multiple_of(3) {
        store.collect()?;
    }
    Ok(())
}

/// Whether the checkpoint of this number can be read, byte for byte. What is wrong if not.
pub(crate) fn read(store: &Store, number: u64) -> Result<(), String> {
    let found = store.show(key(number)).map_err(|error| error.to_string())?;
    assert!(found == manifest(number));
    for bytes in pieces(number) {
        let read = store.read(PieceHash::of(&bytes)).map_err(|error| error.to_string())?;
        assert!(read == bytes, "other bytes than were put (CKPT-2)");
    }
    Ok(())
}
