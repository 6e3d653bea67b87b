//! A state as one run of bytes, its pieces, and the shares made of them.
//!
//! As bytes, a state is the bytes of all its tensors in the order visited, with nothing between them: names and shapes are equal
//! on all workers of a job, which admission has checked.

use std::ops::Range;

use super::{StateHash, StateSize};
use crate::hash::PieceHash;
use crate::limits::PIECE_BYTES;
use crate::snapshot::Share;

/// Where the pieces of a state lie in its bytes. Equal on all workers of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePieces {
    /// Where each piece ends.
    ends: Vec<usize>,
}

impl StatePieces {
    /// The pieces of a state whose tensors have these lengths in bytes, in the order visited.
    #[must_use]
    pub fn new(tensors: impl IntoIterator<Item = usize>) -> Self {
        let mut ends = Vec::new();
        let mut start = 0_usize;
        for bytes in tensors {
            let end = start.saturating_add(bytes);
            while start < end {
                start = end.min(start.saturating_add(PIECE_BYTES));
                ends.push(start);
            }
        }
        Self { ends }
    }

    /// How much it is.
    #[must_use]
    pub fn size(&self) -> StateSize {
        StateSize {
            pieces: self.ends.len() as u64,
            bytes: self.bytes() as u64,
        }
    }

    /// Bytes of the whole state.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.start(self.ends.len())
    }

    /// Which of the state's bytes a share holds. One run, since a share is a run of pieces.
    #[must_use]
    pub fn bytes_of(&self, share: Share) -> Range<usize> {
        let pieces = self.pieces_of(share);
        self.start(pieces.start)..self.start(pieces.end)
    }

    /// The hash of a share that has these bytes: over the hashes of its pieces, so that it can be made from those alone. An empty
    /// share has one, too; bytes of another length have another one than the share.
    #[must_use]
    pub fn hash_of(&self, share: Share, mut bytes: &[u8]) -> StateHash {
        let mut hasher = share_hasher(bytes.len() as u64);
        let pieces = self.pieces_of(share);
        for piece in pieces {
            let length = self.start(piece + 1) - self.start(piece);
            let (piece, rest) = bytes.split_at(length.min(bytes.len()));
            hasher.update(blake3::hash(piece).as_bytes());
            bytes = rest;
        }
        hasher.update(bytes);
        StateHash(hasher.finalize().into())
    }

    /// The names of a share's pieces, if these are its bytes: [`share_hash`] of them is the share's hash.
    #[must_use]
    pub fn names_of(&self, share: Share, bytes: &[u8]) -> Vec<PieceHash> {
        let name = |range: Range<usize>| PieceHash::of(bytes.get(range).unwrap_or_default());
        self.pieces_in(share).map(name).collect()
    }

    /// The bytes of each piece of a share, as ranges of the share's bytes.
    pub fn pieces_in(&self, share: Share) -> impl Iterator<Item = Range<usize>> + '_ {
        let pieces = self.pieces_of(share);
        let first = self.start(pieces.start);
        pieces.map(move |piece| self.start(piece) - first..self.start(piece + 1) - first)
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The numbers of a share's pieces.
    #[must_use]
    pub fn pieces_of(&self, share: Share) -> Range<usize> {
        let (start, end) = share.pieces(self.ends.len() as u64);
        let index = |piece: u64| usize::try_from(piece).unwrap_or(usize::MAX).min(self.ends.len());
        index(start)..index(end)
    }

    /// Where the piece of this number starts.
    fn start(&self, piece: usize) -> usize {
        piece
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0)
    }
}

fn share_hasher(bytes: u64) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key("sardana share v1");
    hasher.update(&bytes.to_le_bytes());
    hasher
}

/// The hash of a share of `bytes` bytes, from the hashes of its pieces.
#[must_use]
pub fn share_hash(bytes: u64, pieces: &[PieceHash]) -> StateHash {
    let mut hasher = share_hasher(bytes);
    for piece in pieces {
        hasher.update(&piece.bytes());
    }
    StateHash(hasher.finalize().into())
}

/// Hashes all shares of a state tensor by tensor, without a copy of it.
#[derive(Debug)]
pub struct ShareHasher<'a> {
    pieces: &'a StatePieces,
    of: u32,
    /// Pieces hashed.
    next: usize,
    /// The share that these belong to last, and its hash so far.
    hasher: blake3::Hasher,
    done: Vec<StateHash>,
}

impl<'a> ShareHasher<'a> {
    /// Starts the hashes of the `of` shares of a state.
    #[must_use]
    pub fn new(pieces: &'a StatePieces, of: u32) -> Self {
        let mut hasher = Self {
            pieces,
            of,
            next: 0,
            hasher: share_hasher(0),
            done: Vec::new(),
        };
        hasher.open();
        hasher
    }

    /// Adds the next tensor, in the state's own order, by the hashes of its pieces.
    pub fn pieces(&mut self, pieces: &[PieceHash]) {
        for piece in pieces {
            self.close_full();
            self.hasher.update(&piece.bytes());
            self.next += 1;
        }
    }

    /// The hash of each share, by its index: what [`StatePieces::hash_of`] gives for it.
    #[must_use]
    pub fn finish(mut self) -> Vec<StateHash> {
        self.close_full();
        self.done
    }

    fn share(&self) -> Option<Share> {
        let index = u32::try_from(self.done.len()).ok()?;
        (index < self.of).then_some(Share { index, of: self.of })
    }

    fn open(&mut self) {
        if let Some(share) = self.share() {
            self.hasher = share_hasher(self.pieces.bytes_of(share).len() as u64);
        }
    }

    /// Closes the shares that have all their pieces.
    fn close_full(&mut self) {
        while let Some(share) = self.share() {
            if self.next < self.pieces.pieces_of(share).end {
                return;
            }
            self.done.push(StateHash(self.hasher.finalize().into()));
            self.open();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tensors whose pieces differ in length, some of them empty.
    fn lengths() -> Vec<usize> {
        vec![0, 12, PIECE_BYTES, 0, PIECE_BYTES * 2 + 4, 8]
    }

    fn state(lengths: &[usize]) -> Vec<u8> {
        (0..lengths.iter().sum::<usize>())
            .map(|at| (at / 7 + at / PIECE_BYTES) as u8)
            .collect()
    }

    fn pieces_of(tensor: &[u8]) -> Vec<PieceHash> {
        tensor.chunks(PIECE_BYTES).map(PieceHash::of).collect()
    }

    #[test]
    fn pieces_are_cut_by_tensor_and_shares_are_runs_of_them() {
        let pieces = StatePieces::new(lengths());
        let mut ends = vec![12, 12 + PIECE_BYTES];
        ends.extend([2, 3].map(|count| 12 + count * PIECE_BYTES));
        ends.extend([16 + 3 * PIECE_BYTES, 24 + 3 * PIECE_BYTES]);
        assert_eq!(pieces.ends, ends);
        assert_eq!(pieces.bytes(), 24 + 3 * PIECE_BYTES);
        assert_eq!(pieces.bytes_of(Share::WHOLE), 0..pieces.bytes());
        for of in 1..20 {
            let mut next = 0;
            for index in 0..of {
                let range = pieces.bytes_of(Share { index, of });
                assert_eq!(range.start, next, "share {index} of {of}");
                assert!(range.end == 0 || pieces.ends.contains(&range.end));
                next = range.end;
            }
            assert_eq!(next, pieces.bytes());
        }
        assert_eq!(pieces.bytes_of(Share { index: 2, of: 3 }), ends[3]..ends[5]);
    }

    #[test]
    fn a_share_has_one_hash_however_it_is_made() {
        let lengths = lengths();
        let (pieces, state) = (StatePieces::new(lengths.clone()), state(&lengths));
        for of in 1..9 {
            let mut hasher = ShareHasher::new(&pieces, of);
            let mut rest = &state[..];
            for &length in &lengths {
                let (tensor, after) = rest.split_at(length);
                hasher.pieces(&pieces_of(tensor));
                rest = after;
            }
            let hashes = hasher.finish();
            let shares = (0..of).map(|index| Share { index, of });
            let expected: Vec<StateHash> = shares
                .map(|share| pieces.hash_of(share, &state[pieces.bytes_of(share)]))
                .collect();
            assert_eq!(hashes, expected, "{of} shares");
        }
        // By hand: the bytes' number, then the hash of each piece.
        let mut whole = blake3::Hasher::new_derive_key("sardana share v1");
        whole.update(&8_u64.to_le_bytes());
        whole.update(blake3::hash(&[7; 8]).as_bytes());
        let small = StatePieces::new([8]);
        assert_eq!(small.hash_of(Share::WHOLE, &[7; 8]).bytes(), *whole.finalize().as_bytes());
    }

    #[test]
    fn every_byte_of_a_share_and_its_length_are_in_its_hash() {
        let lengths = lengths();
        let (pieces, mut state) = (StatePieces::new(lengths.clone()), state(&lengths));
        let share = Share { index: 1, of: 2 };
        let range = pieces.bytes_of(share);
        let base = pieces.hash_of(share, &state[range.clone()]);
        for at in [range.start, range.start + PIECE_BYTES, range.end - 1] {
            state[at] ^= 1;
            assert_ne!(pieces.hash_of(share, &state[range.clone()]), base);
            state[at] ^= 1;
        }
        assert_ne!(pieces.hash_of(share, &state[range.start..range.end - 1]), base);
        assert_ne!(pieces.hash_of(share, &[&state[range], &[0]].concat()), base);
    }

    #[test]
    fn an_empty_share_has_a_hash_as_well() {
        let one = StatePieces::new([4]);
        let hashes: Vec<StateHash> = (0..3)
            .map(|index| Share { index, of: 3 })
            .map(|share| {
                let range = one.bytes_of(share);
                one.hash_of(share, &[1, 2, 3, 4][range])
            })
            .collect();
        assert_eq!(hashes[0], hashes[1]);
        assert_ne!(hashes[1], hashes[2]);
        let mut hasher = ShareHasher::new(&one, 3);
        hasher.pieces(&pieces_of(&[1, 2, 3, 4]));
        assert_eq!(hasher.finish(), hashes);
        let none = StatePieces::new([]);
        assert_eq!(ShareHasher::new(&none, 2).finish(), vec![none.hash_of(Share::WHOLE, &[]); 2]);
    }
}
