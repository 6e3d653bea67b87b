//! A store's pieces are read by another process of the same host, from the files themselves. It has nothing but their places, and trusts
//! nothing: a piece that was moved meanwhile, or is damaged, is seen by its hash, and asked for otherwise.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::disk::RealFile;
use super::error::ReadError;
use super::names::{PieceHash, Place, segment_name};
use super::read::{read_piece, threads};
use super::shared::{Shared, held};
use super::state::Standing;

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
    let threads = threads().min(wanted.len());
    let (queue, lacking) = (Mutex::new(wanted.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        let mut open = Open::default();
        loop {
            let Some(next) = held(&queue).next() else { return };
            let index = next.index;
            if let Err(error) = open.read(next) {
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

/// The segment that was read from last.
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
        let (path, file) = match self.0.take().filter(|(open, _)| *open == path) {
            Some(open) => open,
            None => match RealFile::open(&path) {
                Ok(file) => {
                    // Others read it as well, each some of it: none of them as the system expects it of one who reads all.
                    file.read_ahead();
                    (path, file)
                }
                Err(error) => {
                    return Err(ReadError::Disk {
                        piece,
                        path,
                        offset: place.offset,
                        source: std::io::Error::other(error.to_string()),
                    });
                }
            },
        };
        let read = read_piece(&file, &path, piece, place, bytes);
        self.0 = Some((path, file));
        read
    }
}
