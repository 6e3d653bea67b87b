//! Manifests as bytes, and as a store keeps them. Must not know which process writes or reads them.
//!
//! ```text
//! format u16 | head's length u32 | head (bincode) | the hashes of the state's pieces, 32 bytes each
//! ```

use sardana_protocol::checkpoint::placement::homes;
use sardana_protocol::checkpoint::{
    Condition, DepotId, Description, Head, Manifest, ManifestId, ManifestKey, PieceHash, Placing,
};
use sardana_protocol::codec::{self, LARGEST_LIMIT};
use sardana_protocol::job::{EarlierIdentity, JobIdentity, UncompressedIdentity};
use sardana_protocol::limits::{DESCRIPTION_PIECES, MAX_DEPOTS, MAX_PIECES, MAX_TENSORS, PIECE_BYTES, TENSOR_BYTES};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::TensorSpec;
use sardana_protocol::words::JobId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store;

/// The form of a manifest's bytes. A higher one is refused.
const FORMAT: u16 = 3;

/// The form before gradients could be compressed. What an earlier form can say is still written in it, so that a manifest which was written
/// then has the same bytes, and the name that these give it, wherever it is copied.
const WITHOUT_COMPRESSION: u16 = 2;

/// The form before jobs told what they train on.
const WITHOUT_DATA: u16 = 1;

/// Longest head: an identity with texts of a kilobyte each, a few pieces and depots.
const HEAD_BYTES: usize = 64 << 10;

/// Longest manifest.
pub const MANIFEST_BYTES: usize = 6 + HEAD_BYTES + 32 * MAX_PIECES;

/// Longest description as bytes.
pub const DESCRIPTION_BYTES: usize = DESCRIPTION_PIECES * PIECE_BYTES;

const _: () = assert!(DESCRIPTION_BYTES >= MAX_TENSORS * TENSOR_BYTES && DESCRIPTION_BYTES <= LARGEST_LIMIT);
const _: () = assert!(HEAD_BYTES <= LARGEST_LIMIT);

/// What a manifest says, but for the pieces.
#[derive(Serialize, Deserialize)]
struct Prologue<I> {
    run: JobId,
    snapshot: SnapshotId,
    identity: I,
    description: Vec<PieceHash>,
    bytes: u64,
    replicas: u32,
    depots: Vec<DepotId>,
    placing: Placing,
}

/// Why bytes are no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// They say something else, or too much. The copy is damaged, or is none: use another one.
    #[error("expected a manifest of at most {MANIFEST_BYTES} bytes, found {0}; use another copy of it")]
    Senseless(String),
    /// A later release wrote it, in this format.
    #[error("expected a manifest of format {FORMAT} at most, found {0}; use the release that wrote it")]
    Later(u16),
    /// It is not the manifest that was asked for.
    #[error("expected the manifest {expected}, found {found}; use another copy of it")]
    Other {
        /// The manifest that was asked for.
        expected: ManifestKey,
        /// The manifest that the bytes are.
        found: ManifestKey,
    },
}

fn senseless(found: impl ToString) -> ManifestError {
    ManifestError::Senseless(found.to_string())
}

/// A manifest's bytes.
///
/// # Errors
/// When it says more than a manifest may.
pub fn encode(manifest: &Manifest) -> Result<Vec<u8>, ManifestError> {
    check(manifest)?;
    let identity = &manifest.identity;
    let (format, head) = if let Some(earlier) = EarlierIdentity::of(identity) {
        (WITHOUT_DATA, codec::encode(&prologue(manifest, earlier), HEAD_BYTES))
    } else if let Some(earlier) = UncompressedIdentity::of(identity) {
        (WITHOUT_COMPRESSION, codec::encode(&prologue(manifest, earlier), HEAD_BYTES))
    } else {
        (FORMAT, codec::encode(&prologue(manifest, identity.clone()), HEAD_BYTES))
    };
    let head = head.map_err(senseless)?;
    let mut bytes = Vec::with_capacity(6 + head.len() + 32 * manifest.pieces.len());
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&head);
    for piece in &manifest.pieces {
        bytes.extend_from_slice(&piece.bytes());
    }
    Ok(bytes)
}

/// A prologue, and its identity as it is said today.
fn read_prologue<I: DeserializeOwned + Into<JobIdentity>>(
    head: &[u8],
) -> Result<(Prologue<()>, JobIdentity), ManifestError> {
    let Prologue {
        run,
        snapshot,
        identity,
        description,
        bytes,
        replicas,
        depots,
        placing,
    } = codec::decode::<Prologue<I>>(head, HEAD_BYTES).map_err(senseless)?;
    let rest = Prologue {
        run,
        snapshot,
        identity: (),
        description,
        bytes,
        replicas,
        depots,
        placing,
    };
    Ok((rest, identity.into()))
}

fn prologue<I>(manifest: &Manifest, identity: I) -> Prologue<I> {
    Prologue {
        run: manifest.run,
        snapshot: manifest.snapshot,
        identity,
        description: manifest.description.clone(),
        bytes: manifest.bytes,
        replicas: manifest.replicas,
        depots: manifest.depots.clone(),
        placing: manifest.placing,
    }
}

/// The manifest that `bytes` are.
///
/// # Errors
/// See [`ManifestError`].
pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let cut = || senseless(format!("{} bytes", bytes.len()));
    let (format, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let format = u16::from_le_bytes(*format);
    if format > FORMAT {
        return Err(ManifestError::Later(format));
    }
    let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, pieces) = rest.split_at_checked(length).ok_or_else(cut)?;
    let (head, identity) = match format {
        ..=WITHOUT_DATA => read_prologue::<EarlierIdentity>(head)?,
        WITHOUT_COMPRESSION => read_prologue::<UncompressedIdentity>(head)?,
        _ => read_prologue::<JobIdentity>(head)?,
    };
    let (pieces, rest) = pieces.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(cut());
    }
    let manifest = Manifest {
        run: head.run,
        snapshot: head.snapshot,
        identity,
        description: head.description,
        pieces: pieces.iter().copied().map(PieceHash::new).collect(),
        bytes: head.bytes,
        replicas: head.replicas,
        depots: head.depots,
        placing: head.placing,
    };
    check(&manifest)?;
    Ok(manifest)
}

/// The manifest that `bytes` are, if they are that of `key`.
///
/// # Errors
/// See [`ManifestError`].
pub fn decode_as(bytes: &[u8], key: ManifestKey) -> Result<Manifest, ManifestError> {
    let manifest = decode(bytes)?;
    let found = key_of(&manifest, bytes);
    if found == key {
        Ok(manifest)
    } else {
        Err(ManifestError::Other { expected: key, found })
    }
}

fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    manifest.identity.spec.data.check().map_err(senseless)?;
    let sensible = manifest.pieces.len() <= MAX_PIECES
        && manifest.description.len() <= DESCRIPTION_PIECES
        && manifest.depots.len() <= MAX_DEPOTS
        && manifest.bytes <= (manifest.pieces.len() as u64).saturating_mul(PIECE_BYTES as u64);
    if sensible {
        Ok(())
    } else {
        Err(senseless(format!(
            "{} pieces with {} bytes, {} that describe them, on {} checkpoint actors",
            manifest.pieces.len(),
            manifest.bytes,
            manifest.description.len(),
            manifest.depots.len()
        )))
    }
}

/// What a manifest with these bytes is called.
#[must_use]
pub fn key_of(manifest: &Manifest, bytes: &[u8]) -> ManifestKey {
    ManifestKey {
        step: manifest.step(),
        id: ManifestId::of(bytes),
    }
}

/// What `depot` tells of a manifest.
#[must_use]
pub fn head_of(manifest: &Manifest, key: ManifestKey, condition: Condition) -> Head {
    Head {
        key,
        run: manifest.run,
        snapshot: manifest.snapshot,
        task: manifest.identity.task(),
        build: manifest.identity.build(),
        replicas: manifest.replicas,
        depots: manifest.depots.clone(),
        placing: manifest.placing,
        condition,
    }
}

/// The pieces that `depot` keeps for a manifest, each once: all of them, if it is not one of the manifest's own depots.
#[must_use]
pub fn pieces_at(manifest: &Manifest, depot: DepotId) -> Vec<PieceHash> {
    let everything = !manifest.depots.contains(&depot);
    let mut pieces: Vec<PieceHash> = manifest
        .needs()
        .filter(|&piece| everything || homes(piece, &manifest.depots, manifest.replicas).contains(&depot))
        .collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces
}

/// The manifest as the store of `depot` keeps it.
#[must_use]
pub fn stored(manifest: &Manifest, bytes: Vec<u8>, depot: DepotId) -> store::Manifest {
    store::Manifest::new(manifest.step(), pieces_at(manifest, depot), bytes)
}

/// A description's bytes.
///
/// # Errors
/// When the tensors have too many or too long names.
pub fn encode_description(description: &[TensorSpec]) -> Result<Vec<u8>, ManifestError> {
    codec::encode(description, DESCRIPTION_BYTES).map_err(senseless)
}

/// The description that `bytes` are.
///
/// # Errors
/// When they are none.
pub fn decode_description(bytes: &[u8]) -> Result<Description, ManifestError> {
    codec::decode(bytes, DESCRIPTION_BYTES).map_err(senseless)
}

#[cfg(test)]
mod tests {
    use sardana_protocol::samples;
    use sardana_protocol::state::{Dtype, TensorSpec};

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            depots: [1, 2, 3].map(DepotId::new).to_vec(),
            ..samples::manifest(JobId::new([1; 16]))
        }
    }

    #[test]
    fn a_manifest_is_read_as_written_and_nothing_else_is_one() {
        let manifest = manifest();
        let bytes = encode(&manifest).unwrap();
        let key = key_of(&manifest, &bytes);
        assert_eq!(decode_as(&bytes, key), Ok(manifest.clone()));
        for length in 0..bytes.len() {
            assert!(decode_as(&bytes[..length], key).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode_as(&flipped, key).is_err(), "byte {at}");
        }
        let mut later = bytes.clone();
        later[0] = 4;
        assert!(matches!(decode(&later), Err(ManifestError::Later(4))));
        let huge = Manifest {
            bytes: u64::MAX,
            ..manifest
        };
        assert!(matches!(encode(&huge), Err(ManifestError::Senseless(_))));
    }

    #[test]
    fn what_could_be_said_earlier_has_the_bytes_of_then() {
        let mut earlier = manifest();
        earlier.identity.fingerprint.settings = sardana_protocol::state::StateHash::of(b"");
        let bytes = encode(&earlier).unwrap();
        assert_eq!(bytes[..2], WITHOUT_DATA.to_le_bytes());
        assert_eq!(decode(&bytes), Ok(earlier.clone()));
        earlier.identity.spec.last_batch = sardana_protocol::job::LastBatch::Dropped;
        let bytes = encode(&earlier).unwrap();
        assert_eq!(bytes[..2], WITHOUT_COMPRESSION.to_le_bytes());
        assert_eq!(decode(&bytes), Ok(earlier.clone()));
        earlier.identity.spec.order = sardana_protocol::job::Order::Fast;
        earlier.identity.spec.compression = sardana_protocol::job::Compression::Bf16;
        let bytes = encode(&earlier).unwrap();
        assert_eq!(bytes[..2], FORMAT.to_le_bytes());
        assert_eq!(decode(&bytes), Ok(earlier));
    }

    #[test]
    fn the_depots_of_a_manifest_keep_each_piece_so_often_and_others_everything() {
        let manifest = manifest();
        let kept: Vec<Vec<PieceHash>> = manifest.depots.iter().map(|&depot| pieces_at(&manifest, depot)).collect();
        for piece in manifest.needs() {
            assert_eq!(kept.iter().filter(|pieces| pieces.contains(&piece)).count(), 2);
        }
        assert_eq!(pieces_at(&manifest, DepotId::new(9)).len(), 10);
    }

    #[test]
    fn a_description_is_read_as_written() {
        let description = vec![
            TensorSpec::new("w", Dtype::F32, &[2, 3]),
            TensorSpec::new("step", Dtype::U64, &[]),
        ];
        let bytes = encode_description(&description).unwrap();
        assert_eq!(decode_description(&bytes), Ok(description));
        assert!(decode_description(&bytes[1..]).is_err());
    }

    #[test]
    fn as_many_tensors_as_there_may_be_can_be_described() {
        // Bytes of the list's length, and of a name's, a type and the number of dimensions.
        let (list, fixed, dimensions) = (5, 3, [u32::MAX as usize; 4]);
        let name = |index: usize, length: usize| format!("{index:0>length$}");
        let of = |length: usize| -> Description {
            let spec = |index| TensorSpec::new(name(index, length), Dtype::F32, &dimensions);
            (0..MAX_TENSORS).map(spec).collect()
        };
        let description = of(100);
        let bytes = encode_description(&description).unwrap();
        assert_eq!(bytes.len(), list + MAX_TENSORS * (fixed + 100 + 4 * 5));
        assert!(bytes.len() <= DESCRIPTION_PIECES * PIECE_BYTES);
        assert_eq!(decode_description(&bytes), Ok(description));
        let error = encode_description(&of(110)).unwrap_err().to_string();
        assert!(error.contains(&DESCRIPTION_BYTES.to_string()), "{error}");
    }
}
