//! The marker: a small file beside sled's that says how much there should be. Must not know what is kept.
//!
//! ```text
//! sardana-catalogue 1 id=… since=… commits=… records=… digest=… check=…      (half 0: 4096 bytes, the rest is line ends)
//! sardana-catalogue 1 id=… since=… commits=… records=… digest=… check=…      (half 1)
//! ```
//!
//! It is made by writing another file, syncing that, and renaming it. After each commit, once sled's file is synced, the
//! older half is overwritten and synced. A torn half is therefore one whose commit no caller was told of: the other half still
//! holds for the one before, and sled's file has the newer.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::error::CatalogueError;
use super::limits::FORMAT;
use super::record::{Digest, Head};
use crate::private::{Existing, Missing, PrivateError, open_private, read_private, write_private};

/// The file's name.
pub const MARKER_FILE: &str = "marker";

/// A sector of any disk: a write to one half does not touch the other.
const HALF: usize = 4_096;

/// More than this is not read. What follows the two halves is ignored, and removed at the next opening.
const MOST: u64 = 1 << 20;

const WORD: &str = "sardana-catalogue";

/// What half of a marker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) id: [u8; 16],
    /// When the catalogue was made, in seconds since 1970.
    pub(super) since: u64,
    /// How many commits were acknowledged, at least.
    pub(super) commits: u64,
    pub(super) records: u64,
    pub(super) digest: Digest,
}

impl Mark {
    pub(super) fn new(id: [u8; 16], since: u64) -> Self {
        Self::of(&Head::new(id), since)
    }

    pub(super) fn of(head: &Head, since: u64) -> Self {
        Self {
            id: head.id,
            since,
            commits: head.commits,
            records: head.records,
            digest: head.digest,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "{WORD} {FORMAT} id={} since={} commits={} records={} digest={}",
            HEXLOWER.encode(&self.id),
            self.since,
            self.commits,
            self.records,
            HEXLOWER.encode(&self.digest.bytes())
        );
        let check = blake3::hash(text.as_bytes());
        // Writing to a string cannot fail.
        let _ = write!(text, " check={check}");
        let mut bytes = text.into_bytes();
        bytes.resize(HALF, b'\n');
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Half {
        let Some(text) = checked(bytes) else {
            return Half::Damaged;
        };
        match text
            .strip_prefix(WORD)
            .and_then(|rest| rest.trim_start().split(' ').next()?.parse::<u32>().ok())
        {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Half::Newer(found),
            Some(_) | None => return Half::Damaged,
        }
        // Only what would be written so is believed, line ends included.
        match Self::fields(text).filter(|mark| mark.encode() == bytes) {
            Some(mark) => Half::Whole(mark),
            None => Half::Damaged,
        }
    }

    fn fields(text: &str) -> Option<Self> {
        let field = |name: &str| text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Some(Self {
            id: HEXLOWER.decode(field("id")?.as_bytes()).ok()?.try_into().ok()?,
            since: field("since")?.parse().ok()?,
            commits: field("commits")?.parse().ok()?,
            records: field("records")?.parse().ok()?,
            digest: Digest::of(&HEXLOWER.decode(field("digest")?.as_bytes()).ok()?.try_into().ok()?),
        })
    }
}

/// What stands before the hash in `bytes`, if the hash is right: so in every format.
fn checked(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|&byte| byte == b'\n').next()?;
    let (text, check) = std::str::from_utf8(line).ok()?.rsplit_once(" check=")?;
    (blake3::hash(text.as_bytes()).to_hex().as_str() == check).then_some(text)
}

pub(super) enum Half {
    Whole(Mark),
    Newer(u32),
    Damaged,
}

/// What was found at the marker's path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkerState {
    Missing,
    Whole(Mark),
    /// One half is damaged, or the file is not as long as it should be.
    Half(Mark),
}

/// What the marker in `folder` says.
pub(super) fn read(folder: &Path) -> Result<MarkerState, CatalogueError> {
    let path = folder.join(MARKER_FILE);
    let bytes = match read_private(&path, MOST) {
        Err(PrivateError::Missing { .. }) => return Ok(MarkerState::Missing),
        Err(PrivateError::TooLong { .. }) => return Err(CatalogueError::MarkerDamaged(path)),
        read => read?,
    };
    let mut halves = bytes.chunks(HALF).map(Mark::decode);
    let both = (halves.next().unwrap_or(Half::Damaged), halves.next().unwrap_or(Half::Damaged));
    match both {
        (Half::Newer(found), _) | (_, Half::Newer(found)) => Err(CatalogueError::Newer { path, found }),
        (Half::Damaged, Half::Damaged) => Err(CatalogueError::MarkerDamaged(path)),
        (Half::Whole(mark), Half::Damaged) | (Half::Damaged, Half::Whole(mark)) => Ok(MarkerState::Half(mark)),
        (Half::Whole(first), Half::Whole(second)) => {
            if first.id != second.id {
                return Err(CatalogueError::MarkerDamaged(path));
            }
            let newest = if second.commits > first.commits { second } else { first };
            let whole = bytes.len() == 2 * HALF;
            Ok(if whole {
                MarkerState::Whole(newest)
            } else {
                MarkerState::Half(newest)
            })
        }
    }
}

/// The marker of a catalogue that is open.
#[derive(Debug)]
pub(super) struct Marker {
    file: File,
    since: u64,
    /// Which half is overwritten next.
    next: u64,
}

impl Marker {
    /// Makes the marker anew, with both halves alike: `mark` is on the disk when this returns.
    pub(super) fn renew(folder: &Path, mark: &Mark) -> Result<Self, PrivateError> {
        let path: PathBuf = folder.join(MARKER_FILE);
        write_private(&path, &mark.encode().repeat(2), Existing::Replace)?;
        Ok(Self {
            file: open_private(&path, Missing::Refuse)?,
            since: mark.since,
            next: 0,
        })
    }

    /// Says what `head` says: on the disk when this returns.
    pub(super) fn advance(&mut self, head: &Head) -> io::Result<()> {
        let bytes = Mark::of(head, self.since).encode();
        self.file.write_all_at(&bytes, self.next * HALF as u64)?;
        self.file.sync_data()?;
        self.next = 1 - self.next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn head(commits: u64) -> Head {
        let mut head = Head::new([4; 16]);
        head.commits = commits;
        head.digest.add(blake3::hash(&commits.to_le_bytes()).as_bytes());
        head
    }

    /// A marker that has seen three commits, and its bytes.
    fn marked(folder: &Path) -> Vec<u8> {
        let mut marker = Marker::renew(folder, &Mark::new([4; 16], 1_700_000_000)).unwrap();
        for commits in 1..=3 {
            marker.advance(&head(commits)).unwrap();
            assert_eq!(
                read(folder).unwrap(),
                MarkerState::Whole(Mark::of(&head(commits), 1_700_000_000))
            );
        }
        fs::read(folder.join(MARKER_FILE)).unwrap()
    }

    #[test]
    fn any_flipped_bit_damages_one_half_and_the_other_still_holds() {
        let folder = folder();
        assert_eq!(read(folder.path()).unwrap(), MarkerState::Missing);
        let bytes = marked(folder.path());
        let text = bytes.split(|&byte| byte == b'\n').next().unwrap();
        for bit in (0..text.len() * 8).chain([HALF * 8 - 1]) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(folder.path().join(MARKER_FILE), &flipped).unwrap();
            let MarkerState::Half(mark) = read(folder.path()).unwrap() else {
                panic!("bit {bit} went unnoticed");
            };
            assert_eq!(mark.commits, 2, "the third is in the first half");
        }
    }

    #[test]
    fn what_is_cut_or_emptied_is_damaged_and_not_missing() {
        let folder = folder();
        let bytes = marked(folder.path());
        for len in [0, 1, HALF - 1, HALF, HALF + 1, 2 * HALF - 1] {
            write_private(&folder.path().join(MARKER_FILE), &bytes[..len], Existing::Replace).unwrap();
            match read(folder.path()) {
                Ok(MarkerState::Half(mark)) => assert!(len >= HALF && mark.commits == 3, "{len}"),
                Err(CatalogueError::MarkerDamaged(_)) => assert!(len < HALF, "{len}"),
                other => panic!("{len}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let folder = folder();
        let text = format!("{WORD} {} what only a later release knows", FORMAT + 1);
        let line = format!("{text} check={}\n", blake3::hash(text.as_bytes()));
        write_private(&folder.path().join(MARKER_FILE), line.as_bytes(), Existing::Replace).unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("written by a newer version") && error.contains("found 2"),
            "{error}"
        );
        let changed = line.replace("sardana-catalogue 2", "sardana-catalogue 3");
        write_private(&folder.path().join(MARKER_FILE), changed.as_bytes(), Existing::Replace).unwrap();
        assert!(matches!(read(folder.path()), Err(CatalogueError::MarkerDamaged(_))));
    }
}
