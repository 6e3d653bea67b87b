//! A share of a state that comes from another worker. Its pieces are hashed beside the network's thread while the next ones come: little is left to hash once
//! the last one is there. At first by threads of low priority, since the other workers of this host train meanwhile.

use std::mem::take;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::future::{BoxFuture, join};
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, share_hash};
use sardana_protocol::words::WorkerId;
use tokio::time::Instant;

use super::Peers;
use super::fetch::{FetchError, ending};
use super::limits::{BATCH_BYTES, GIVES_WAY};
use super::load::Load;

/// A share that comes, with memory of its length. If one worker does not give all of it another is asked, and what came is written over.
pub(super) struct IncomingShare {
    peers: Arc<Peers>,
    share: Share,
    /// What has come and is hashed.
    hashed: Hashed,
    /// What is being hashed.
    hashing: Option<BoxFuture<'static, Option<Hashed>>>,
    /// The beginning of a piece that has not come as a whole.
    begun: BytesMut,
    /// What comes now.
    coming: BytesMut,
    /// What is yet to come.
    rest: BytesMut,
}

/// Consecutive pieces with their names.
#[derive(Default)]
struct Hashed {
    names: Vec<PieceHash>,
    bytes: BytesMut,
}

impl Hashed {
    /// The pieces that have these lengths. `moved` is told of each.
    fn of(lengths: &[usize], bytes: BytesMut, mut moved: impl FnMut(usize)) -> Self {
        let mut rest = &bytes[..];
        let name = |&length: &usize| {
            let (piece, after) = rest.split_at(length);
            rest = after;
            let name = PieceHash::of(piece);
            moved(length);
            name
        };
        let names = lengths.iter().map(name).collect();
        Self { names, bytes }
    }

    fn append(&mut self, next: Self) {
        self.names.extend(next.names);
        self.bytes.unsplit(next.bytes);
    }
}

impl IncomingShare {
    /// A share of the state of these peers, and where it is to come: memory as long as it.
    pub(super) fn new(peers: &Arc<Peers>, share: Share, memory: BytesMut) -> Self {
        Self {
            peers: Arc::clone(peers),
            share,
            hashed: Hashed::default(),
            hashing: None,
            begun: BytesMut::new(),
            coming: BytesMut::new(),
            rest: memory,
        }
    }

    pub(super) const fn share(&self) -> Share {
        self.share
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> usize {
        self.peers.pieces.bytes_of(self.share).len()
    }

    /// Receives all of it from `donor`, and returns its hash. It may be given up at any time, and begun again.
    pub(super) async fn receive(&mut self, donor: WorkerId, load: &mut Load) -> Result<StateHash, FetchError> {
        self.begin().await.ok_or_else(|| ending(donor))?;
        let pieces = self.peers.pieces.pieces_in(self.share);
        let lengths: Vec<usize> = pieces.map(|piece| piece.len()).collect();
        let mut lengths = &lengths[..];
        let began = Instant::now();
        while !self.rest.is_empty() {
            self.coming = self.rest.split_to(self.rest.len().min(BATCH_BYTES));
            // Asked in this order: the batch before is being hashed when this one is waited for.
            let (hashed, received) = join(
                settle(&mut self.hashing, &mut self.hashed),
                self.peers.receive(donor, load, &mut self.coming),
            )
            .await;
            hashed.ok_or_else(|| ending(donor))?;
            received?;
            self.begun.unsplit(take(&mut self.coming));
            let (whole, bytes) = whole_pieces(lengths, self.begun.len());
            let (now, later) = lengths.split_at(whole);
            lengths = later;
            let (peers, now, bytes) = (Arc::clone(&self.peers), now.to_vec(), self.begun.split_to(bytes));
            let gives_way = began.elapsed() < GIVES_WAY;
            self.hashing = Some(Box::pin(async move {
                let keeper = Arc::clone(&peers.keeper);
                let hash = move || Hashed::of(&now, bytes, |bytes| keeper.moved(bytes));
                if gives_way {
                    peers.environment.low_priority(hash).await
                } else {
                    peers.environment.blocking(hash).await
                }
            }));
        }
        settle(&mut self.hashing, &mut self.hashed)
            .await
            .ok_or_else(|| ending(donor))?;
        Ok(share_hash(self.length() as u64, &self.hashed.names))
    }

    /// Puts all of the memory together again. None if this process ends.
    async fn begin(&mut self) -> Option<()> {
        settle(&mut self.hashing, &mut self.hashed).await?;
        let Hashed { mut bytes, names: _ } = take(&mut self.hashed);
        bytes.unsplit(take(&mut self.begun));
        bytes.unsplit(take(&mut self.coming));
        bytes.unsplit(take(&mut self.rest));
        self.rest = bytes;
        Some(())
    }

    /// The share, of which all has come.
    pub(super) fn into_bytes(self) -> BytesMut {
        self.hashed.bytes
    }
}

/// Waits for what is being hashed, if something is. None if this process ends.
async fn settle(hashing: &mut Option<BoxFuture<'static, Option<Hashed>>>, hashed: &mut Hashed) -> Option<()> {
    if let Some(batch) = hashing {
        let batch = batch.await;
        *hashing = None;
        hashed.append(batch?);
    }
    Some(())
}

/// How many of the pieces that have these lengths are whole in so many bytes, and the bytes of those.
fn whole_pieces(lengths: &[usize], bytes: usize) -> (usize, usize) {
    let (mut whole, mut of_whole) = (0, 0);
    for length in lengths {
        if of_whole + length > bytes {
            break;
        }
        whole += 1;
        of_whole += length;
    }
    (whole, of_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_hashed_once_all_of_them_has_come() {
        let lengths = [3, 4, 5];
        let whole = |bytes| whole_pieces(&lengths, bytes);
        assert_eq!(
            [0, 2, 3, 6, 7, 11, 12].map(whole),
            [(0, 0), (0, 0), (1, 3), (1, 3), (2, 7), (2, 7), (3, 12)]
        );
    }
}
