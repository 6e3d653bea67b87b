//! What no manifest and no pin names is let go of, and the room comes back: segments that are mostly waste are written anew.
//!
//! ```text
//! which pieces are needed ─▶ the others are not held any more ─▶ per segment: copy what is needed ─▶ sync ─▶ index ─▶ remove it
//! ```
//!
//! A crash at any point leaves each piece in its old place, its new one, or both. A piece that is put meanwhile is either still held, and
//! then its pin keeps it, or not, and then it is written.

use std::collections::{HashMap, HashSet};

use super::error::{CollectError, WriteError};
use super::index::Change;
use super::limits::{WASTE_PERCENT, WRITE_BYTES};
use super::names::{PieceHash, Place};
use super::record::{HEADER, Record};
use super::report::Collected;
use super::shared::{Shared, held};
use super::state::Kept;
use super::writer::Incoming;

/// A segment and what is needed of it.
struct Victim {
    number: u64,
    len: u64,
    needed: Vec<(PieceHash, Place)>,
}

/// A piece on its way to another segment.
struct Moving {
    hash: PieceHash,
    /// Where it was.
    place: Place,
    bytes: Vec<u8>,
}

impl Shared {
    pub(super) fn collect(&self) -> Result<Collected, CollectError> {
        let _one = held(&self.collecting);
        self.writable()?;
        let mut collected = Collected::default();
        let whole = self.sweep(&mut collected)?;
        self.close_wasteful()?;
        let (empty, others): (Vec<_>, Vec<_>) = self.victims(whole).into_iter().partition(|victim| victim.needed.is_empty());
        // These first: the others need room.
        self.remove_segments(&empty, &mut collected)?;
        for victim in others {
            if self.move_out(&victim, &mut collected)? {
                self.remove_segments(&[victim], &mut collected)?;
            }
        }
        Ok(collected)
    }

    /// Lets go of the pieces that are not needed. Whether all that are needed are held.
    fn sweep(&self, collected: &mut Collected) -> Result<bool, CollectError> {
        let _changing = held(&self.changing);
        let needed = self.needed()?;
        let mut state = held(&self.state);
        let whole = needed.iter().all(|piece| state.is_readable(piece));
        let waste = state
            .pieces
            .keys()
            .filter(|piece| !needed.contains(piece) && !state.is_pinned(piece));
        let waste: Vec<PieceHash> = waste.copied().collect();
        for piece in &waste {
            state.pieces.remove(piece);
            state.changes.push(Change::NoPiece(*piece));
        }
        // What is needed stays noted, in case its segment comes back.
        let (lost, given_up) = std::mem::take(&mut state.lost)
            .into_iter()
            .partition::<HashMap<PieceHash, u64>, _>(|(piece, _)| needed.contains(piece));
        state.lost = lost;
        for piece in given_up.into_keys() {
            if !state.pieces.contains_key(&piece) {
                state.changes.push(Change::NoPiece(piece));
            }
        }
        collected.pieces = waste.len() as u64;
        Ok(whole)
    }

    /// What the manifests name.
    fn needed(&self) -> Result<HashSet<PieceHash>, CollectError> {
        let manifests = held(&self.state).manifests.clone();
        let mut needed = HashSet::new();
        for (key, kept) in manifests {
            let reason = match kept {
                Kept::Missing => "its file is gone".to_owned(),
                Kept::Damaged(reason) => reason,
                Kept::Present => match self.read_manifest(key) {
                    Ok(manifest) => {
                        needed.extend(manifest.pieces());
                        continue;
                    }
                    Err(reason) => reason,
                },
            };
            return Err(CollectError::Unreadable { key, reason });
        }
        Ok(needed)
    }

    /// Bytes of each segment that are needed.
    fn needed_bytes(&self) -> HashMap<u64, u64> {
        let mut bytes = HashMap::new();
        for (hash, slot) in &held(&self.state).pieces {
            *bytes.entry(slot.place.segment).or_insert(0) += span(*hash, slot.place);
        }
        bytes
    }

    /// Ends the segment that is written to if it is mostly waste, so that it can be collected.
    fn close_wasteful(&self) -> Result<(), WriteError> {
        let needed = self.needed_bytes();
        let mut writer = held(&self.writer);
        let pending = !held(&self.state).pending.is_empty();
        let [number] = writer.in_use()[..] else { return Ok(()) };
        let len = held(&self.state).segments.get(&number).map_or(0, |segment| segment.len);
        if pending || !is_wasteful(len, needed.get(&number).copied().unwrap_or(0)) {
            return Ok(());
        }
        // Without a new one there would be none from which the next number follows.
        match self.begin_segment(&mut writer).and_then(|()| self.sync_all(&mut writer)) {
            // No room for a new one: the others can be collected nevertheless.
            Ok(()) | Err(WriteError::Full(_)) => Ok(()),
            Err(error @ (WriteError::Poisoned { .. } | WriteError::TooLong(_) | WriteError::Mismatch { .. })) => Err(error),
        }
    }

    /// The segments to be written anew, those first of which least is needed.
    fn victims(&self, whole: bool) -> Vec<Victim> {
        // Both at once: a segment that fills up in between would be neither in use nor the newest, and nothing in it held yet.
        let writer = held(&self.writer);
        let state = held(&self.state);
        let in_use = writer.in_use();
        let newest = state.segments.keys().next_back().copied();
        let mut victims: HashMap<u64, Victim> = HashMap::new();
        for (&number, segment) in &state.segments {
            let kept = in_use.contains(&number) || newest == Some(number) || segment.gaps && !whole || segment.len == 0;
            if !kept {
                let (len, needed) = (segment.len, Vec::new());
                victims.insert(number, Victim { number, len, needed });
            }
        }
        for (hash, slot) in &state.pieces {
            if let Some(victim) = victims.get_mut(&slot.place.segment) {
                victim.needed.push((*hash, slot.place));
            }
        }
        drop((state, writer));
        let mut victims: Vec<_> = victims.into_values().collect();
        let bytes = |victim: &Victim| victim.needed.iter().map(|(hash, place)| span(*hash, *place)).sum::<u64>();
        victims.retain(|victim| is_wasteful(victim.len, bytes(victim)));
        victims.sort_by_key(|victim| (bytes(victim), victim.number));
        for victim in &mut victims {
            victim.needed.sort_by_key(|(_, place)| *place);
        }
        victims
    }

    /// Copies what is needed of a segment, and syncs the copies: whether nothing is left in it.
    fn move_out(&self, victim: &Victim, collected: &mut Collected) -> Result<bool, CollectError> {
        let mut group = Vec::new();
        let mut bytes = 0;
        for &(hash, place) in &victim.needed {
            let mut buffer = Vec::new();
            if self.read_into(hash, &mut buffer).is_err() {
                collected.damaged.push(hash);
                continue;
            }
            bytes += buffer.len();
            group.push(Moving {
                hash,
                place,
                bytes: buffer,
            });
            if bytes >= WRITE_BYTES {
                self.copy(&mut group)?;
                bytes = 0;
            }
        }
        self.copy(&mut group)?;
        if !victim.needed.is_empty() {
            self.sync_all(&mut held(&self.writer))?;
        }
        let state = held(&self.state);
        let left = victim.needed.iter().any(|(hash, _)| {
            let slot = state.pieces.get(hash);
            slot.is_some_and(|slot| slot.place.segment == victim.number)
        });
        Ok(!left)
    }

    fn copy(&self, group: &mut Vec<Moving>) -> Result<(), WriteError> {
        let incoming: Vec<_> = group
            .iter()
            .map(|piece| Incoming {
                hash: piece.hash,
                bytes: &piece.bytes,
                copy_of: Some(piece.place),
            })
            .collect();
        if !incoming.is_empty() {
            self.append(&mut held(&self.writer), &incoming)?;
        }
        group.clear();
        Ok(())
    }

    /// Removes segments of which nothing is needed, once the index knows.
    fn remove_segments(&self, emptied: &[Victim], collected: &mut Collected) -> Result<(), WriteError> {
        if emptied.is_empty() {
            return Ok(());
        }
        self.writable()?;
        {
            let mut state = held(&self.state);
            emptied.iter().for_each(|victim| state.drop_segment(victim.number));
        }
        self.note();
        for victim in emptied {
            self.remove(&self.segment_path(victim.number))?;
            let kept: u64 = victim.needed.iter().map(|(hash, place)| span(*hash, *place)).sum();
            collected.freed_bytes += victim.len.saturating_sub(kept);
            collected.copied_bytes += kept;
        }
        let synced = self.disk.sync_folder(&self.segments);
        synced.map_err(|error| self.spoil(&error))
    }
}

fn span(hash: PieceHash, place: Place) -> u64 {
    Record::Piece { hash, len: place.len }.span()
}

/// Whether it is worth it to write the rest anew.
fn is_wasteful(len: u64, needed: u64) -> bool {
    let waste = len.saturating_sub(needed + HEADER as u64);
    waste > 0 && waste * 100 >= len * WASTE_PERCENT
}
