//! A store's pieces are read by another process of the same host, from the files themselves. It has nothing but their places, and trusts
//! nothing: a piece that was moved meanwhile, or is damaged, is seen by its hash, and asked for otherwise.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::disk::RealFile;
use super::error::ReadError;
use super::names::{PieceHash, Place, segment_name};
use super::read::{read_piece, threads};
use super::shared::{Shared, held};
use super::state::Standing;
use crate::trust::PrivateError;

/// Where some pieces are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The folder of the segments, from the root on.
    pub segments: PathBuf,
    /// Each piece's place; none if it is not there, or known to be damaged.
    pub places: Vec<Option<Place>>,
}

impl Shared {
    pub(super) fn places(&self, pieces: &[PieceHash]) -> Option<Places> {
        // Nothing is asked of the disk, which may hang.
        let segments = self.disk.is_the_hosts().then(|| std::path::absolute(&self.segments).ok())??;
        let state = held(&self.state);
        let whole = |piece: &PieceHash| {
            let slot = state.pieces.get(piece).filter(|slot| slot.standing != Standing::Damaged);
            slot.map(|slot| slot.place)
        };
        Some(Places {
            segments,
            places: pieces.iter().map(whole).collect(),
        })
    }
}

/// A piece in somebody else's segment, and where its bytes go.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its number among all that are wanted.
    pub index: usize,
    /// Which it is.
    pub piece: PieceHash,
    /// The folder of its segment.
    pub segments: &'a Path,
    /// Where it is in there.
    pub place: Place,
    /// Has its length.
    pub bytes: &'a mut [u8],
}

/// How far such a reading is, for whoever waits for it; and whether anybody does.
#[derive(Debug, Default)]
pub struct Reading {
    /// Pieces that are done.
    read: AtomicUsize,
    given_up: AtomicBool,
}

impl Reading {
    /// Pieces that are done.
    #[must_use]
    pub fn read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// Nobody waits any more: it ends after the pieces that are being read.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Bytes that one thread reads one after the other: then the system reads ahead for it, in large parts.
const STRETCH_BYTES: u64 = 16 << 20;

/// Reads all of `wanted` with several threads, as they lie on the disk. The indices of those that this process cannot read, or that are not
/// what they should be.
pub fn read_near(mut wanted: Vec<Wanted<'_>>, reading: &Reading) -> Vec<usize> {
    wanted.sort_by(|one, other| (one.segments, one.place).cmp(&(other.segments, other.place)));
    let stretches = stretches(wanted);
    let threads = threads().min(stretches.len());
    let (queue, lacking) = (Mutex::new(stretches.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        let mut open = Open::default();
        while let Some(stretch) = held(&queue).next() {
            for next in stretch {
                if reading.given_up.load(Ordering::Relaxed) {
                    return;
                }
                let index = next.index;
                if let Err(error) = open.read(next) {
                    tracing::debug!(%error, "a piece is not read from its file");
                    held(&lacking).push(index);
                }
                reading.read.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    lacking.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Those that lie next to each other, together.
fn stretches(wanted: Vec<Wanted<'_>>) -> Vec<Vec<Wanted<'_>>> {
    let mut stretches: Vec<Vec<Wanted<'_>>> = Vec::new();
    for next in wanted {
        let goes_on = |stretch: &&mut Vec<Wanted<'_>>| {
            let first = stretch.first();
            first.is_some_and(|first| {
                let same = (first.segments, first.place.segment) == (next.segments, next.place.segment);
                same && next.place.offset - first.place.offset < STRETCH_BYTES
            })
        };
        match stretches.last_mut().filter(goes_on) {
            Some(stretch) => stretch.push(next),
            None => stretches.push(vec![next]),
        }
    }
    stretches
}

/// The segment that was opened last.
#[derive(Debug, Default)]
struct Open(Option<(PathBuf, RealFile)>);

impl Open {
    fn read(&mut self, wanted: Wanted<'_>) -> Result<(), ReadError> {
        let Wanted {
            piece,
            segments,
            place,
            bytes,
            ..
        } = wanted;
        let path = segments.join(segment_name(place.segment));
        let file = self.at(&path).map_err(|error| ReadError::Disk {
            piece,
            path: path.clone(),
            offset: place.offset,
            source: std::io::Error::other(error.to_string()),
        })?;
        read_piece(file, &path, piece, place, bytes)
    }

    fn at(&mut self, path: &Path) -> Result<&RealFile, PrivateError> {
        let open = self.0.take().filter(|(open, _)| open == path);
        let open = match open {
            Some(open) => open,
            None => (path.to_owned(), RealFile::open_to_read(path)?),
        };
        Ok(&self.0.insert(open).1)
    }
}
