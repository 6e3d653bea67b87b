//! A checkpoint gets into another directory: what is missing there only, each piece compared with its hash, the manifest last.

use std::collections::BTreeSet;

use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_storage::manifest::{self, ManifestError};
use sardana_storage::store::{self, CommitError, PinId, WriteError};

use super::directory::{Checkpoints, Directory, UnreadManifest};
use super::layout::{Layout, LayoutError};

/// Pieces that are handed to the store at once.
pub(super) const PUT_PIECES: usize = 8;

/// Pieces, or differences, that an error names; of more it says how many there are.
pub(super) const NAMED: usize = 8;

/// Why a checkpoint was not copied. It is not in the other directory then; pieces that are stay until the next collection there, so that
/// trying again has less to do.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Its manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] UnreadManifest),
    /// Its description contradicts its manifest, or cannot be had.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Some of its pieces cannot be had.
    #[error(
        "{count} of its pieces are damaged or missing: {}{}", .lacking.join("; "), if *.count > .lacking.len() { "; …" } else { "" }
    )]
    Lacking {
        /// What is wrong with the first of them, and where.
        lacking: Vec<String>,
        /// How many pieces cannot be had.
        count: usize,
    },
    /// The manifest would be too long.
    #[error(transparent)]
    Encode(#[from] ManifestError),
    /// The pieces could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The manifest could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// How much was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Pieces that were written.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces that were there, and are whole.
    pub kept: u64,
    /// Written pieces that were there, and damaged.
    pub healed: u64,
}

/// All pieces of a manifest, each once, as a store that has all of them keeps it.
pub(super) fn all_pieces(manifest: &Manifest) -> Vec<PieceHash> {
    manifest.needs().collect::<BTreeSet<_>>().into_iter().collect()
}

impl Checkpoints {
    /// Copies a checkpoint to another directory: it is there, whole and durable, when this returns. What is there of it is read and
    /// compared, and written anew where it is damaged; so this also heals. Calls `progress` with the bytes of each piece.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn copy(&self, key: ManifestKey, to: &Directory, progress: &mut dyn FnMut(u64)) -> Result<Copied, CopyError> {
        let manifest = self.main().manifest(key)?;
        // A checkpoint that contradicts itself is of no use elsewhere either.
        let layout = self.layout(&manifest)?;
        let pin = PinId::new(0);
        let copied = self.copy_pinned(&manifest, &layout, to, pin, progress);
        to.store().unpin(pin);
        copied
    }

    fn copy_pinned(
        &self,
        manifest: &Manifest,
        layout: &Layout,
        to: &Directory,
        pin: PinId,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, CopyError> {
        let store = to.store();
        let all = all_pieces(manifest);
        let mut copied = Copied::default();
        let (mut group, mut lacking) = (Vec::new(), Vec::new());
        for &piece in &all {
            // A look that fails is remembered, so that the piece is written anew when it is put.
            let was_there = store.length_of(piece).is_some();
            if let Ok(bytes) = store.read(piece)
                && store.pin(pin, &[piece]).is_empty()
            {
                copied.kept += 1;
                progress(bytes.len() as u64);
                continue;
            }
            match self.fetch(piece) {
                Err(error) => lacking.push((piece, error)),
                Ok(bytes) => {
                    copied.pieces += 1;
                    copied.healed += u64::from(was_there);
                    copied.bytes += bytes.len() as u64;
                    progress(bytes.len() as u64);
                    group.push(bytes);
                }
            }
            if group.len() == PUT_PIECES {
                put(to, pin, &mut group)?;
            }
        }
        put(to, pin, &mut group)?;
        store.sync()?;
        if !lacking.is_empty() {
            let count = lacking.len();
            let words = lacking.into_iter().take(NAMED).map(|(piece, error)| {
                let place = manifest.pieces.iter().position(|other| *other == piece);
                let place = place.and_then(|number| layout.place_of(number));
                format!(
                    "{}: {error}",
                    place.unwrap_or_else(|| "the description of the tensors".to_owned())
                )
            });
            let lacking = words.collect();
            return Err(CopyError::Lacking { lacking, count });
        }
        let bytes = manifest::encode(manifest)?;
        store.commit(&store::Manifest::new(manifest.step(), all, bytes))?;
        Ok(copied)
    }
}

/// Puts the pieces of `group` into a store, and empties it: their hashes.
pub(super) fn put(to: &Directory, pin: PinId, group: &mut Vec<Vec<u8>>) -> Result<Vec<PieceHash>, WriteError> {
    let parts: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    let hashes = to.store().put(pin, &parts)?;
    group.clear();
    Ok(hashes)
}
