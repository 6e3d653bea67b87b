//! Pieces come in: they are hashed, compared with what is held, and written if they are new.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::thread;

use super::error::WriteError;
use super::limits::{PIECE_BYTES, WRITE_BYTES};
use super::names::{PieceHash, PinId};
use super::report::Usage;
use super::shared::{Shared, held};
use super::writer::Incoming;

impl Shared {
    pub(super) fn put(&self, pin: PinId, pieces: &[&[u8]]) -> Result<Vec<PieceHash>, WriteError> {
        if let Some(long) = pieces.iter().find(|piece| piece.len() > PIECE_BYTES) {
            return Err(WriteError::TooLong(long.len()));
        }
        self.writable()?;
        let mut groups = groups(pieces);
        let Some(mut group) = groups.next() else {
            return Ok(Vec::new());
        };
        let mut all = Vec::with_capacity(pieces.len());
        let mut hashes = hash(group);
        // While a group is written the next one is hashed.
        for next in groups {
            let (written, following) = thread::scope(|scope| {
                let hashing = scope.spawn(|| hash(next));
                let written = self.put_group(pin, group, &hashes);
                (written, hashing.join().unwrap_or_else(|panic| resume_unwind(panic)))
            });
            written?;
            all.append(&mut hashes);
            (group, hashes) = (next, following);
        }
        self.put_group(pin, group, &hashes)?;
        all.append(&mut hashes);
        Ok(all)
    }

    /// No other call writes between the look at what is held and the write, and none collects what is pinned.
    fn put_group(&self, pin: PinId, pieces: &[&[u8]], hashes: &[PieceHash]) -> Result<(), WriteError> {
        let mut writer = held(&self.writer);
        let incoming: Vec<_> = {
            let mut state = held(&self.state);
            state.pins.entry(pin).or_default().extend(hashes);
            let mut taken = HashSet::new();
            let new = hashes
                .iter()
                .zip(pieces)
                .filter(|(hash, _)| !state.holds(hash) && taken.insert(**hash));
            new.map(|(hash, bytes)| Incoming {
                hash: *hash,
                bytes,
                copy_of: None,
            })
            .collect()
        };
        self.append(&mut writer, &incoming)
    }

    pub(super) fn sync(&self) -> Result<(), WriteError> {
        self.sync_all(&mut held(&self.writer))
    }

    pub(super) fn heal(&self, piece: PieceHash, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.len() > PIECE_BYTES {
            return Err(WriteError::TooLong(bytes.len()));
        }
        let found = PieceHash::of(bytes);
        if found != piece {
            return Err(WriteError::Mismatch { expected: piece, found });
        }
        let mut writer = held(&self.writer);
        let (hash, copy_of) = (piece, None);
        self.append(&mut writer, &[Incoming { hash, bytes, copy_of }])?;
        self.sync_all(&mut writer)
    }

    pub(super) fn pin(&self, pin: PinId, pieces: &[PieceHash]) -> Vec<PieceHash> {
        let mut state = held(&self.state);
        let (there, missing): (Vec<_>, Vec<_>) = pieces.iter().partition(|piece| state.is_synced(piece));
        state.pins.entry(pin).or_default().extend(there);
        missing
    }

    pub(super) fn unpin(&self, pin: PinId) {
        held(&self.state).pins.remove(&pin);
    }

    pub(super) fn usage(&self) -> Usage {
        let state = held(&self.state);
        let bytes = state.pieces.values().map(|slot| u64::from(slot.place.len));
        Usage {
            pieces: state.pieces.len() as u64,
            piece_bytes: bytes.sum(),
            segments: state.segments.len() as u64,
            segment_bytes: state.segments.values().map(|segment| segment.len).sum(),
        }
    }
}

fn hash(pieces: &[&[u8]]) -> Vec<PieceHash> {
    pieces.iter().map(|piece| PieceHash::of(piece)).collect()
}

/// Runs of pieces of about [`WRITE_BYTES`] together.
fn groups<'a, 'b>(mut pieces: &'a [&'b [u8]]) -> impl Iterator<Item = &'a [&'b [u8]]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |piece: &&&[u8]| {
            bytes += piece.len();
            bytes <= WRITE_BYTES
        };
        let count = pieces.iter().take_while(fits).count().max(1).min(pieces.len());
        let (group, rest) = pieces.split_at(count);
        pieces = rest;
        (!group.is_empty()).then_some(group)
    })
}
