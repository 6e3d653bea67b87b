//! What is in a mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_storage::store::{Usage, Verified};

use super::super::copy::NAMED;
use super::super::directory::UnreadManifest;
use super::super::list::{Completeness, Entry, Listing};
use super::super::show::Details;
use super::super::verify::{Checked, Verification};
use super::Mirror;
use super::error::ObjectError;
use super::fetch::{Described, Outline};
use super::lanes::blocking;
use super::limits::MOST_NAMES;
use super::objects::{MANIFESTS, Pack, manifest_key, pack_object};
use super::upload::Inventory;

/// All manifests, and what is there of what they name.
#[derive(Debug)]
pub(super) struct Survey {
    /// The oldest first.
    pub(super) checkpoints: Vec<Surveyed>,
    pub(super) there: Inventory,
}

/// A checkpoint that is there.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) key: ManifestKey,
    pub(super) modified: SystemTime,
    /// What is said of it, or why that cannot be read.
    pub(super) outline: Result<Outline, String>,
    /// How many of its objects are not there, or not as long as they should be.
    pub(super) lacking: usize,
}

impl Surveyed {
    pub(super) fn completeness(&self) -> Completeness {
        let reason = match (&self.outline, self.lacking) {
            (Ok(_), 0) => return Completeness::Whole,
            (Err(reason), _) => reason.clone(),
            (Ok(_), lacking) => {
                format!("{lacking} of its objects are missing or of another length; copy it there again, or delete it")
            }
        };
        Completeness::Harmed(reason)
    }
}

impl Mirror {
    /// The manifests that are there by their names, the oldest first.
    pub(super) async fn manifests(&self) -> Result<Vec<(ManifestKey, SystemTime)>, ObjectError> {
        let listed = self.bucket.list(MANIFESTS, MOST_NAMES).await?;
        let mut found: Vec<_> = listed
            .into_iter()
            .filter_map(|one| Some((manifest_key(&one.name)?, one.modified)))
            .collect();
        found.sort_unstable_by_key(|(key, modified)| (key.step, *modified, key.id));
        Ok(found)
    }

    pub(super) async fn survey(&self) -> Result<Survey, ObjectError> {
        // In this order: what a manifest names was there before it.
        let manifests = self.manifests().await?;
        let there = self.inventory().await?;
        let mut described = Described::new();
        let mut checkpoints = Vec::new();
        for (key, modified) in manifests {
            let outline = self.outline(key, &mut described).await.map_err(|error| error.to_string());
            let objects = outline.iter().flat_map(Outline::objects);
            let lacking = objects.filter(|(name, bytes)| there.get(name) != Some(bytes)).count();
            checkpoints.push(Surveyed {
                key,
                modified,
                outline,
                lacking,
            });
        }
        Ok(Survey { checkpoints, there })
    }

    /// All checkpoints, the oldest first. What they share is counted by objects.
    ///
    /// # Errors
    /// When the mirror cannot be listed.
    pub async fn list(&self) -> Result<Listing, ObjectError> {
        let survey = self.survey().await?;
        let mut users: BTreeMap<String, u32> = BTreeMap::new();
        let (mut pieces, mut piece_bytes) = (BTreeSet::new(), 0);
        for outline in survey.checkpoints.iter().filter_map(|one| one.outline.as_ref().ok()) {
            for (name, _) in outline.objects() {
                *users.entry(name).or_default() += 1;
            }
            for (piece, length) in outline.packs.iter().flat_map(|pack| pack.pieces.iter().copied()) {
                piece_bytes += if pieces.insert(piece) { length as u64 } else { 0 };
            }
        }
        let entries = survey.checkpoints.iter().map(|one| entry(one, &survey.there, &users));
        Ok(Listing {
            entries: entries.collect(),
            usage: Usage {
                pieces: pieces.len() as u64,
                piece_bytes,
                segments: survey.there.len() as u64,
                segment_bytes: survey.there.values().sum(),
            },
        })
    }

    /// Everything that one checkpoint says of itself.
    ///
    /// # Errors
    /// When its manifest, or the description of its tensors, cannot be read.
    pub async fn show(&self, key: ManifestKey) -> Result<Details, UnreadManifest> {
        let survey = self.survey().await.map_err(|error| UnreadManifest(error.to_string()))?;
        let found = survey.checkpoints.into_iter().find(|one| one.key == key);
        let found = found.ok_or_else(|| UnreadManifest("it was deleted meanwhile".to_owned()))?;
        let completeness = found.completeness();
        let outline = found.outline.map_err(UnreadManifest)?;
        let hash = outline.layout.state_hash(&outline.manifest);
        let specs = outline.layout.tensors.into_iter().map(|tensor| tensor.spec).collect();
        Ok(Details {
            key,
            committed: Some(found.modified),
            manifest: outline.manifest,
            state: Ok((specs, hash)),
            completeness,
        })
    }

    /// Reads every byte that a checkpoint names, and judges each by that. Calls `progress` with the bytes of each object.
    ///
    /// # Errors
    /// When the mirror cannot be listed.
    pub async fn verify(&self, mut progress: impl FnMut(u64) + Send) -> Result<Verification, ObjectError> {
        let survey = self.survey().await?;
        // Of each object, the pieces in it that are not what they should be; or why it cannot be read.
        let mut read: BTreeMap<String, Result<Vec<PieceHash>, String>> = BTreeMap::new();
        let (mut verified, mut lacking) = (Verified::default(), BTreeSet::new());
        let mut checkpoints = Vec::new();
        for one in survey.checkpoints {
            let mut checked = Checked::new(one.key);
            let outline = match one.outline {
                Ok(outline) => outline,
                Err(reason) => {
                    checked.problems.push(reason);
                    checkpoints.push(checked);
                    continue;
                }
            };
            for pack in &outline.packs {
                if !read.contains_key(&pack.name) {
                    let found = self.look_into(pack).await;
                    verified.pieces += (pack.pieces.len() - found.as_ref().map_or(pack.pieces.len(), Vec::len)) as u64;
                    verified.bytes += if found.is_ok() { pack.bytes as u64 } else { 0 };
                    progress(pack.bytes as u64);
                    read.insert(pack.name.clone(), found);
                }
                let Some(found) = read.get(&pack.name) else { continue };
                self.note(&outline, pack, found, &mut checked, &mut lacking);
            }
            let more = checked.problems.len().saturating_sub(NAMED);
            if more > 0 {
                checked.problems.truncate(NAMED);
                checked.problems.push(format!("{more} more are damaged or missing"));
            }
            let is_whole = checked.problems.is_empty();
            checked.state = is_whole.then(|| outline.layout.state_hash(&outline.manifest));
            checkpoints.push(checked);
        }
        Ok(Verification {
            directories: vec![(PathBuf::from(self.to_string()), verified)],
            noticed: Vec::new(),
            lacking,
            checkpoints,
        })
    }

    /// The pieces of a pack that are not what they should be, or why it cannot be read.
    pub(super) async fn look_into(&self, pack: &Pack) -> Result<Vec<PieceHash>, String> {
        let bytes = self.pack(pack).await.map_err(|error| error.to_string())?;
        let pack = pack.clone();
        let compared = blocking(move || {
            let bad = pack
                .ranges()
                .filter(|(piece, range)| PieceHash::of(&bytes[range.clone()]) != *piece);
            bad.map(|(piece, _)| piece).collect()
        });
        Ok(compared.await)
    }

    fn note(
        &self,
        outline: &Outline,
        pack: &Pack,
        found: &Result<Vec<PieceHash>, String>,
        checked: &mut Checked,
        lacking: &mut BTreeSet<PieceHash>,
    ) {
        match found {
            Ok(bad) => {
                let object = self.bucket.name_of(&pack_object(&pack.name));
                for &piece in bad {
                    lacking.insert(piece);
                    let place = outline.place_of(piece);
                    checked.problems.push(format!("{place}: {object}: it is not what was saved"));
                }
            }
            Err(reason) => {
                lacking.extend(pack.pieces.iter().map(|(piece, _)| *piece));
                let place = outline.layout.place_of(pack.first).unwrap_or_default();
                let count = pack.pieces.len();
                checked
                    .problems
                    .push(format!("{place}, and so on ({count} pieces): {reason}"));
            }
        }
    }
}

fn entry(one: &Surveyed, there: &Inventory, users: &BTreeMap<String, u32>) -> Entry {
    let (mut own_bytes, mut shared_bytes) = (0, 0);
    let names: BTreeSet<String> = one.outline.iter().flat_map(Outline::objects).map(|(name, _)| name).collect();
    for name in names {
        let bytes = there.get(&name).copied().unwrap_or(0);
        match users.get(&name) {
            Some(1) => own_bytes += bytes,
            Some(_) | None => shared_bytes += bytes,
        }
    }
    Entry {
        key: one.key,
        committed: Some(one.modified),
        manifest: one.outline.as_ref().ok().map(|outline| outline.manifest.clone()),
        own_bytes,
        shared_bytes,
        completeness: one.completeness(),
    }
}
