//! Hashes the copies of a snapshot's shares. Other workers of this host may still copy, which holds every step up: for a while the thread
//! gives way to all others. Where all processors are busy that may last, and the snapshot is waited for as well: after that another one
//! does it that does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StatePieces;
use tokio::time::timeout;

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
    hashed_within(GIVES_WAY, ground, &pieces, &copies).await
}

async fn hashed_within(
    patience: Duration,
    ground: &Ground,
    pieces: &Arc<StatePieces>,
    copies: &[(Share, Bytes)],
) -> Option<Vec<HeldShare>> {
    let given_up = Arc::new(AtomicBool::new(false));
    let hashing = |until: &Arc<AtomicBool>| {
        let (mut hashing, until) = (Hashing::new(Arc::clone(pieces), copies.to_vec()), Arc::clone(until));
        move || hashing.all(&until).then_some(hashing)
    };
    // What a thread has begun that others keep from running is not waited for: it may hold nothing that anybody needs.
    let done = match timeout(patience, ground.behind(hashing(&given_up))).await {
        Ok(done) => done?,
        Err(_) => {
            given_up.store(true, Ordering::Relaxed);
            ground.beside(hashing(&Arc::default())).await?
        }
    };
    done.map(Hashing::finish)
}

/// Some shares, and the names of their pieces so far.
struct Hashing {
    pieces: Arc<StatePieces>,
    shares: Vec<(Share, Bytes, Vec<PieceHash>)>,
}

impl Hashing {
    /// Has all the memory that it takes: a thread that may be held up asks for none, which others might wait for.
    fn new(pieces: Arc<StatePieces>, copies: Vec<(Share, Bytes)>) -> Self {
        let shares = copies.into_iter().map(|(share, bytes)| {
            let names = Vec::with_capacity(pieces.pieces_of(share).len());
            (share, bytes, names)
        });
        Self {
            shares: shares.collect(),
            pieces,
        }
    }

    /// Hashes one piece after the other. Whether all are, and it was not given up.
    fn all(&mut self, given_up: &AtomicBool) -> bool {
        for (share, bytes, names) in &mut self.shares {
            for range in self.pieces.pieces_in(*share) {
                if given_up.load(Ordering::Relaxed) {
                    return false;
                }
                names.push(PieceHash::of(bytes.get(range).unwrap_or_default()));
            }
        }
        true
    }

    fn finish(self) -> Vec<HeldShare> {
        let held = |(share, bytes, names)| HeldShare::named(share, bytes, names);
        self.shares.into_iter().map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_copies_are_hashed_also_where_nobody_gives_the_first_thread_time() {
        let pieces = Arc::new(StatePieces::new([3, 4, 5, 6]));
        let state = Bytes::from_static(b"a state of 18 byte");
        let shares = [Share { index: 1, of: 2 }, Share { index: 0, of: 2 }];
        let copies = shares.map(|share| (share, state.slice(pieces.bytes_of(share))));
        for patience in [GIVES_WAY, Duration::ZERO] {
            let held = hashed_within(patience, &Ground::Host, &pieces, &copies).await;
            let held = held.expect("this process does not end");
            for ((share, bytes), held) in copies.iter().zip(&held) {
                assert_eq!((held.share, &held.bytes), (*share, bytes));
                assert_eq!(held.hash, pieces.hash_of(*share, bytes));
                assert_eq!(held.pieces[..], pieces.names_of(*share, bytes));
            }
            assert_eq!(held.len(), shares.len());
        }
    }

    #[test]
    fn what_is_given_up_ends_and_counts_for_nothing() {
        let pieces = Arc::new(StatePieces::new([3, 4]));
        let mut hashing = Hashing::new(pieces, vec![(Share::WHOLE, Bytes::from_static(b"a state"))]);
        assert!(!hashing.all(&AtomicBool::new(true)));
        assert!(hashing.all(&AtomicBool::new(false)));
    }
}
