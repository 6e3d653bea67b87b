//! A checkpoint comes from a mirror: each piece is compared with its hash before it is used.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_storage::manifest::{self, MANIFEST_BYTES};
use sardana_storage::store::{self, PinId, Store};

use super::super::copy::{Copied, all_pieces};
use super::super::layout::{Layout, LayoutError};
use super::Mirror;
use super::error::{FetchError, ObjectError};
use super::lanes::{blocking, several};
use super::objects::{Pack, description_name, manifest_object, pack_object, packs};

/// All that is said of a checkpoint but its pieces.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    pub(super) manifest: Manifest,
    /// The manifest as bytes.
    pub(super) bytes: Bytes,
    pub(super) described: Vec<Bytes>,
    pub(super) layout: Layout,
    pub(super) packs: Vec<Pack>,
}

/// Parts of descriptions that were read. Most checkpoints of a mirror have the same.
pub(super) type Described = BTreeMap<PieceHash, Bytes>;

impl Outline {
    /// Where a piece is, in words.
    pub(super) fn place_of(&self, piece: PieceHash) -> String {
        let number = self.manifest.pieces.iter().position(|other| *other == piece);
        let place = number.and_then(|number| self.layout.place_of(number));
        place.unwrap_or_else(|| "the description of the tensors".to_owned())
    }

    /// The names of all its objects but the manifest, and how long each should be.
    pub(super) fn objects(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let described = self.manifest.description.iter().zip(&self.described);
        let described = described.map(|(&piece, bytes)| (description_name(piece), bytes.len() as u64));
        self.packs
            .iter()
            .map(|pack| (pack.name.clone(), pack.bytes as u64))
            .chain(described)
    }
}

impl Mirror {
    /// What the mirror says of a checkpoint, and whether that makes sense. No piece of its state is read.
    pub(super) async fn outline(&self, key: ManifestKey, described: &mut Described) -> Result<Outline, FetchError> {
        let object = manifest_object(key);
        let bytes = self.bucket.get(&object, MANIFEST_BYTES).await?;
        let object = self.bucket.name_of(&object);
        let decoding = bytes.clone();
        let decoded = blocking(move || manifest::decode_as(&decoding, key)).await;
        let manifest = decoded.map_err(|source| FetchError::Manifest { object, source })?;
        let mut parts = Vec::new();
        // The codec of manifests bounds how many there are.
        for &piece in &manifest.description {
            if let Some(part) = described.get(&piece) {
                parts.push(part.clone());
                continue;
            }
            let object = pack_object(&description_name(piece));
            let part = self.bucket.get(&object, PIECE_BYTES).await?;
            if PieceHash::of(&part) != piece {
                let (object, place) = (self.bucket.name_of(&object), "the description of its tensors".to_owned());
                return Err(FetchError::Damaged { object, place });
            }
            described.insert(piece, part.clone());
            parts.push(part);
        }
        let specs = manifest::decode_description(&parts.concat()).map_err(LayoutError::from)?;
        let layout = Layout::new(&manifest, specs)?;
        Ok(Outline {
            packs: packs(&manifest, &layout),
            manifest,
            bytes,
            described: parts,
            layout,
        })
    }

    /// The bytes of a pack, of which nothing but the length is known to be right.
    pub(super) async fn pack(&self, pack: &Pack) -> Result<Bytes, ObjectError> {
        let object = pack_object(&pack.name);
        let bytes = self.bucket.get(&object, pack.bytes).await?;
        if bytes.len() == pack.bytes {
            return Ok(bytes);
        }
        Err(ObjectError::Length {
            object: self.bucket.name_of(&object),
            expected: pack.bytes as u64,
            most: false,
            found: bytes.len() as u64,
        })
    }

    /// Copies a checkpoint into a directory's store: it is there, whole and durable, when this returns. What is there already is read
    /// and compared, and not fetched. Calls `progress` with the bytes of each piece.
    ///
    /// # Errors
    /// See [`FetchError`]. Pieces that were brought stay until the next collection, so that trying again has less to do.
    pub async fn fetch(&self, key: ManifestKey, to: &Store, progress: impl FnMut(u64) + Send) -> Result<Copied, FetchError> {
        let outline = Arc::new(self.outline(key, &mut Described::new()).await?);
        let pin = PinId::new(0);
        let fetched = self.fetch_pinned(&outline, to, pin, progress).await;
        to.unpin(pin);
        fetched
    }

    async fn fetch_pinned(
        &self,
        outline: &Arc<Outline>,
        to: &Store,
        pin: PinId,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Copied, FetchError> {
        let mut copied = Copied::default();
        let bringing = |number| bring(self.clone(), Arc::clone(outline), number, to.clone(), pin);
        several(self.lanes, 0..outline.packs.len(), bringing, |some| {
            copied.pieces += some.pieces;
            copied.bytes += some.bytes;
            copied.kept += some.kept;
            copied.healed += some.healed;
            progress(some.bytes);
        })
        .await?;
        let (outline, to) = (Arc::clone(outline), to.clone());
        let committing = blocking(move || {
            for part in &outline.described {
                to.put(pin, &[part])?;
            }
            to.sync()?;
            let manifest = &outline.manifest;
            to.commit(&store::Manifest::new(
                manifest.step(),
                all_pieces(manifest),
                outline.bytes.to_vec(),
            ))?;
            Ok::<_, FetchError>(())
        });
        committing.await?;
        Ok(copied)
    }
}

/// Brings what is missing of one pack.
async fn bring(mirror: Mirror, outline: Arc<Outline>, number: usize, to: Store, pin: PinId) -> Result<Copied, FetchError> {
    let Some(pack) = outline.packs.get(number).cloned() else {
        return Ok(Copied::default());
    };
    let (store, looked) = (to.clone(), pack.clone());
    let missing = blocking(move || missing(&store, pin, &looked)).await;
    let mut copied = Copied {
        kept: (pack.pieces.len() - missing.len()) as u64,
        ..Copied::default()
    };
    if missing.is_empty() {
        return Ok(copied);
    }
    let bytes = mirror.pack(&pack).await?;
    let object = mirror.bucket.name_of(&pack_object(&pack.name));
    let putting = blocking(move || {
        if let Some(bad) = missing
            .iter()
            .find(|one| PieceHash::of(&bytes[one.range.clone()]) != one.piece)
        {
            let place = outline.place_of(bad.piece);
            return Err(FetchError::Damaged { object, place });
        }
        let parts: Vec<&[u8]> = missing.iter().map(|one| &bytes[one.range.clone()]).collect();
        to.put(pin, &parts)?;
        copied.pieces = missing.len() as u64;
        copied.bytes = parts.iter().map(|part| part.len() as u64).sum();
        copied.healed = missing.iter().map(|one| u64::from(one.was_there)).sum();
        Ok(copied)
    });
    putting.await
}

/// A piece that is to be brought.
struct Missing {
    piece: PieceHash,
    range: Range<usize>,
    /// It is there, and damaged.
    was_there: bool,
}

/// What is missing here of a pack. The rest is pinned.
fn missing(store: &Store, pin: PinId, pack: &Pack) -> Vec<Missing> {
    let mut missing = Vec::new();
    for (piece, range) in pack.ranges() {
        // A look that fails is remembered, so that the piece is written anew when it is put.
        let was_there = store.length_of(piece).is_some();
        if store.read(piece).is_err() || !store.pin(pin, &[piece]).is_empty() {
            missing.push(Missing { piece, range, was_there });
        }
    }
    missing
}
