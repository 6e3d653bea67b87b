//! A manifest as the store knows it, and as a file. Must not know what its bytes say.
//!
//! ```text
//! "SARDMAN\n" | format u16 | 0 u16 | pieces u32 | step u64 | bytes u64 | the pieces' hashes | the bytes | BLAKE3 of all before
//! ```

use sardana_protocol::words::Step;

use super::limits::{FORMAT, MANIFEST_BYTES, MANIFEST_PIECES};
use super::names::{ManifestId, ManifestKey, PieceHash};
use crate::bytes::take;

const MAGIC: &[u8; 8] = b"SARDMAN\n";
const HEAD: usize = 32;
const HASH: usize = 32;

/// Longest file.
pub(super) const FILE_BYTES: usize = HEAD + 32 * MANIFEST_PIECES + MANIFEST_BYTES + HASH;

/// What a checkpoint consists of: what its maker says about it, and the pieces that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    step: Step,
    pieces: Vec<PieceHash>,
    bytes: Vec<u8>,
}

impl Manifest {
    /// A manifest for the state of `step`, that needs `pieces`, and says `bytes`, which the store does not look into. Its id is the hash of
    /// `bytes`; so they must say which pieces it needs.
    #[must_use]
    pub fn new(step: Step, pieces: Vec<PieceHash>, bytes: Vec<u8>) -> Self {
        Self { step, pieces, bytes }
    }

    /// Its step and id.
    #[must_use]
    pub fn key(&self) -> ManifestKey {
        ManifestKey {
            step: self.step,
            id: ManifestId::of(&self.bytes),
        }
    }

    /// The pieces that it needs.
    #[must_use]
    pub fn pieces(&self) -> &[PieceHash] {
        &self.pieces
    }

    /// What its maker says.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it is not larger than any may be.
    pub(super) fn fits(&self) -> bool {
        self.pieces.len() <= MANIFEST_PIECES && self.bytes.len() <= MANIFEST_BYTES
    }

    /// As a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut file = Vec::with_capacity(HEAD + 32 * self.pieces.len() + self.bytes.len() + HASH);
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&FORMAT.to_le_bytes());
        file.extend_from_slice(&[0; 2]);
        // What does not fit is not encoded.
        file.extend_from_slice(&u32::try_from(self.pieces.len()).unwrap_or(u32::MAX).to_le_bytes());
        file.extend_from_slice(&self.step.get().to_le_bytes());
        file.extend_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        for piece in &self.pieces {
            file.extend_from_slice(&piece.bytes());
        }
        file.extend_from_slice(&self.bytes);
        let hash = blake3::hash(&file);
        file.extend_from_slice(hash.as_bytes());
        file
    }

    /// What the file of the manifest `key` says, or why it is none.
    pub(super) fn decode(file: &[u8], key: ManifestKey) -> Result<Self, String> {
        let cut = || format!("expected a whole manifest, found {} bytes", file.len());
        let (body, hash) = file.split_last_chunk::<HASH>().ok_or_else(cut)?;
        let found = blake3::hash(body);
        if found.as_bytes() != hash {
            let expected = PieceHash::new(*hash);
            return Err(format!("expected contents with the hash {expected}, found {found}"));
        }
        let mut rest = body;
        let magic: [u8; 8] = take(&mut rest).ok_or_else(cut)?;
        let format = u16::from_le_bytes(take(&mut rest).ok_or_else(cut)?);
        if magic != *MAGIC || format > FORMAT {
            return Err(format!(
                "expected a manifest of format {FORMAT} at most, found {format}; use the release that wrote it"
            ));
        }
        let _zero: [u8; 2] = take(&mut rest).ok_or_else(cut)?;
        let count = u32::from_le_bytes(take(&mut rest).ok_or_else(cut)?) as usize;
        let step = Step::new(u64::from_le_bytes(take(&mut rest).ok_or_else(cut)?));
        let bytes = u64::from_le_bytes(take(&mut rest).ok_or_else(cut)?);
        let list = count.checked_mul(32).filter(|&list| list <= rest.len()).ok_or_else(cut)?;
        let (list, contents) = rest.split_at(list);
        if contents.len() as u64 != bytes {
            return Err(cut());
        }
        let (pieces, _none) = list.as_chunks::<32>();
        let manifest = Self {
            step,
            pieces: pieces.iter().copied().map(PieceHash::new).collect(),
            bytes: contents.to_vec(),
        };
        let found = manifest.key();
        if found != key {
            return Err(format!("expected the manifest of {key}, found that of {found}"));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_written_and_any_change_is_noticed() {
        let pieces = vec![PieceHash::of(b"a"), PieceHash::of(b"b")];
        let manifest = Manifest::new(Step::new(7), pieces, b"what it says".to_vec());
        let (file, key) = (manifest.encode(), manifest.key());
        assert_eq!(Manifest::decode(&file, key), Ok(manifest));
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped, key).is_err(), "bit {bit}");
        }
        for len in 0..file.len() {
            assert!(Manifest::decode(&file[..len], key).is_err(), "{len} bytes");
        }
        let other = ManifestKey {
            step: Step::new(8),
            ..key
        };
        assert!(
            Manifest::decode(&file, other)
                .unwrap_err()
                .contains("expected the manifest of")
        );
    }

    #[test]
    fn lengths_that_cannot_be_are_not_believed() {
        let manifest = Manifest::new(Step::new(7), Vec::new(), Vec::new());
        for (at, bytes) in [(12, 4), (24, 8)] {
            let mut file = manifest.encode();
            file.truncate(file.len() - HASH);
            file[at..at + bytes].fill(0xff);
            let hash = blake3::hash(&file);
            file.extend_from_slice(hash.as_bytes());
            let error = Manifest::decode(&file, manifest.key()).unwrap_err();
            assert!(error.contains("expected a whole manifest"), "{error}");
        }
    }
}
