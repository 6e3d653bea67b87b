//! What is done with all bytes of a large tensor, piece by piece, by several threads. A state is hashed, copied and compared several times before a worker
//! says hello, and once more after it has loaded what others trained meanwhile. Those others may be of this host, and are not to be slowed down: one processor
//! is left to them. (With none left, and threads that give way, steps of 40 ms took up to 1.7 times as long, with one up to 1.2 times.)
//! Must not know what tensors are for.

use std::iter::{repeat, zip};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use sardana_collectives::stores::Stores;
use sardana_net::environment::give_way;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::PIECE_BYTES;

/// Memory has no more to give to more of them.
const MOST_THREADS: usize = 8;

/// Beside so many pieces for each, what a thread costs is little.
const PIECES_EACH: usize = 4;

/// The hashes of the pieces of a tensor that has these bytes.
pub(super) fn hashes(bytes: &[u8]) -> Vec<PieceHash> {
    hashes_beside(bytes, (&[], &[]))
}

/// The same, where other bytes and the hashes of their pieces are known: a piece that is as it was has the hash that it had.
pub(super) fn hashes_beside(bytes: &[u8], (before, known): (&[u8], &[PieceHash])) -> Vec<PieceHash> {
    let pieces = bytes.chunks(PIECE_BYTES);
    let mut hashes = vec![PieceHash::new([0; 32]); pieces.len()];
    let before = zip(before.chunks(PIECE_BYTES), known).map(Some).chain(repeat(None));
    share_out(zip(zip(pieces, before), &mut hashes), |((piece, before), hash)| {
        *hash = match before {
            Some((before, known)) if before == piece => *known,
            Some(_) | None => PieceHash::of(piece),
        };
    });
    hashes
}

/// Whether both are the same bytes.
pub(super) fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = AtomicBool::new(one.len() != other.len());
    let pieces = zip(one.chunks(PIECE_BYTES), other.chunks(PIECE_BYTES));
    let pieces = pieces.take_while(|_| !differ.load(Ordering::Relaxed));
    share_out(pieces, |(one, other)| {
        if one != other {
            differ.store(true, Ordering::Relaxed);
        }
    });
    !differ.into_inner()
}

/// Copies bytes to as many others.
///
/// # Panics
/// When they are not as many.
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    let stores = Stores::of(from.len());
    share_out(zip(from.chunks(PIECE_BYTES), to.chunks_mut(PIECE_BYTES)), |(from, to)| {
        stores.copy(to, from);
    });
}

/// The same, and the hashes of their pieces: each is read from memory once for both.
pub(super) fn copy_and_hash(from: &[u8], to: &mut [u8]) -> Vec<PieceHash> {
    assert_eq!(from.len(), to.len());
    let stores = Stores::of(from.len());
    let pieces = zip(from.chunks(PIECE_BYTES), to.chunks_mut(PIECE_BYTES));
    let mut hashes = vec![PieceHash::new([0; 32]); pieces.len()];
    share_out(zip(pieces, &mut hashes), |((from, to), hash)| {
        stores.copy(to, from);
        *hash = PieceHash::of(from);
    });
    hashes
}

/// Does `work` with each of these pieces, in any order. The threads beside the calling one give way on a busy host.
fn share_out<T>(pieces: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    // One that ends early would have had more.
    let threads = pieces.size_hint().1.unwrap_or_default() / PIECES_EACH;
    // Asked only where it matters: the system reads files for it.
    let others = if threads < 2 {
        0
    } else {
        others(threads, available_parallelism().map_or(1, NonZero::get))
    };
    share_out_among(others, pieces, work);
}

/// The same, with so many threads beside the calling one.
fn share_out_among<T>(others: usize, pieces: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let pieces = Mutex::new(pieces);
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let take = || {
        while let Some(piece) = next() {
            work(piece);
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            let take = || {
                give_way();
                take();
            };
            // Without it the others do its part.
            let _ = thread::Builder::new().name("pieces".to_owned()).spawn_scoped(scope, take);
        }
        take();
    });
}

/// How many threads beside the calling one, where there is work for so many in all.
fn others(threads: usize, processors: usize) -> usize {
    threads.min(processors - 1).min(MOST_THREADS).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// No two pieces are alike.
    fn tensor(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 3 + at / PIECE_BYTES) as u8).collect()
    }

    const SIZES: [usize; 5] = [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 5, 17 * PIECE_BYTES - 1];

    #[test]
    fn all_pieces_are_hashed_and_copied_and_in_their_places() {
        for bytes in SIZES {
            let tensor = tensor(bytes);
            let expected: Vec<PieceHash> = tensor.chunks(PIECE_BYTES).map(PieceHash::of).collect();
            assert_eq!(hashes(&tensor), expected, "{bytes} bytes");
            let mut copied = vec![0xff; bytes];
            copy(&tensor, &mut copied);
            assert!(copied == tensor, "{bytes} bytes");
            copied.fill(0xff);
            assert_eq!(copy_and_hash(&tensor, &mut copied), expected, "{bytes} bytes");
            assert!(copied == tensor, "{bytes} bytes");
        }
    }

    #[test]
    fn several_threads_have_each_piece_once() {
        for others in [0, 1, 5] {
            let mut met = vec![0; 1_000];
            share_out_among(others, met.iter_mut(), |met| *met += 1);
            assert!(met.iter().all(|&met| met == 1), "{others} beside this one");
        }
        // Each waits for the other two.
        let (all, leaders) = (Barrier::new(3), AtomicUsize::new(0));
        share_out_among(2, 0..3, |_| {
            leaders.fetch_add(usize::from(all.wait().is_leader()), Ordering::Relaxed);
        });
        assert_eq!(leaders.into_inner(), 1);
    }

    #[test]
    fn any_bit_and_any_length_counts() {
        for bytes in SIZES {
            let tensor = tensor(bytes);
            assert!(are_equal(&tensor, &tensor.clone()), "{bytes} bytes");
            for at in [0, bytes / 2, bytes.saturating_sub(1)] {
                let mut other = tensor.clone();
                let Some(byte) = other.get_mut(at) else { continue };
                *byte ^= 0x10;
                assert!(!are_equal(&tensor, &other), "byte {at} of {bytes}");
                assert!(!are_equal(&tensor, &tensor[..at]), "{at} of {bytes} bytes");
            }
        }
    }

    #[test]
    fn a_piece_that_is_as_it_was_has_the_hash_that_it_had_and_no_other_piece_does() {
        // Hashes that are none: what is known is taken, and not hashed.
        let known: Vec<PieceHash> = (0..18).map(|piece| PieceHash::new([piece; 32])).collect();
        for bytes in SIZES {
            let before = tensor(bytes);
            let pieces = before.chunks(PIECE_BYTES).len();
            assert_eq!(hashes_beside(&before, (&before, &known)), known[..pieces], "{bytes} bytes");
            let mut now = before.clone();
            let Some(last) = now.last_mut() else { continue };
            *last ^= 1;
            let mut expected = known[..pieces - 1].to_vec();
            expected.extend(now.chunks(PIECE_BYTES).next_back().map(PieceHash::of));
            assert_eq!(hashes_beside(&now, (&before, &known)), expected, "{bytes} bytes");
        }
        let longer = tensor(2 * PIECE_BYTES);
        let expected = [known[0], PieceHash::of(&longer[PIECE_BYTES..])];
        assert_eq!(hashes_beside(&longer, (&longer[..PIECE_BYTES + 1], &known)), expected);
    }

    #[test]
    fn one_processor_is_left_to_others() {
        for (threads, processors, expected) in [
            (2, 1, 0),
            (2, 2, 0),
            (2, 3, 1),
            (2, 100, 1),
            (1_000, 4, 2),
            (1_000, 100, MOST_THREADS - 1),
        ] {
            assert_eq!(
                others(threads, processors),
                expected,
                "work for {threads}, {processors} processors"
            );
        }
    }
}
