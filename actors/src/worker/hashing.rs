//! Hashes the copies of a snapshot's shares. At first a thread of low priority does it, since other workers of this host may still be
//! copying, and every step waits for their copies. On a busy host such a thread may hardly run, and joiners wait for the hashes too: after a
//! while a thread of ordinary priority takes its place.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use sardana_net::environment::Environment;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::HASHING_SIGN;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StatePieces;
use tokio::time::timeout;

use super::driver::HeldShare;
use crate::peers::limits::GIVES_WAY;

/// The shares, hashed. `sign` is called from time to time, if more of them are than the last time. None only when this process ends.
pub(super) async fn hashed(
    environment: &Environment,
    pieces: Arc<StatePieces>,
    copies: Vec<(Share, Bytes)>,
    sign: impl Fn(),
) -> Option<Vec<HeldShare>> {
    let hashing = Arc::new(Hashing::new(&pieces, copies));
    let mut hashed = pin!(hashed_within(GIVES_WAY, environment, Arc::clone(&hashing)));
    let mut told = 0;
    loop {
        match timeout(HASHING_SIGN, &mut hashed).await {
            Ok(held) => return held,
            Err(_) => hashing.tell_of_more_than(&mut told, &sign),
        }
    }
}

async fn hashed_within(patience: Duration, environment: &Environment, hashing: Arc<Hashing>) -> Option<Vec<HeldShare>> {
    // A thread that others keep from running does not keep the copies from being let go of.
    let behind = Arc::downgrade(&hashing);
    let giving_way = environment.low_priority(move || while behind.upgrade().is_some_and(|hashing| hashing.one_more()) {});
    match timeout(patience, giving_way).await {
        Ok(done) => done?,
        Err(_) => {
            let hashing = Arc::clone(&hashing);
            environment.blocking(move || while hashing.one_more() {}).await?;
        }
    }
    hashing.finish()
}

/// Some shares, and the names of their pieces so far. Two threads may be at it, of which none waits for the other: what one has begun the
/// other does as well, if it comes to it first.
struct Hashing {
    shares: Vec<(Share, Bytes)>,
    /// Of all pieces: which share they are of, and where in it.
    pieces: Vec<(usize, Range<usize>)>,
    names: Vec<OnceLock<PieceHash>>,
    /// The pieces before this one are named.
    named: AtomicUsize,
}

impl Hashing {
    /// Has all the memory that it takes: a thread that is held up asks for none, which others might wait for.
    fn new(pieces: &StatePieces, shares: Vec<(Share, Bytes)>) -> Self {
        let of_share = |(number, (share, _)): (usize, &(Share, Bytes))| {
            let pieces: Vec<Range<usize>> = pieces.pieces_in(*share).collect();
            pieces.into_iter().map(move |piece| (number, piece))
        };
        let pieces: Vec<(usize, Range<usize>)> = shares.iter().enumerate().flat_map(of_share).collect();
        Self {
            names: pieces.iter().map(|_| OnceLock::new()).collect(),
            named: AtomicUsize::new(0),
            pieces,
            shares,
        }
    }

    /// Hashes the next piece. Whether there was one.
    fn one_more(&self) -> bool {
        let next = self.named.load(Ordering::Acquire);
        let Some((number, range)) = self.pieces.get(next) else {
            return false;
        };
        let bytes = self.shares.get(*number).and_then(|(_, bytes)| bytes.get(range.clone()));
        // The thread that was there first has set the same.
        let _ = self.names[next].set(PieceHash::of(bytes.unwrap_or_default()));
        self.named.fetch_max(next + 1, Ordering::AcqRel);
        true
    }

    /// Gives a sign if more pieces are named than were `told` of.
    fn tell_of_more_than(&self, told: &mut usize, sign: impl Fn()) {
        let named = self.named.load(Ordering::Acquire);
        if named > std::mem::replace(told, named) {
            sign();
        }
    }

    /// The shares; none if some piece has no name yet.
    fn finish(&self) -> Option<Vec<HeldShare>> {
        let name = |name: &OnceLock<PieceHash>| name.get().copied();
        let names: Vec<PieceHash> = self.names.iter().map(name).collect::<Option<_>>()?;
        let held = |(number, (share, bytes)): (usize, &(Share, Bytes))| {
            let own = self.pieces.iter().zip(&names).filter(|((of, _), _)| *of == number);
            HeldShare::named(*share, bytes.clone(), own.map(|(_, name)| *name).collect())
        };
        Some(self.shares.iter().enumerate().map(held).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn copies(pieces: &StatePieces) -> Vec<(Share, Bytes)> {
        let state = Bytes::from_static(b"a state of 18 byte");
        let shares = [Share { index: 1, of: 2 }, Share { index: 0, of: 2 }];
        shares.map(|share| (share, state.slice(pieces.bytes_of(share)))).to_vec()
    }

    fn assert_hashed(pieces: &StatePieces, held: &[HeldShare]) {
        let copies = copies(pieces);
        assert_eq!(held.len(), copies.len());
        for ((share, bytes), held) in copies.iter().zip(held) {
            assert_eq!((held.share, &held.bytes), (*share, bytes));
            assert_eq!(held.hash, pieces.hash_of(*share, bytes));
            assert_eq!(held.pieces[..], pieces.names_of(*share, bytes));
        }
    }

    #[tokio::test]
    async fn all_copies_are_hashed_also_where_nobody_gives_the_first_thread_time() {
        let pieces = Arc::new(StatePieces::new([3, 4, 5, 6]));
        for patience in [GIVES_WAY, Duration::ZERO] {
            let hashing = Arc::new(Hashing::new(&pieces, copies(&pieces)));
            let held = hashed_within(patience, &Environment::Host, hashing).await;
            assert_hashed(&pieces, &held.expect("this process does not end"));
        }
    }

    #[test]
    fn a_sign_is_given_for_pieces_that_are_named_and_for_nothing_else() {
        let pieces = StatePieces::new([3, 4, 5, 6]);
        let hashing = Hashing::new(&pieces, copies(&pieces));
        let (mut told, signs) = (0, Cell::new(0));
        let mut look = |hashing: &Hashing| {
            hashing.tell_of_more_than(&mut told, || signs.set(signs.get() + 1));
            signs.get()
        };
        assert_eq!(look(&hashing), 0, "nothing is named");
        assert!(hashing.one_more() && hashing.one_more());
        assert_eq!((look(&hashing), look(&hashing)), (1, 1), "it stands still");
        assert!(hashing.one_more());
        assert_eq!(look(&hashing), 2);
    }

    #[test]
    fn hashing_goes_on_where_it_stopped_and_stops_where_nobody_wants_it() {
        let pieces = StatePieces::new([3, 4, 5, 6]);
        for before in 0..=4 {
            let hashing = Arc::new(Hashing::new(&pieces, copies(&pieces)));
            assert!((0..before).all(|_| hashing.one_more()));
            assert_eq!(hashing.finish().is_some(), before == 4);
            let left = (before..4).filter(|_| hashing.one_more()).count();
            assert_eq!((left, hashing.one_more()), (4 - before, false));
            assert_hashed(&pieces, &hashing.finish().unwrap());
            let behind = Arc::downgrade(&hashing);
            drop(hashing);
            assert!(behind.upgrade().is_none());
        }
    }
}
