//! Which objects a checkpoint is, and what they are called. Pure: two processes with the same manifest and description agree on
//! them.

use std::collections::BTreeSet;
use std::ops::Range;

use sardana_protocol::checkpoint::{Manifest, ManifestId, ManifestKey, PieceHash};
use sardana_protocol::words::Step;

use super::super::layout::Layout;
use super::limits::{PACK_BYTES, PACK_PIECES};

/// The folder of manifests. The number is the form's: a later release that packs otherwise has folders of its own.
pub(super) const MANIFESTS: &str = "v1/manifests";
/// The folder of pieces.
pub(super) const PACKS: &str = "v1/packs";
/// The folder of marks: which processes are at work.
pub(super) const MARKS: &str = "v1/marks";

/// What the names of packs are hashes of, besides pieces.
const CONTEXT: &str = "sardana 2026-11 pack of a mirror";

/// An object of pieces, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pack {
    pub(super) name: String,
    /// Each piece once, and how long it is.
    pub(super) pieces: Vec<(PieceHash, usize)>,
    /// How long the object is.
    pub(super) bytes: usize,
    /// The number of the first of its pieces in the manifest, for people.
    pub(super) first: usize,
}

impl Pack {
    fn new(first: usize, all: &[(PieceHash, usize)]) -> Self {
        let mut seen = BTreeSet::new();
        let pieces: Vec<_> = all.iter().copied().filter(|(piece, _)| seen.insert(*piece)).collect();
        Self {
            name: name_of(pieces.iter().map(|(piece, _)| *piece)),
            bytes: pieces.iter().map(|(_, length)| length).sum(),
            pieces,
            first,
        }
    }

    /// Its pieces, and where each of them is in it.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (PieceHash, Range<usize>)> + '_ {
        let mut end = 0;
        self.pieces.iter().map(move |&(piece, length)| {
            let start = end;
            end += length;
            (piece, start..end)
        })
    }
}

/// The packs of a checkpoint, each once. Where they are cut follows from the tensors alone, so that packs of which no piece has changed
/// since another checkpoint of the job are called the same.
pub(super) fn packs(manifest: &Manifest, layout: &Layout) -> Vec<Pack> {
    let mut packs = Vec::new();
    let mut names = BTreeSet::new();
    let (mut all, mut bytes) = (Vec::new(), 0);
    let mut close = |end: usize, all: &mut Vec<(PieceHash, usize)>| {
        let pack = Pack::new(end - all.len(), all);
        all.clear();
        if !pack.pieces.is_empty() && names.insert(pack.name.clone()) {
            packs.push(pack);
        }
    };
    for (number, &piece) in manifest.pieces.iter().enumerate() {
        // The layout has as many pieces as the manifest.
        let length = layout.piece_bytes(number).unwrap_or(0);
        if bytes + length > PACK_BYTES || all.len() == PACK_PIECES {
            close(number, &mut all);
            bytes = 0;
        }
        all.push((piece, length));
        bytes += length;
    }
    close(manifest.pieces.len(), &mut all);
    packs
}

/// The name of the pack of one piece with a length that is not known yet: a part of the description.
pub(super) fn description_name(piece: PieceHash) -> String {
    name_of(std::iter::once(piece))
}

fn name_of(pieces: impl Iterator<Item = PieceHash>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for piece in pieces {
        hasher.update(&piece.bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Whether an object of this name may be one of ours.
pub(super) fn is_pack(name: &str) -> bool {
    name.len() == 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The name of a pack as an object.
pub(super) fn pack_object(name: &str) -> String {
    format!("{PACKS}/{name}")
}

fn manifest_name(key: ManifestKey) -> String {
    format!("{:020}-{}.manifest", key.step.get(), key.id)
}

/// The name of a manifest as an object.
pub(super) fn manifest_object(key: ManifestKey) -> String {
    format!("{MANIFESTS}/{}", manifest_name(key))
}

/// The manifest of this name in its folder. None for any other name, also for one that we would write in another way.
pub(super) fn manifest_key(name: &str) -> Option<ManifestKey> {
    let (step, id) = name.strip_suffix(".manifest")?.split_once('-')?;
    let id = blake3::Hash::from_hex(id).ok()?;
    let key = ManifestKey {
        step: Step::new(step.parse().ok()?),
        id: ManifestId::new(*id.as_bytes()),
    };
    (manifest_name(key) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_found_under_the_names_they_are_given_and_no_others() {
        let key = ManifestKey {
            step: Step::new(7),
            id: ManifestId::of(b"x"),
        };
        let name = manifest_name(key);
        assert_eq!(manifest_key(&name), Some(key));
        assert_eq!(manifest_object(key), format!("{MANIFESTS}/{name}"));
        for bad in [
            &name[1..],
            &name.to_uppercase(),
            &format!("{name}.new"),
            "",
            "7-00.manifest",
            "-.manifest",
        ] {
            assert_eq!(manifest_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_pack_holds_each_piece_once_and_is_called_by_them() {
        let [a, b] = [PieceHash::of(b"a"), PieceHash::of(b"b")];
        let pack = Pack::new(3, &[(a, 10), (b, 5), (a, 10)]);
        assert_eq!(pack.bytes, 15);
        let ranges: Vec<_> = pack.ranges().collect();
        assert_eq!(ranges, [(a, 0..10), (b, 10..15)]);
        assert!(is_pack(&pack.name) && !is_pack("x") && !is_pack(&pack.name.to_uppercase()));
        assert_ne!(pack.name, Pack::new(3, &[(b, 5), (a, 10)]).name);
        assert_eq!(Pack::new(0, &[(a, 10)]).name, description_name(a));
    }
}
