//! Every byte is read, and each checkpoint judged by what was found (CKPT-2).

use std::collections::BTreeSet;
use std::path::PathBuf;

use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_protocol::state::StateHash;
use sardana_storage::store::{Finding, Progress, Verified, WriteError};

use super::copy::NAMED;
use super::directory::{Checkpoints, Directory};
use super::layout::{Layout, LayoutError};

/// What reading everything has shown.
#[derive(Debug, Clone)]
pub struct Verification {
    /// What was read in each directory, the main one first.
    pub directories: Vec<(PathBuf, Verified)>,
    /// What was noticed when they were opened. If nothing else is wrong, then no checkpoint needs what was lost by it.
    pub noticed: Vec<String>,
    /// Pieces that the main directory should have, and lacks, or has damaged.
    pub lacking: BTreeSet<PieceHash>,
    /// The checkpoints of the main directory, the oldest first.
    pub checkpoints: Vec<Checked>,
}

impl Verification {
    /// Whether all directories have what they should, whole.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let whole = self.directories.iter().all(|(_, verified)| verified.harmed.is_empty());
        whole && self.lacking.is_empty() && self.checkpoints.iter().all(|checked| checked.problems.is_empty())
    }
}

/// A checkpoint that was verified.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The checkpoint.
    pub key: ManifestKey,
    /// The hash of its state, made of its pieces; none if that cannot be.
    pub state: Option<StateHash>,
    /// What is wrong, and where. Empty if nothing is.
    pub problems: Vec<String>,
    /// Pieces that should be on other hosts, and are in none of the directories given.
    pub elsewhere: usize,
}

/// What became of pieces that were damaged or missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Healed {
    /// Pieces that were written anew.
    pub pieces: usize,
    /// Pieces that no directory has whole.
    pub lost: usize,
}

impl Checked {
    pub(super) const fn new(key: ManifestKey) -> Self {
        Self {
            key,
            state: None,
            problems: Vec::new(),
            elsewhere: 0,
        }
    }

    /// Whether a job can go on from it, with the directories given.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.problems.is_empty() && self.elsewhere == 0
    }
}

impl Checkpoints {
    /// Reads all bytes of all directories, and calls `progress` after each piece, with the sums over all directories so far.
    #[must_use]
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Verification {
        let mut total_bytes: u64 = self
            .directories()
            .map(|directory| directory.store().usage().piece_bytes)
            .sum();
        let mut before = 0;
        let mut directories = Vec::new();
        for directory in self.directories() {
            let verified = directory.store().verify(&mut |part| {
                let done_bytes = before + part.done_bytes;
                total_bytes = total_bytes.max(done_bytes);
                progress(Progress { done_bytes, total_bytes });
            });
            before += verified.bytes;
            directories.push((directory.path().to_owned(), verified));
        }
        let listed = self.main().store().list();
        Verification {
            noticed: self.directories().flat_map(noticed).collect(),
            lacking: self.lacking(),
            checkpoints: listed.iter().map(|one| self.check(one.key)).collect(),
            directories,
        }
    }

    /// Judges a checkpoint by what was found when the pieces were read.
    fn check(&self, key: ManifestKey) -> Checked {
        let mut checked = Checked::new(key);
        let manifest = match self.main().manifest(key) {
            Ok(manifest) => manifest,
            Err(error) => {
                checked.problems.push(error.to_string());
                return checked;
            }
        };
        let here = self.main().store().show(key);
        let here: BTreeSet<PieceHash> = here.iter().flat_map(|stored| stored.pieces().iter().copied()).collect();
        let layout = match self.layout(&manifest) {
            Ok(layout) => Some(layout),
            // It is said below of the piece.
            Err(LayoutError::Piece(_)) => None,
            Err(error @ (LayoutError::Senseless(_) | LayoutError::Contradiction { .. })) => {
                checked.problems.push(error.to_string());
                None
            }
        };
        self.check_pieces(&manifest, layout.as_ref(), &here, &mut checked);
        if checked.problems.is_empty() {
            checked.state = layout.map(|layout| layout.state_hash(&manifest));
        }
        checked
    }

    fn check_pieces(&self, manifest: &Manifest, layout: Option<&Layout>, here: &BTreeSet<PieceHash>, checked: &mut Checked) {
        let mut seen = BTreeSet::new();
        let mut lacking = 0;
        let described = manifest.description.iter().map(|&piece| (None, piece));
        let pieces = manifest
            .pieces
            .iter()
            .enumerate()
            .map(|(number, &piece)| (Some(number), piece));
        for (number, piece) in described.chain(pieces) {
            if !seen.insert((number.is_some(), piece)) {
                continue;
            }
            let place = number.and_then(|number| layout.and_then(|layout| layout.place_of(number)));
            let place =
                place.unwrap_or_else(|| number.map_or("the description".to_owned(), |number| format!("piece {number}")));
            match self.lack(piece) {
                Some(error) if here.contains(&piece) || !error.reasons.is_empty() => {
                    lacking += 1;
                    if lacking <= NAMED {
                        checked.problems.push(format!("{place}: {error}"));
                    }
                }
                Some(_) => checked.elsewhere += 1,
                None => {
                    let (Some(number), Some(layout)) = (number, layout) else {
                        continue;
                    };
                    let expected = layout.piece_bytes(number);
                    let found = self.length_of(piece);
                    if let Some(found) = found.filter(|found| Some(*found) != expected) {
                        checked
                            .problems
                            .push(layout.wrong_length(manifest, number, found).to_string());
                    }
                }
            }
        }
        if lacking > NAMED {
            checked
                .problems
                .push(format!("{} more pieces are damaged or missing", lacking - NAMED));
        }
    }

    fn length_of(&self, piece: PieceHash) -> Option<usize> {
        let mut lengths = self.directories().filter_map(|directory| directory.store().length_of(piece));
        lengths.next().map(|length| length as usize)
    }

    /// Pieces that the manifests of the main directory say are there, and that are not, or damaged as far as is known.
    fn lacking(&self) -> BTreeSet<PieceHash> {
        let store = self.main().store();
        let stored = store.list().into_iter().filter_map(|one| store.show(one.key).ok());
        let pieces = stored.flat_map(|stored| stored.pieces().to_vec());
        pieces.filter(|&piece| store.length_of(piece).is_none()).collect()
    }

    /// Writes the pieces that a verification found damaged or missing in the main directory anew, with bytes from any directory that has
    /// them whole. Verify again afterwards.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn heal(&self, verification: &Verification) -> Result<Healed, WriteError> {
        let mut pieces = verification.lacking.clone();
        if let Some((_, verified)) = verification.directories.first() {
            pieces.extend(verified.harmed.iter().map(|harm| harm.piece));
        }
        let mut healed = Healed::default();
        for piece in pieces {
            match self.fetch(piece) {
                Ok(bytes) => {
                    self.main().store().heal(piece, &bytes)?;
                    healed.pieces += 1;
                }
                Err(_) => healed.lost += 1,
            }
        }
        Ok(healed)
    }
}

/// What was noticed of a directory, but for what is said of the checkpoint that it concerns.
fn noticed(directory: &Directory) -> Vec<String> {
    let findings = directory.findings().iter();
    let others = findings.filter(|finding| !matches!(finding, Finding::Manifest { .. }));
    others.map(ToString::to_string).collect()
}
