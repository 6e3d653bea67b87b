//! A store's pieces are read by another process of the same host, from the files themselves. It has nothing but their places, and trusts
//! nothing: a piece that was moved meanwhile, or is damaged, is seen by its hash, and asked for otherwise.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::disk::RealFile;
use super::error::ReadError;
use super::names::{PieceHash, Place, segment_name};
use super::read::{read_piece, threads};
use super::record::HEADER;
use super::shared::{Shared, held};
use super::state::Standing;
use crate::trust::PrivateError;

/// Where some pieces are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The folder of the segments, from the root on.
    pub segments: PathBuf,
    /// Each piece's place; none if it is not there, or not known to be whole.
    pub places: Vec<Option<Place>>,
}

impl Shared {
    pub(super) fn places(&self, pieces: &[PieceHash]) -> Option<Places> {
        let segments = self.disk.is_the_hosts().then(|| self.segments.canonicalize().ok())??;
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

/// Reads all of `wanted` with several threads, as they lie on the disk. Counts in `read` those that are done. The indices of those that
/// this process cannot read, or that are not what they should be.
pub fn read_near(mut wanted: Vec<Wanted<'_>>, read: &AtomicUsize) -> Vec<usize> {
    wanted.sort_by(|one, other| (one.segments, one.place).cmp(&(other.segments, other.place)));
    let parts = parts(&wanted);
    let threads = threads().min(wanted.len());
    let (queue, lacking) = (Mutex::new(wanted.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        let mut open = Open::default();
        loop {
            let Some(next) = held(&queue).next() else { return };
            let index = next.index;
            if let Err(error) = open.read(next, &parts) {
                tracing::debug!(%error, "a piece is not read from its file");
                held(&lacking).push(index);
            }
            read.fetch_add(1, Ordering::Relaxed);
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

/// A segment, by its folder and number.
type Segment<'a> = (&'a Path, u64);

/// Between which bytes of each segment lies what is wanted of it.
type Parts<'a> = BTreeMap<Segment<'a>, Range<u64>>;

/// Of what is wanted, in the order of its places.
fn parts<'a>(wanted: &[Wanted<'a>]) -> Parts<'a> {
    let mut parts = Parts::new();
    for Wanted { segments, place, .. } in wanted {
        let part = parts.entry((*segments, place.segment)).or_insert(place.offset..place.offset);
        part.end = place.offset.saturating_add(HEADER as u64 + u64::from(place.len));
    }
    parts
}

/// The segment that was read from last.
#[derive(Debug, Default)]
struct Open<'a>(Option<(Segment<'a>, PathBuf, RealFile)>);

impl<'a> Open<'a> {
    fn read(&mut self, wanted: Wanted<'a>, parts: &Parts<'a>) -> Result<(), ReadError> {
        let Wanted {
            piece,
            segments,
            place,
            bytes,
            ..
        } = wanted;
        let segment = (segments, place.segment);
        let (path, file) = match self.0.take().filter(|(open, ..)| *open == segment) {
            Some((_, path, file)) => (path, file),
            None => open(segment, parts).map_err(|(path, error)| ReadError::Disk {
                piece,
                path,
                offset: place.offset,
                source: std::io::Error::other(error.to_string()),
            })?,
        };
        let read = read_piece(&file, &path, piece, place, bytes);
        self.0 = Some((segment, path, file));
        read
    }
}

/// Opens a segment. From it, and from the next one, the disk reads ahead: several threads read some of it each, and from none of them the
/// system expects that.
fn open(segment: Segment<'_>, parts: &Parts<'_>) -> Result<(PathBuf, RealFile), (PathBuf, PrivateError)> {
    let ahead = |(folder, number): Segment<'_>, part: &Range<u64>| {
        let path = folder.join(segment_name(number));
        match RealFile::open(&path) {
            Ok(file) => {
                file.read_ahead(part);
                Ok((path, file))
            }
            Err(error) => Err((path, error)),
        }
    };
    let opened = ahead(segment, parts.get(&segment).unwrap_or(&(0..0)));
    if let Some((&next, part)) = parts.range((Bound::Excluded(segment), Bound::Unbounded)).next() {
        // Whether it can be opened is seen when it is read.
        let _ = ahead(next, part);
    }
    opened
}
