//! What things are called: by their bytes, and as files.

use data_encoding::HEXLOWER;
use sardana_protocol::words::Step;
use serde::{Deserialize, Serialize};

pub use sardana_protocol::checkpoint::{ManifestId, ManifestKey, PieceHash};

/// A writer of pieces that no manifest names yet: a number that the caller gives, one for each checkpoint under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinId(u64);

impl PinId {
    /// The writer of this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Where a piece is in the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The segment's number. Higher ones are newer.
    pub segment: u64,
    /// Where the record begins in it; the piece's bytes begin after the record's header.
    pub offset: u64,
    /// The piece's bytes.
    pub len: u32,
}

/// A file in the folder of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManifestFile {
    Committed(ManifestKey),
    Deleted(ManifestKey),
    /// A manifest that was never finished.
    Unfinished,
}

const COMMITTED: &str = "manifest";
const DELETED: &str = "deleted";
const UNFINISHED: &str = "new";
const SEGMENT: &str = ".seg";

pub(super) fn segment_name(number: u64) -> String {
    format!("{number:08}{SEGMENT}")
}

/// The number of a segment's file. None for any other name, also for one that we would write in another way.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT)?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

fn manifest_name(key: ManifestKey, ending: &str) -> String {
    format!("{:020}-{}.{ending}", key.step.get(), key.id)
}

pub(super) fn committed_name(key: ManifestKey) -> String {
    manifest_name(key, COMMITTED)
}

pub(super) fn deleted_name(key: ManifestKey) -> String {
    manifest_name(key, DELETED)
}

pub(super) fn unfinished_name(key: ManifestKey) -> String {
    manifest_name(key, UNFINISHED)
}

/// What the file of this name is; none of ours.
pub(super) fn manifest_file(name: &str) -> Option<ManifestFile> {
    let (stem, ending) = name.rsplit_once('.')?;
    let (step, id) = stem.split_once('-')?;
    let key = ManifestKey {
        step: Step::new(step.parse().ok()?),
        id: ManifestId::new(HEXLOWER.decode(id.as_bytes()).ok()?.try_into().ok()?),
    };
    let file = match ending {
        COMMITTED => ManifestFile::Committed(key),
        DELETED => ManifestFile::Deleted(key),
        UNFINISHED => ManifestFile::Unfinished,
        _ => return None,
    };
    (manifest_name(key, ending) == name).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written_and_no_others() {
        for number in [0, 1, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(segment_number(&segment_name(number)), Some(number));
        }
        for bad in ["1.seg", "+0000001.seg", "00000001", "00000001.seg.new", "-0000001.seg", ""] {
            assert_eq!(segment_number(bad), None, "{bad}");
        }
        let key = ManifestKey {
            step: Step::new(7),
            id: ManifestId::of(b"x"),
        };
        assert_eq!(manifest_file(&committed_name(key)), Some(ManifestFile::Committed(key)));
        assert_eq!(manifest_file(&deleted_name(key)), Some(ManifestFile::Deleted(key)));
        assert_eq!(manifest_file(&unfinished_name(key)), Some(ManifestFile::Unfinished));
        let name = committed_name(key);
        for bad in [
            &name[1..],
            &name[..name.len() - 1],
            &name.to_uppercase(),
            "7-00.manifest",
            "x",
        ] {
            assert_eq!(manifest_file(bad), None, "{bad}");
        }
    }
}
