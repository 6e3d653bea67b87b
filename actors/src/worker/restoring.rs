//! Loads the checkpoint that a generation starts from: from the disk of this host, if all pieces are on it; otherwise this worker's share
//! from depots, if it reads one, and the rest from the other readers, or from the depots if a reader does not give it. Takes no decision.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_protocol::checkpoint::{Manifest, PieceHash};
use sardana_protocol::messages::Restore;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces, share_hash};
use sardana_protocol::words::{Generation, Rank, WorkerId, few};
use tokio::task::JoinSet;

use super::driver::SavedState;
use crate::depot::{Depots, is_here};
use crate::fault::{self, Point};
use crate::peers::{FetchError, Peers, PutError, Reading};

/// Pieces that are compared with their hashes at once, while the next ones come.
const BATCH_PIECES: usize = 8;

/// What reads a checkpoint, and what this worker's own state looks like.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) depots: Arc<Depots>,
    pub(super) peers: Arc<Peers>,
    pub(super) pieces: Arc<StatePieces>,
    pub(super) description: Arc<[(PieceHash, Bytes)]>,
}

/// A checkpoint that is being loaded.
struct Loading {
    generation: Generation,
    restore: Restore,
    manifest: Arc<Manifest>,
}

impl Loading {
    /// The pieces of a share, by name.
    fn pieces_of(&self, pieces: &StatePieces, share: Share) -> Vec<PieceHash> {
        self.manifest.pieces[pieces.pieces_of(share)].to_vec()
    }

    /// A share that is to be read into `bytes`.
    fn reading(&self, pieces: &StatePieces, share: Share, bytes: BytesMut) -> Reading {
        let (manifest, hash) = (Arc::clone(&self.manifest), self.hash_of(pieces, share));
        Reading::new(manifest, pieces, share, hash, bytes)
    }

    /// What a share's hash should be.
    fn hash_of(&self, pieces: &StatePieces, share: Share) -> StateHash {
        let bytes = pieces.bytes_of(share).len() as u64;
        share_hash(bytes, &self.pieces_of(pieces, share))
    }
}

impl Reader {
    /// The whole state, with the hash that each of its shares should have once it is loaded.
    pub(super) async fn load(self, generation: Generation, rank: Rank, restore: Restore) -> Result<SavedState, String> {
        self.peers
            .will_lend(generation, restore.members.iter().map(|peer| peer.member.worker));
        let manifest = Arc::new(self.manifest(generation, rank, &restore).await?);
        let loading = Arc::new(Loading {
            generation,
            restore,
            manifest,
        });
        let own = loading
            .restore
            .shares()
            .find_map(|(share, reader)| (reader == rank).then_some(share));
        let state = match self.read_from_this_host(&loading, own).await {
            Some(state) => state,
            None => self.read_from_all(&loading, rank, own).await?,
        };
        let bytes = self.peers.state_in(state);
        if let Some(own) = own {
            let whole = bytes.slice(self.pieces.bytes_of(own));
            self.peers.lend_whole(generation, whole);
        }
        let shares = loading.restore.shares();
        let shares = shares.map(|(share, _)| loading.hash_of(&self.pieces, share)).collect();
        Ok(SavedState {
            bytes,
            shares,
            // Pieces were, some of them elsewhere.
            compared_here: false,
        })
    }

    /// The whole state, if all members of the group are on this host, and depots on it keep all: from their disk, into memory that becomes the state.
    async fn read_from_this_host(&self, loading: &Loading, own: Option<Share>) -> Option<BytesMut> {
        // Members elsewhere are given each piece as it comes.
        if !loading.restore.members.iter().all(|peer| is_here(peer.member.address)) {
            return None;
        }
        let names = &loading.manifest.pieces;
        let nearby = self.depots.nearby(&loading.restore.depots, names).await;
        if nearby.count() < names.len() {
            return None;
        }
        let ranges: Vec<Range<usize>> = self.pieces.pieces_in(Share::WHOLE).collect();
        let pieces = names.iter().copied().zip(ranges.iter().cloned()).collect();
        if let Some(own) = own {
            let reading = loading.reading(&self.pieces, own, BytesMut::new());
            self.peers.begin_lending(loading.generation, reading);
        }
        let moved = |bytes| self.peers.moved(bytes);
        let (mut room, lacking) = self.depots.read_into(nearby, pieces, self.peers.state_room(), moved).await?;
        if lacking.len() > BATCH_PIECES {
            // The files are not there for this process: all share the work then.
            return None;
        }
        let rest: Vec<PieceHash> = lacking.iter().map(|&index| names[index]).collect();
        let mut fit = true;
        let each = |number: usize, bytes: &[u8]| {
            let place = &mut room[ranges[lacking[number]].clone()];
            fit &= place.len() == bytes.len();
            if place.len() == bytes.len() {
                place.copy_from_slice(bytes);
            }
        };
        // What is damaged there is elsewhere as well, or was moved.
        self.depots.read_pieces(&loading.restore.depots, &rest, each).await.ok()?;
        fault::reached(Point::RestoredShare, loading.restore.key.step);
        fit.then_some(room)
    }

    /// The whole state: what this worker reads from depots, and what the other readers do.
    async fn read_from_all(&self, loading: &Arc<Loading>, rank: Rank, own: Option<Share>) -> Result<BytesMut, String> {
        let mut rest = self.peers.state_room();
        let mut others: JoinSet<Result<(u32, BytesMut), String>> = JoinSet::new();
        for (share, reader) in loading.restore.shares() {
            let part = rest.split_to(self.pieces.bytes_of(share).len());
            if reader == rank {
                let reading = loading.reading(&self.pieces, share, part);
                self.peers.begin_lending(loading.generation, reading);
            } else {
                let (this, loading) = (self.clone(), Arc::clone(loading));
                others.spawn(async move { Ok((share.index, this.borrow(&loading, share, reader, part).await?)) });
            }
        }
        if let Some(own) = own {
            self.read_own(loading, own).await?;
            fault::reached(Point::RestoredShare, loading.restore.key.step);
        }
        let mut parts = vec![BytesMut::new(); loading.restore.readers.len()];
        while let Some(borrowed) = others.join_next().await {
            let (index, part): (u32, BytesMut) = match borrowed {
                Ok(borrowed) => borrowed?,
                Err(error) => return Err(format!("reading a share failed: {error}; report it")),
            };
            parts[index as usize] = part;
        }
        if let Some(own) = own {
            let generation = loading.generation;
            let mine = self.peers.take_lent(generation);
            parts[own.index as usize] = mine.ok_or_else(|| PutError::Over { generation }.to_string())?;
        }
        let mut state = BytesMut::new();
        parts.into_iter().for_each(|part| state.unsplit(part));
        Ok(state)
    }

    /// The manifest, which must be of a state like this worker's. A reader asks the depots. A worker that is no reader, because it could not
    /// load the checkpoint before, asks the readers first and the depots after them. Readers ask no member, so that no two workers wait for
    /// each other.
    async fn manifest(&self, generation: Generation, rank: Rank, restore: &Restore) -> Result<Manifest, String> {
        let mut tried = Vec::new();
        let reads = restore.readers.contains(&rank);
        for &reader in restore.readers.iter().filter(|_| !reads) {
            let Some(member) = restore.member(reader) else { continue };
            match self.peers.borrow_manifest(member, generation, restore.key).await {
                Ok(manifest) => return self.check(manifest),
                Err(error) => tried.push(error.to_string()),
            }
        }
        for &depot in &restore.depots {
            match self.depots.manifest(depot, restore.key).await {
                Ok(manifest) => return self.check(manifest),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(format!(
            "no member and no checkpoint actor gave the manifest {}: {}",
            restore.key,
            few(&tried, "; ")
        ))
    }

    fn check(&self, manifest: Manifest) -> Result<Manifest, String> {
        let own = self.description.iter().map(|(piece, _)| piece);
        let same = manifest.description.iter().eq(own);
        let (expected, found) = (self.pieces.count(), manifest.pieces.len());
        if same && expected == found && manifest.bytes == self.pieces.bytes() as u64 {
            return Ok(manifest);
        }
        Err(format!(
            "the checkpoint has {} bytes in {found} pieces, this model's state has {} in {expected}, or its tensors are called otherwise; \
             resume with the model that it was made by",
            manifest.bytes,
            self.pieces.bytes()
        ))
    }

    /// Reads this worker's share from depots, and lends each piece as soon as it comes.
    async fn read_own(&self, loading: &Loading, share: Share) -> Result<(), String> {
        let names = loading.pieces_of(&self.pieces, share);
        let mut put = Ok(());
        let each = |index: usize, bytes: &[u8]| {
            self.peers.moved(bytes.len());
            let lent = self.peers.lend(loading.generation, index, bytes);
            put = std::mem::replace(&mut put, Ok(())).and(lent);
        };
        let read = self.depots.read_pieces(&loading.restore.depots, &names, each).await;
        read.map_err(|error| error.to_string())?;
        put.map_err(|error| error.to_string())
    }

    /// Gets a share from the member that reads it, as it comes; what that does not give, from depots.
    async fn borrow(&self, loading: &Loading, share: Share, reader: Rank, mut part: BytesMut) -> Result<BytesMut, String> {
        let member = loading.restore.member(reader);
        let member = member.ok_or_else(|| format!("{share} is to come from {reader}, which is not named"))?;
        let (generation, step) = (loading.generation, loading.restore.key.step);
        let borrowed = self.peers.borrow(member, (generation, step), share, part.len()).await;
        let mut borrowing = borrowed.map_err(|error| not_given(share, &error)).ok();
        let names = loading.pieces_of(&self.pieces, share);
        let pieces: Vec<_> = names.into_iter().zip(self.pieces.pieces_in(share)).collect();
        let mut batches = Vec::new();
        let mut came = None;
        for pieces in pieces.chunks(BATCH_PIECES) {
            let mut next = Batch::split_off(pieces, &mut part);
            // While one batch is compared the next batch comes.
            let (compared, received) = tokio::join!(self.compared(member.worker, came.take()), async {
                match &mut borrowing {
                    Some(borrowing) => borrowing.next(&mut next.bytes).await.map(|()| true),
                    None => Ok(false),
                }
            });
            batches.extend(compared?);
            next.good = received.unwrap_or_else(|error| {
                not_given(share, &error);
                borrowing = None;
                false
            });
            came = Some(next);
        }
        batches.extend(self.compared(member.worker, came).await?);
        self.read_rest(loading, share, &mut batches).await?;
        Ok(Batch::joined(batches))
    }

    /// The same batch, which is not good any more if a byte of it is wrong.
    async fn compared(&self, donor: WorkerId, batch: Option<Batch>) -> Result<Option<Batch>, String> {
        let Some(mut batch) = batch else { return Ok(None) };
        if !batch.good {
            return Ok(Some(batch));
        }
        let compare = move || {
            batch.good = batch.is_right();
            if !batch.good {
                tracing::warn!(worker = %donor, "a part of a checkpoint came damaged");
            }
            batch
        };
        let compared = self.peers.environment().blocking(compare).await;
        compared.map(Some).ok_or_else(|| "this worker is ending".to_owned())
    }

    /// Reads what is not good of a share from depots.
    async fn read_rest(&self, loading: &Loading, share: Share, batches: &mut [Batch]) -> Result<(), String> {
        let mut names = Vec::new();
        let mut places = Vec::new();
        for (number, batch) in batches.iter().enumerate().filter(|(_, batch)| !batch.good) {
            for (index, (piece, _)) in batch.pieces.iter().enumerate() {
                names.push(*piece);
                places.push((number, index));
            }
        }
        let mut wrong = None;
        let each = |index: usize, bytes: &[u8]| {
            self.peers.moved(bytes.len());
            let (number, index) = places[index];
            let Batch { pieces, bytes: all, .. } = &mut batches[number];
            let place = &mut all[pieces[index].1.clone()];
            let expected = place.len();
            if expected == bytes.len() {
                place.copy_from_slice(bytes);
            } else {
                let (index, found) = (number * BATCH_PIECES + index, bytes.len());
                wrong = Some(PutError::Length {
                    share,
                    index,
                    expected,
                    found,
                });
            }
        };
        let read = self.depots.read_pieces(&loading.restore.depots, &names, each).await;
        read.map_err(|error| error.to_string())?;
        wrong.map_or(Ok(()), |wrong| Err(wrong.to_string()))
    }
}

/// Some pieces of a share that another member reads.
struct Batch {
    /// Their names, and where in `bytes` they lie.
    pieces: Vec<(PieceHash, Range<usize>)>,
    bytes: BytesMut,
    /// Whether they are there, and no byte is known to be wrong.
    good: bool,
}

impl Batch {
    /// Takes these pieces, which are the first of `rest`, off it. Their ranges are those in the share.
    fn split_off(pieces: &[(PieceHash, Range<usize>)], rest: &mut BytesMut) -> Self {
        let start = pieces.first().map_or(0, |(_, range)| range.start);
        let end = pieces.last().map_or(0, |(_, range)| range.end);
        let here = |(piece, range): &(PieceHash, Range<usize>)| (*piece, range.start - start..range.end - start);
        Self {
            pieces: pieces.iter().map(here).collect(),
            bytes: rest.split_to(end - start),
            good: false,
        }
    }

    /// The bytes of all of them, in their order.
    fn joined(batches: Vec<Self>) -> BytesMut {
        let mut whole = BytesMut::new();
        batches.into_iter().for_each(|batch| whole.unsplit(batch.bytes));
        whole
    }

    /// Takes a while: not for a thread that others wait for.
    fn is_right(&self) -> bool {
        let right = |(piece, range): &(PieceHash, Range<usize>)| PieceHash::of(&self.bytes[range.clone()]) == *piece;
        self.pieces.iter().all(right)
    }
}

fn not_given(share: Share, error: &FetchError) {
    tracing::info!(%share, %error, "a member did not give its share of the checkpoint");
}
