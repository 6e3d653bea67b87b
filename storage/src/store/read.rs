//! Pieces are read and compared with their hashes (CKPT-2): no reader gets other bytes than were put.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::disk::{DiskFile, read_full};
use super::error::{ReadError, Remains};
use super::limits::THREADS;
use super::names::{PieceHash, Place};
use super::record::{HEADER, Record};
use super::report::{Harm, Progress, Verified};
use super::shared::{Shared, held};
use super::state::{Health, Slot};

/// Reads a piece into `buffer`, which is as long.
pub(super) fn read_piece(
    file: &dyn DiskFile,
    path: &Path,
    piece: PieceHash,
    place: Place,
    buffer: &mut [u8],
) -> Result<(), ReadError> {
    let (offset, len) = (place.offset, place.len);
    let damaged = |found| ReadError::Damaged {
        piece,
        path: path.to_owned(),
        offset,
        len,
        found,
    };
    let read = read_full(file, buffer, offset + HEADER as u64).map_err(|source| ReadError::Disk {
        piece,
        path: path.to_owned(),
        offset,
        source,
    })?;
    if read < buffer.len() {
        return Err(damaged(Remains::Short(u32::try_from(read).unwrap_or(u32::MAX))));
    }
    match PieceHash::of(buffer) {
        found if found == piece => Ok(()),
        found => Err(damaged(Remains::Other(found))),
    }
}

/// Whether the header of the piece is what was written.
fn has_header(file: &dyn DiskFile, piece: PieceHash, place: Place) -> bool {
    let mut header = [0; HEADER];
    let expected = Record::Piece {
        hash: piece,
        len: place.len,
    };
    read_full(file, &mut header, place.offset).is_ok() && Record::read(&header, place.segment, place.offset) == Ok(expected)
}

/// A piece that can be read.
struct Located {
    slot: Slot,
    /// The path of its segment.
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl Shared {
    /// Where a piece is, and its segment, open: so that it can be read though it is moved meanwhile, and the segment removed.
    fn locate(&self, piece: PieceHash) -> Result<Located, ReadError> {
        loop {
            let (slot, open) = {
                let state = held(&self.state);
                let slot = *state.pieces.get(&piece).ok_or(ReadError::NotHeld { piece })?;
                (slot, state.file(slot.place.segment))
            };
            let path = self.segment_path(slot.place.segment);
            // Without the lock: all others would wait for a disk that hangs.
            let opened = open.map_or_else(|| self.disk.open(&path), Ok);
            let mut state = held(&self.state);
            match opened {
                Ok(file) => {
                    state.keep_open(slot.place.segment, &file);
                    return Ok(Located { slot, path, file });
                }
                // It was moved meanwhile, and its segment removed.
                Err(_) if state.pieces.get(&piece).map(|now| now.place) != Some(slot.place) => {}
                Err(error) => {
                    state.judge(&piece, slot.place, Health::Damaged);
                    return Err(ReadError::Disk {
                        piece,
                        path,
                        offset: slot.place.offset,
                        source: std::io::Error::other(error.to_string()),
                    });
                }
            }
        }
    }

    /// Reads a piece into `buffer`, in place of what is there, and remembers if it is damaged, so that it is written anew when it is put the next time.
    pub(super) fn read_into(&self, piece: PieceHash, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        let Located { slot, path, file } = self.locate(piece)?;
        buffer.resize(slot.place.len as usize, 0);
        let read = read_piece(&*file, &path, piece, slot.place, buffer);
        let health = match (&read, slot.health) {
            (Err(_), _) => Health::Damaged,
            // The disk had a bad moment. The bytes are there; for how long is not known.
            (Ok(()), Health::Damaged) => Health::Unsure,
            (Ok(()), health @ (Health::Synced | Health::Unsure)) => health,
        };
        if health != slot.health {
            held(&self.state).judge(&piece, slot.place, health);
        }
        read
    }

    /// Reads `pieces` with several threads, and calls `each` with the number of each and its bytes, in any order.
    pub(super) fn read_many(&self, pieces: &[PieceHash], each: impl Fn(usize, Result<&[u8], ReadError>) + Sync) {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&piece) = pieces.get(number) else { return };
                let read = self.read_into(piece, &mut buffer);
                each(number, read.map(|()| buffer.as_slice()));
            }
        };
        let threads = threads().min(pieces.len());
        if threads <= 1 {
            return work();
        }
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    /// Reads everything.
    pub(super) fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Verified {
        let mut pieces: Vec<(Place, PieceHash)> = {
            let state = held(&self.state);
            state.pieces.iter().map(|(hash, slot)| (slot.place, *hash)).collect()
        };
        pieces.sort();
        let total_bytes = pieces.iter().map(|(place, _)| u64::from(place.len)).sum();
        let mut done_bytes = 0;
        let mut verified = Verified::default();
        let mut buffer = Vec::new();
        for (place, piece) in pieces {
            let read = self.read_into(piece, &mut buffer);
            done_bytes += u64::from(place.len);
            progress(Progress { done_bytes, total_bytes });
            let readable = read.is_ok();
            let reason = match read {
                // It was collected meanwhile.
                Err(ReadError::NotHeld { .. }) => continue,
                Err(error @ (ReadError::Damaged { .. } | ReadError::Disk { .. })) => Some(error.to_string()),
                Ok(()) => self.harmed_header(piece),
            };
            if readable {
                verified.pieces += 1;
                verified.bytes += u64::from(place.len);
            }
            verified.harmed.extend(reason.map(|reason| Harm {
                piece,
                place,
                reason,
                readable,
            }));
        }
        verified.manifests = self.list();
        verified
    }

    fn harmed_header(&self, piece: PieceHash) -> Option<String> {
        let Located { slot, path, file } = self.locate(piece).ok()?;
        (!has_header(&*file, piece, slot.place)).then(|| {
            format!(
                "{} at {}: expected the header of piece {piece}, found something else; its bytes are whole: heal it with them",
                path.display(),
                slot.place.offset
            )
        })
    }
}

/// How many threads hash or read.
pub(super) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}
