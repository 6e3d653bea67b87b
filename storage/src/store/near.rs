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
use super::state::Health;
use crate::private::PrivateError;

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
            let slot = state.pieces.get(piece).filter(|slot| slot.health != Health::Damaged);
            slot.map(|slot| slot.place)
        };
        Some(Places {
            segments,
            places: pieces.iter().map(whole).collect(),
        })
    }
}

/// A piece in a segment of another process, and where its bytes go.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its number among all that are wanted.
    pub index: usize,
    /// The piece.
    pub piece: PieceHash,
    /// The folder of its segment.
    pub segments: &'a Path,
    /// Where it is in there.
    pub place: Place,
    /// Has its length.
    pub bytes: &'a mut [u8],
}

/// How far such a reading is, for the task that waits for it; and whether any does.
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

    /// The caller does not wait any more: it ends after the pieces that are being read.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Reads all of `wanted` with several threads, each from one segment at a time and in the order in which it lies there: then the system reads
/// ahead for it, in large parts. The indices of those that this process cannot read, or that are not what they should be.
pub fn read_near(wanted: Vec<Wanted<'_>>, reading: &Reading) -> Vec<usize> {
    let lacking = Mutex::new(Vec::new());
    let threads = threads();
    side_by_side(stretches(wanted, threads), threads, |stretch| {
        let mut open = Open::default();
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
    });
    lacking.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The pieces that lie in one segment, together, in their order; cut so that there is something for each thread.
fn stretches(mut wanted: Vec<Wanted<'_>>, threads: usize) -> Vec<Vec<Wanted<'_>>> {
    wanted.sort_by(|one, other| (one.segments, one.place).cmp(&(other.segments, other.place)));
    let all: usize = wanted.iter().map(|one| one.bytes.len()).sum();
    let most = all.div_ceil(threads.max(1));
    let (mut stretches, mut filled): (Vec<Vec<Wanted<'_>>>, _) = (Vec::new(), 0);
    for next in wanted {
        let bytes = next.bytes.len();
        let goes_on = |stretch: &&mut Vec<Wanted<'_>>| {
            let last = stretch.last().map(|last| (last.segments, last.place.segment));
            filled < most && last == Some((next.segments, next.place.segment))
        };
        match stretches.last_mut().filter(goes_on) {
            Some(stretch) => {
                stretch.push(next);
                filled += bytes;
            }
            None => {
                stretches.push(vec![next]);
                filled = bytes;
            }
        }
    }
    stretches
}

/// Does `work` with all of `items`, by so many threads at the same time, of which this is one.
fn side_by_side<T: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) + Sync) {
    let threads = threads.min(items.len());
    let queue = Mutex::new(items.into_iter());
    // The queue is let go of before anything is done with what was taken from it.
    let next = || held(&queue).next();
    let all = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(all);
        }
        all();
    });
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_work_at_the_same_time() {
        let (to_first, from_second) = mpsc::channel();
        let (to_second, from_first) = mpsc::channel();
        let ends = vec![(to_second, from_second), (to_first, from_first)];
        let met = AtomicUsize::new(0);
        side_by_side(ends, 2, |(to, from): (mpsc::Sender<()>, mpsc::Receiver<()>)| {
            let _ = to.send(());
            met.fetch_add(
                usize::from(from.recv_timeout(Duration::from_secs(60)).is_ok()),
                Ordering::Relaxed,
            );
        });
        assert_eq!(met.into_inner(), 2, "each has heard of the other one while it was at work");
    }

    #[test]
    fn each_thread_reads_one_segment_in_order() {
        // Of two folders, and of segments of several pieces.
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let spots = [
            (one, 2, 0),
            (other, 1, 4),
            (one, 1, 8),
            (one, 1, 0),
            (one, 1, 4),
            (other, 1, 0),
        ];
        let grouped = |threads| {
            let mut bytes = [0_u8; 24];
            let parts = bytes.chunks_mut(4);
            let wanted = spots.iter().zip(parts).enumerate();
            let wanted = wanted.map(|(index, (&(segments, segment, offset), bytes))| Wanted {
                index,
                piece: PieceHash::of(b"x"),
                segments,
                place: Place { segment, offset, len: 4 },
                bytes,
            });
            let stretches = stretches(wanted.collect(), threads);
            let indices = stretches.iter().map(|stretch| stretch.iter().map(|one| one.index).collect());
            indices.collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(grouped(1), [vec![3, 4, 2], vec![0], vec![5, 1]]);
        assert_eq!(grouped(3), [vec![3, 4], vec![2], vec![0], vec![5, 1]]);
        assert_eq!(grouped(6), [[3], [4], [2], [0], [5], [1]]);
        assert_eq!(stretches(Vec::new(), 2).len(), 0);
    }
}
