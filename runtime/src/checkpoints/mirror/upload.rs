//! A checkpoint gets into a mirror: what is missing there only, the manifest last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_storage::manifest;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::directory::Checkpoints;
use super::super::layout::Layout;
use super::Mirror;
use super::error::{ObjectError, UploadError};
use super::lanes::{blocking, several};
use super::limits::MOST_PACKS;
use super::marks::Work;
use super::objects::{PACKS, Pack, description_name, manifest_object, pack_object, packs};

/// Where the pieces of a checkpoint that is copied to a mirror come from.
pub trait Pieces: Clone + Send + Sync + 'static {
    /// The bytes of these pieces, in their order, each compared with its hash; or why they cannot be had.
    fn read(&self, pieces: Vec<PieceHash>) -> impl Future<Output = Result<Vec<Vec<u8>>, String>> + Send;
}

/// From the directories that are open here.
impl Pieces for Arc<Checkpoints> {
    async fn read(&self, pieces: Vec<PieceHash>) -> Result<Vec<Vec<u8>>, String> {
        let here = Self::clone(self);
        let read = blocking(move || pieces.into_iter().map(|piece| here.fetch(piece)).collect::<Result<_, _>>());
        read.await.map_err(|error| error.to_string())
    }
}

/// What is believed of objects that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// That an object of the right name and length is the right one.
    Lengths,
    /// Nothing: each is read and compared, and written anew if it is damaged. So this also heals.
    Nothing,
}

/// How much was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Objects that were written.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that were there.
    pub kept: u64,
}

/// The objects of pieces that are there, and how long they are.
pub(super) type Inventory = BTreeMap<String, u64>;

impl Mirror {
    /// Copies the checkpoint `key`, whose manifest is these `bytes`, with pieces from `source`. It is there as a whole when this returns.
    /// Calls `progress` with the bytes of the pieces of each object.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub async fn upload<P: Pieces>(
        &self,
        key: ManifestKey,
        bytes: &[u8],
        source: &P,
        belief: Belief,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Sent, UploadError> {
        let manifest = manifest::decode_as(bytes, key)?;
        if let Some(mark) = self.mark_uploading().await? {
            self.unmark(Work::Uploading).await;
            return Err(UploadError::Pruned(mark));
        }
        let uploading = self.upload_marked(key, manifest, bytes, source, belief, progress);
        let (made, _) = watch::channel(Instant::now());
        let uploaded = tokio::select! {
            biased;
            uploaded = uploading => uploaded,
            error = self.stay_marked(Work::Uploading, &made) => Err(error.into()),
        };
        self.unmark(Work::Uploading).await;
        uploaded
    }

    async fn upload_marked<P: Pieces>(
        &self,
        key: ManifestKey,
        manifest: Manifest,
        bytes: &[u8],
        source: &P,
        belief: Belief,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Sent, UploadError> {
        let described = source.read(manifest.description.clone()).await.map_err(UploadError::Source)?;
        let specs = manifest::decode_description(&described.concat()).map_err(UploadError::Manifest)?;
        let layout = Layout::new(&manifest, specs)?;
        let there = self.inventory().await?;
        let mut sent = Sent::default();
        let sending = |pack: Pack| {
            let is_there = there.get(&pack.name) == Some(&(pack.bytes as u64));
            let (mirror, source) = (self.clone(), source.clone());
            async move {
                let kept = is_there && (belief == Belief::Lengths || mirror.look_into(&pack).await == Ok(Vec::new()));
                if !kept {
                    send(&mirror, &pack, &source).await?;
                }
                Ok::<_, UploadError>((kept, pack.bytes as u64))
            }
        };
        several(self.lanes, packs(&manifest, &layout), sending, |(kept, bytes)| {
            sent.kept += u64::from(kept);
            sent.objects += u64::from(!kept);
            sent.bytes += if kept { 0 } else { bytes };
            progress(bytes);
        })
        .await?;
        let mut seen = BTreeSet::new();
        for (&piece, bytes) in manifest.description.iter().zip(described) {
            let name = description_name(piece);
            let is_there = there.get(&name) == Some(&(bytes.len() as u64));
            let compared = is_there && belief == Belief::Nothing;
            let kept = if compared {
                let found = self.bucket.get(&pack_object(&name), bytes.len()).await;
                found.is_ok_and(|found| found == bytes)
            } else {
                is_there
            };
            if !seen.insert(piece) || kept {
                sent.kept += 1;
                continue;
            }
            sent.objects += 1;
            sent.bytes += bytes.len() as u64;
            self.bucket.put(&pack_object(&name), bytes.into()).await?;
        }
        self.put_manifest(key, bytes).await?;
        Ok(sent)
    }

    /// The objects of pieces that are there.
    pub(super) async fn inventory(&self) -> Result<Inventory, ObjectError> {
        let listed = self.bucket.list(PACKS, MOST_PACKS).await?;
        Ok(listed.into_iter().map(|found| (found.name, found.bytes)).collect())
    }

    /// From now on the checkpoint is there.
    async fn put_manifest(&self, key: ManifestKey, bytes: &[u8]) -> Result<(), ObjectError> {
        let object = manifest_object(key);
        let bytes = Bytes::copy_from_slice(bytes);
        if self.bucket.put_new(&object, bytes.clone()).await? {
            return Ok(());
        }
        // It is called by its hash: what says something else is damaged.
        let there = self.bucket.get(&object, bytes.len()).await;
        if there.is_ok_and(|there| there == bytes) {
            Ok(())
        } else {
            self.bucket.put(&object, bytes).await
        }
    }
}

/// Reads the pieces of a pack, and puts it.
async fn send<P: Pieces>(mirror: &Mirror, pack: &Pack, source: &P) -> Result<(), UploadError> {
    let wanted = pack.pieces.iter().map(|(piece, _)| *piece).collect();
    let read = source.read(wanted).await.map_err(UploadError::Source)?;
    let mut bytes = BytesMut::with_capacity(pack.bytes);
    for ((piece, length), found) in pack.pieces.iter().zip(&read) {
        if found.len() != *length {
            let found = found.len();
            let words = format!(
                "expected {length} bytes of piece {piece}, as its tensor has, found {found}; use another checkpoint"
            );
            return Err(UploadError::Source(words));
        }
        bytes.extend_from_slice(found);
    }
    drop(read);
    Ok(mirror.bucket.put(&pack_object(&pack.name), bytes.freeze()).await?)
}
