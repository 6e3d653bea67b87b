//! Hashes the copies of a snapshot's shares. Other workers of this host may still copy, which holds every step up: for a while the thread
//! gives way to all others. Where all processors are busy that may last, and the snapshot is waited for as well: after that it does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StatePieces;

use super::desk::HeldShare;
use crate::ground::Ground;

/// So long copies on one host take at most, as a rule: several GiB.
const GIVES_WAY: Duration = Duration::from_millis(500);

/// The shares, hashed. None only when this process ends.
pub(super) async fn hashed(
    ground: &Ground,
    pieces: Arc<StatePieces>,
    copies: Vec<(Share, Bytes)>,
) -> Option<Vec<HeldShare>> {
    let mut hashing = Hashing::new(pieces, copies);
    let begun = move || {
        let until = Instant::now() + GIVES_WAY;
        hashing.go_on(|| Instant::now() < until);
        hashing
    };
    let mut hashing = ground.behind(begun).await?;
    if !hashing.is_done() {
        let ended = move || {
            hashing.go_on(|| true);
            hashing
        };
        hashing = ground.beside(ended).await?;
    }
    Some(hashing.finish())
}

/// Some shares, and the names of their pieces so far.
struct Hashing {
    pieces: Arc<StatePieces>,
    shares: Vec<(Share, Bytes, Vec<PieceHash>)>,
}

impl Hashing {
    fn new(pieces: Arc<StatePieces>, copies: Vec<(Share, Bytes)>) -> Self {
        let shares = copies.into_iter().map(|(share, bytes)| (share, bytes, Vec::new()));
        Self {
            pieces,
            shares: shares.collect(),
        }
    }

    /// Hashes one piece after the other, while it may.
    fn go_on(&mut self, may: impl Fn() -> bool) {
        for (share, bytes, names) in &mut self.shares {
            for range in self.pieces.pieces_in(*share).skip(names.len()) {
                if !may() {
                    return;
                }
                names.push(PieceHash::of(bytes.get(range).unwrap_or_default()));
            }
        }
    }

    fn is_done(&self) -> bool {
        let done = |(share, _, names): &(Share, Bytes, Vec<PieceHash>)| names.len() == self.pieces.pieces_of(*share).len();
        self.shares.iter().all(done)
    }

    fn finish(self) -> Vec<HeldShare> {
        let held = |(share, bytes, names)| HeldShare::named(share, bytes, names);
        self.shares.into_iter().map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn hashing_goes_on_where_it_stopped() {
        let pieces = Arc::new(StatePieces::new([3, 4, 5, 6]));
        let state = Bytes::from_static(b"a state of 18 byte");
        let shares = [Share { index: 1, of: 2 }, Share { index: 0, of: 2 }];
        let copies: Vec<_> = shares
            .into_iter()
            .map(|share| (share, state.slice(pieces.bytes_of(share))))
            .collect();
        let expected = copies
            .iter()
            .map(|(share, bytes)| (*share, bytes.clone(), pieces.hash_of(*share, bytes)));
        for most in 0..=4_u32 {
            let mut hashing = Hashing::new(Arc::clone(&pieces), copies.clone());
            let left = Cell::new(most);
            hashing.go_on(|| left.replace(left.get().saturating_sub(1)) > 0);
            assert_eq!(hashing.is_done(), most == 4);
            hashing.go_on(|| true);
            assert!(hashing.is_done());
            let held = hashing.finish().into_iter().map(|held| (held.share, held.bytes, held.hash));
            assert!(held.eq(expected.clone()), "stopped after {most}");
        }
    }

    #[tokio::test]
    async fn all_copies_are_hashed_on_the_host() {
        let pieces = Arc::new(StatePieces::new([3, 4]));
        let bytes = Bytes::from_static(b"a state");
        let held = hashed(&Ground::Host, Arc::clone(&pieces), vec![(Share::WHOLE, bytes.clone())]).await;
        let held = held.expect("this process does not end");
        assert_eq!(held[0].hash, pieces.hash_of(Share::WHOLE, &bytes));
        assert_eq!(held[0].pieces[..], pieces.names_of(Share::WHOLE, &bytes));
    }
}
