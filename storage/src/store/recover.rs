//! What is in the segments when a store is opened.
//!
//! What the index covers, and what has a mark behind it, was synced. Of what lies behind that this is not known: it is in the system's memory
//! and perhaps not on the disk, for a sync may have failed there before this process began. So it counts only after it was read, compared
//! with its hash, written to another place and synced there. An older copy that is known spares that only if it can be read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::DiskFile;
use super::error::{OpenError, ReadError, WriteError};
use super::index::{Change, Recorded};
use super::limits::WRITE_BYTES;
use super::names::{PieceHash, Place, segment_number};
use super::read::read_piece;
use super::record::{HEADER, Record};
use super::report::Finding;
use super::scan::{self, Scanned};
use super::shared::{Shared, held};
use super::state::{Health, SegmentInfo, Slot};
use super::writer::{Incoming, Segment};
use crate::private::PrivateError;

/// A piece that is perhaps not on the disk.
struct Tail {
    hash: PieceHash,
    place: Place,
    file: Arc<dyn DiskFile>,
}

/// What the segments have shown so far.
#[derive(Default)]
struct Seen {
    tails: Vec<Tail>,
    /// How long the segments are whose tails were read to their end.
    examined: BTreeMap<u64, u64>,
    /// The newest segment, if it can be written on.
    newest: Option<Segment>,
}

/// Finds all pieces, and saves those that need it.
pub(super) fn segments(shared: &Shared, recorded: &Recorded, findings: &mut Vec<Finding>) -> Result<(), OpenError> {
    let mut numbers = BTreeSet::new();
    for name in shared.disk.names(&shared.segments)? {
        match segment_number(&name) {
            Some(number) => drop(numbers.insert(number)),
            None => findings.push(Finding::Stray(shared.segments.join(name))),
        }
    }
    let mut seen = Seen::default();
    for &number in &numbers {
        seen.newest = None;
        one(shared, number, recorded, &mut seen, findings)?;
    }
    adopt(shared, recorded);
    {
        let numbers = numbers.iter().chain(recorded.covered.keys()).copied();
        let numbers = numbers.chain(recorded.pieces.iter().map(|(_, place)| place.segment));
        let mut writer = held(&shared.writer);
        writer.next = numbers.max().map_or(0, |highest| highest.saturating_add(1));
        writer.current = seen.newest.take();
    }
    rescue(shared, &mut seen, findings);
    let mut state = held(&shared.state);
    for (number, len) in seen.examined {
        state.changes.push(Change::Covered(number, len));
    }
    Ok(())
}

/// Reads what is not known of one segment.
fn one(
    shared: &Shared,
    number: u64,
    recorded: &Recorded,
    seen: &mut Seen,
    findings: &mut Vec<Finding>,
) -> Result<(), OpenError> {
    let path = shared.segment_path(number);
    let opened = shared.disk.open(&path).and_then(|file| {
        let len = file.len().map_err(|error| PrivateError::system(&path, error))?;
        Ok((file, len))
    });
    let (file, len) = match opened {
        Ok(opened) => opened,
        Err(error @ (PrivateError::Open { .. } | PrivateError::Owner { .. } | PrivateError::Kind { .. })) => {
            return Err(error.into());
        }
        Err(error) => {
            let reason = error.to_string();
            findings.push(Finding::SegmentUnreadable { path, reason });
            held(&shared.state)
                .segments
                .insert(number, SegmentInfo { len: 0, gaps: true });
            return Ok(());
        }
    };
    let later = |format: u16| OpenError::Newer {
        path: shared.segment_path(number),
        found: u32::from(format),
    };
    if let Some(format) = scan::newer(&*file, number) {
        return Err(later(format));
    }
    let covered = recorded.covered.get(&number).copied().unwrap_or(0);
    let gaps = covered > len;
    if gaps {
        let (expected, found) = (covered, len);
        let path = path.clone();
        findings.push(Finding::SegmentShort { path, expected, found });
    }
    let from = covered.min(len);
    let found = scan::scan(&*file, number, from, len).map_err(later)?;
    let certain = found.iter().filter_map(Scanned::mark).max().unwrap_or(from);
    let mut newly = Newly { certain, gaps };
    for found in found {
        newly.take(shared, &path, &file, found, seen, findings);
    }
    let gaps = newly.gaps;
    held(&shared.state).segments.insert(number, SegmentInfo { len, gaps });
    if !gaps && len > covered {
        seen.examined.insert(number, len);
    }
    if !gaps && certain == len && (HEADER as u64..shared.segment_bytes).contains(&len) {
        seen.newest = Some(Segment::whole(number, path, file, len));
    }
    Ok(())
}

/// What the index does not cover of a segment.
struct Newly {
    /// Up to here it was synced.
    certain: u64,
    gaps: bool,
}

impl Newly {
    fn take(
        &mut self,
        shared: &Shared,
        path: &Path,
        file: &Arc<dyn DiskFile>,
        found: Scanned,
        seen: &mut Seen,
        findings: &mut Vec<Finding>,
    ) {
        let path = path.to_owned();
        match found {
            Scanned::Mark { .. } => {}
            Scanned::Piece { hash, place } if place.offset < self.certain => held(&shared.state).found(hash, place),
            Scanned::Piece { hash, place } => {
                let file = Arc::clone(file);
                seen.tails.push(Tail { hash, place, file });
            }
            Scanned::Gap { offset, end, unread } if unread.is_some() || offset < self.certain => {
                self.gaps = true;
                findings.push(Finding::Damaged {
                    path,
                    offset,
                    end,
                    unread,
                });
            }
            Scanned::Gap { offset, end, unread: _ } => findings.push(Finding::Torn { path, offset, end }),
        }
    }
}

/// Takes over what the index says, as far as it can be true, and prepares to tell it what it does not know.
fn adopt(shared: &Shared, recorded: &Recorded) {
    let mut state = held(&shared.state);
    let mut lost = Vec::new();
    for &(hash, place) in &recorded.pieces {
        let record = Record::Piece { hash, len: place.len };
        let end = place.offset.saturating_add(record.span());
        match state.segments.get(&place.segment) {
            Some(segment) if end <= segment.len => state.found(hash, place),
            Some(_) | None => lost.push((hash, place.segment)),
        }
    }
    // It may have been copied before its segment was removed, and the index not told.
    lost.retain(|(hash, _)| !state.pieces.contains_key(hash));
    state.lost = lost.into_iter().collect();
    let known: HashMap<PieceHash, Place> = recorded.pieces.iter().copied().collect();
    let untold = state
        .pieces
        .iter()
        .filter(|(hash, slot)| known.get(*hash) != Some(&slot.place));
    let untold: Vec<_> = untold.map(|(hash, slot)| Change::Piece(*hash, slot.place)).collect();
    state.changes.extend(untold);
}

/// Writes again what is perhaps not on the disk.
fn rescue(shared: &Shared, seen: &mut Seen, findings: &mut Vec<Finding>) {
    let mut writer = held(&shared.writer);
    let mut saved: Vec<(PieceHash, Place)> = Vec::new();
    let (mut group, mut group_bytes) = (Vec::new(), 0);
    let mut taken = HashSet::new();
    let mut failed: Option<WriteError> = None;
    let mut flush = |group: &mut Vec<(PieceHash, Vec<u8>)>| {
        let incoming: Vec<_> = group
            .iter()
            .map(|(hash, bytes)| Incoming {
                hash: *hash,
                bytes,
                copy_of: None,
            })
            .collect();
        if failed.is_none() {
            failed = shared.append(&mut writer, &incoming).err();
        }
        group.clear();
    };
    for Tail { hash, place, file } in std::mem::take(&mut seen.tails) {
        let mut bytes = Vec::new();
        if taken.contains(&hash) || is_held_whole(shared, hash, place, &mut bytes) {
            continue;
        }
        let path = shared.segment_path(place.segment);
        bytes.resize(place.len as usize, 0);
        if let Err(error) = read_piece(&*file, &path, hash, place, &mut bytes) {
            findings.push(unusable(seen, path, hash, place, &error));
            continue;
        }
        taken.insert(hash);
        saved.push((hash, place));
        group_bytes += bytes.len();
        group.push((hash, bytes));
        if group_bytes >= WRITE_BYTES {
            flush(&mut group);
            group_bytes = 0;
        }
    }
    flush(&mut group);
    if saved.is_empty() {
        return;
    }
    let result = failed.map_or_else(|| shared.sync_all(&mut writer), Err);
    let (pieces, bytes) = (saved.len(), saved.iter().map(|(_, place)| u64::from(place.len)).sum());
    match result {
        Ok(()) => findings.push(Finding::Rescued { pieces, bytes }),
        Err(error) => {
            let mut state = held(&shared.state);
            for (hash, place) in saved {
                let health = Health::Unsure;
                // In place of a damaged one.
                if !state.is_readable(&hash) {
                    state.pieces.insert(hash, Slot { place, health });
                }
            }
            let reason = error.to_string();
            findings.push(Finding::Unsure { pieces, reason });
            // The next opening tries again.
            seen.examined.clear();
        }
    }
}

/// Whether there is no need of what was written at `place`. What is known of an older copy is not enough: it may have been written again
/// since it was damaged. Reads it into `buffer`, then.
fn is_held_whole(shared: &Shared, hash: PieceHash, place: Place, buffer: &mut Vec<u8>) -> bool {
    let known = held(&shared.state).pieces.get(&hash).copied();
    known.is_some_and(|slot| slot.health == Health::Synced && (slot.place > place || shared.read_into(hash, buffer).is_ok()))
}

/// What to say of a piece that was perhaps never synced, and is not whole.
fn unusable(seen: &mut Seen, path: PathBuf, hash: PieceHash, place: Place, error: &ReadError) -> Finding {
    let offset = place.offset;
    let end = offset + Record::Piece { hash, len: place.len }.span();
    match error {
        ReadError::Damaged { .. } | ReadError::NotHeld { .. } => Finding::Torn { path, offset, end },
        ReadError::Disk { source, .. } => {
            // It may be readable the next time.
            seen.examined.remove(&place.segment);
            let unread = Some(source.to_string());
            Finding::Damaged {
                path,
                offset,
                end,
                unread,
            }
        }
    }
}
