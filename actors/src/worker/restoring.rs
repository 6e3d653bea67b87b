//! Loads the checkpoint that a generation starts from: this worker's share from depots, the rest from the other members, or from the
//! depots if a member does not give it. Takes no decision.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_protocol::checkpoint::{Manifest, PieceHash};
use sardana_protocol::messages::Restore;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces, share_hash};
use sardana_protocol::words::{Generation, Rank};
use tokio::task::JoinSet;

use super::desk::{Data, HeldShare};
use crate::depot::Depots;
use crate::fault::{self, Point};
use crate::peers::Peers;

/// Who reads, and what this worker's own state looks like.
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
    manifest: Manifest,
}

impl Loading {
    /// The pieces of a share, by name.
    fn pieces_of(&self, pieces: &StatePieces, share: Share) -> Vec<PieceHash> {
        self.manifest.pieces[pieces.pieces_of(share)].to_vec()
    }

    /// What a share's hash should be.
    fn hash_of(&self, pieces: &StatePieces, share: Share) -> StateHash {
        let bytes = pieces.bytes_of(share).len() as u64;
        share_hash(bytes, &self.pieces_of(pieces, share))
    }
}

impl Reader {
    /// The whole state, with the hash that each of its shares should have once it is loaded.
    pub(super) async fn load(self, generation: Generation, rank: Rank, restore: Restore) -> Result<Data, String> {
        self.peers
            .will_lend(generation, restore.members.iter().map(|member| member.worker));
        let manifest = self.manifest(&restore).await?;
        let of = u32::try_from(restore.members.len()).unwrap_or(u32::MAX).max(1);
        let own = Share { index: rank.get(), of };
        let loading = Arc::new(Loading {
            generation,
            restore,
            manifest,
        });
        let mut rest = BytesMut::zeroed(self.pieces.bytes());
        let mut parts: Vec<BytesMut> = (0..of)
            .map(|index| rest.split_to(self.pieces.bytes_of(Share { index, of }).len()))
            .collect();
        let mine = std::mem::take(&mut parts[own.index as usize]);
        let mine = self.read(&loading, own, mine).await?;
        fault::reached(Point::RestoredShare, loading.restore.key.step);
        self.peers.lend(
            generation,
            HeldShare {
                share: own,
                bytes: Bytes::copy_from_slice(&mine),
                hash: loading.hash_of(&self.pieces, own),
            },
        );
        let mut others: JoinSet<Result<(u32, BytesMut), String>> = JoinSet::new();
        for (index, part) in (0..of).zip(std::mem::take(&mut parts)) {
            if index != own.index {
                let (reader, loading) = (self.clone(), Arc::clone(&loading));
                others.spawn(async move { Ok((index, reader.borrow(&loading, Share { index, of }, part).await?)) });
            }
        }
        let mut parts = vec![BytesMut::new(); of as usize];
        parts[own.index as usize] = mine;
        while let Some(borrowed) = others.join_next().await {
            let (index, part): (u32, BytesMut) = match borrowed {
                Ok(borrowed) => borrowed?,
                Err(error) => return Err(format!("reading a share failed: {error}; report it")),
            };
            parts[index as usize] = part;
        }
        let mut state = BytesMut::new();
        parts.into_iter().for_each(|part| state.unsplit(part));
        let shares = (0..of)
            .map(|index| loading.hash_of(&self.pieces, Share { index, of }))
            .collect();
        Ok(Data::State {
            bytes: state.freeze(),
            shares,
        })
    }

    /// The manifest, from any depot that has it. It must be of a state like this worker's.
    async fn manifest(&self, restore: &Restore) -> Result<Manifest, String> {
        let mut tried = Vec::new();
        for &depot in &restore.depots {
            match self.depots.manifest(depot, restore.key).await {
                Ok(manifest) => return self.check(manifest),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(format!(
            "no checkpoint actor gave the manifest {}: {}",
            restore.key,
            tried.join("; ")
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

    /// Reads a share from depots.
    async fn read(&self, loading: &Loading, share: Share, mut part: BytesMut) -> Result<BytesMut, String> {
        let names = loading.pieces_of(&self.pieces, share);
        let ranges: Vec<_> = self.pieces.pieces_in(share).collect();
        let mut wrong = None;
        let each = |index: usize, bytes: &[u8]| match ranges.get(index).and_then(|range| part.get_mut(range.clone())) {
            Some(place) if place.len() == bytes.len() => place.copy_from_slice(bytes),
            Some(_) | None => wrong = Some(index),
        };
        let read = self.depots.read_pieces(&loading.restore.depots, &names, each).await;
        read.map_err(|error| error.to_string())?;
        match wrong {
            None => Ok(part),
            Some(index) => Err(format!(
                "piece {index} of {share} has another length than this model's state has there; resume with the model that it was made by"
            )),
        }
    }

    /// Gets a share from the member that reads it; from depots, if that does not give it.
    async fn borrow(&self, loading: &Loading, share: Share, mut part: BytesMut) -> Result<BytesMut, String> {
        let member = loading.restore.members[share.index as usize];
        let (generation, step) = (loading.generation, loading.restore.key.step);
        let borrowed = self.peers.borrow(member, (generation, step), share, &mut part).await;
        match borrowed {
            Ok(_) => {
                let (pieces, expected) = (Arc::clone(&self.pieces), loading.hash_of(&self.pieces, share));
                let hashed = self.peers.ground().beside(move || (pieces.hash_of(share, &part), part)).await;
                let Some((found, hashed)) = hashed else {
                    return Err("this worker is ending".to_owned());
                };
                part = hashed;
                if found == expected {
                    return Ok(part);
                }
                tracing::warn!(%share, ?found, ?expected, worker = %member.worker, "a share of a checkpoint came damaged");
            }
            Err(error) => tracing::info!(%share, %error, "a member did not give its share of the checkpoint"),
        }
        self.read(loading, share, part).await
    }
}
