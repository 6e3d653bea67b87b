//! What is in a directory, as far as can be told without reading the pieces.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::SystemTime;

use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash};
use sardana_storage::store::Usage;

use super::directory::Checkpoints;

/// Whether all pieces of a checkpoint are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// All of its pieces are in the directories given.
    Whole,
    /// This directory has all that it should; other hosts of the job have the rest.
    Spread {
        /// How many pieces are in none of the directories given.
        elsewhere: usize,
    },
    /// It cannot be used as it is, for this reason; the text says what to do.
    Harmed(String),
}

impl fmt::Display for Completeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Spread { elsewhere } => write!(
                f,
                "{elsewhere} of its pieces are on other hosts; name their directories with --also"
            ),
            Self::Harmed(reason) => f.write_str(reason),
        }
    }
}

/// A checkpoint in a list.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The step and the id of the checkpoint.
    pub key: ManifestKey,
    /// When its manifest was written.
    pub committed: Option<SystemTime>,
    /// What its manifest says, if it can be read.
    pub manifest: Option<Manifest>,
    /// Bytes on this disk that only it needs: what removing it gives back.
    pub own_bytes: u64,
    /// Bytes on this disk that other checkpoints need as well.
    pub shared_bytes: u64,
    /// Whether it is whole.
    pub completeness: Completeness,
}

/// All checkpoints of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The oldest first.
    pub entries: Vec<Entry>,
    /// What the directory takes.
    pub usage: Usage,
}

impl Checkpoints {
    /// All checkpoints, the oldest first.
    #[must_use]
    pub fn list(&self) -> Listing {
        let store = self.main().store();
        let listed = store.list();
        let manifests: Vec<_> = listed.iter().map(|one| self.main().manifest(one.key)).collect();
        let needs: Vec<BTreeSet<PieceHash>> = manifests
            .iter()
            .map(|manifest| manifest.iter().flat_map(Manifest::needs).collect())
            .collect();
        let mut users: HashMap<PieceHash, u32> = HashMap::new();
        for piece in needs.iter().flatten() {
            *users.entry(*piece).or_default() += 1;
        }
        let mut entries = Vec::new();
        for ((one, manifest), needs) in listed.into_iter().zip(manifests).zip(needs) {
            let (mut own_bytes, mut shared_bytes) = (0, 0);
            for &piece in &needs {
                let bytes = u64::from(store.length_of(piece).unwrap_or(0));
                match users.get(&piece) {
                    Some(1) => own_bytes += bytes,
                    Some(_) | None => shared_bytes += bytes,
                }
            }
            let elsewhere = needs.iter().filter(|&&piece| !self.has(piece)).count();
            let completeness = match (&manifest, one.problem) {
                (Err(error), _) => Completeness::Harmed(error.to_string()),
                // What is damaged here may be whole in another directory.
                (Ok(_), _) if elsewhere == 0 => Completeness::Whole,
                (Ok(_), Some(problem)) => Completeness::Harmed(problem.to_string()),
                (Ok(_), None) => Completeness::Spread { elsewhere },
            };
            let written = std::fs::metadata(store.path_of(one.key)).and_then(|found| found.modified());
            entries.push(Entry {
                key: one.key,
                committed: written.ok(),
                manifest: manifest.ok(),
                own_bytes,
                shared_bytes,
                completeness,
            });
        }
        Listing {
            entries,
            usage: store.usage(),
        }
    }
}
