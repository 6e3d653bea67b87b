//! Any use of a store, with a simple model of what must be there beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sardana_protocol::words::Step;
use sardana_storage::store::{
    CollectError, CommitError, DeleteError, Finding, Manifest, ManifestKey, Options, PieceHash, PinId, Recorded, Store,
    WriteError,
};

use crate::index::MemoryIndex;
use crate::memory::{MemoryDisk, Said};
use crate::random::Random;

pub(crate) const FOLDER: &str = "/store";

/// Small segments, so that there are many.
pub(crate) const OPTIONS: Options = Options { segment_bytes: 12 << 10 };

/// Pieces have numbers. This one's bytes.
pub(crate) fn piece(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let len = match number % 8 {
        0 => random.below(3),
        1 => 64,
        7 => random.within(4_000..9_000),
        _ => random.below(1_500),
    };
    (0..len).map(|_| random.next().to_le_bytes()[2]).collect()
}

pub(crate) const PIECES: u64 = 40;

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Put {
        pin: u64,
        pieces: Vec<u64>,
    },
    Sync,
    /// Of these pieces, as far as they are held; with everything that is not yet, too.
    Commit {
        step: u64,
        pieces: Vec<u64>,
    },
    Delete(u64),
    Unpin(u64),
    Collect,
    Heal(u64),
    Reopen(With),
}

/// With which index a store is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Index,
    Nothing,
    /// An index that fails after so many changes.
    Failing(u64),
}

pub(crate) fn random_act(random: &mut Random) -> Act {
    let mut pieces = |most: u64| {
        let first = random.below(PIECES);
        (0..random.within(1..most))
            .map(|more| (first + more) % PIECES)
            .collect::<Vec<_>>()
    };
    let few = pieces(9);
    match random.below(24) {
        0..8 => Act::Put {
            pin: random.below(2),
            pieces: few,
        },
        8..13 => Act::Sync,
        13..17 => Act::Commit {
            step: random.below(9),
            pieces: few,
        },
        17 => Act::Delete(random.next()),
        18 => Act::Unpin(random.below(2)),
        19 | 20 => Act::Collect,
        21 => Act::Heal(random.below(PIECES)),
        22 => Act::Reopen(match random.below(4) {
            0 => With::Nothing,
            1 => With::Failing(random.below(20)),
            _ => With::Index,
        }),
        _ => Act::Delete(0),
    }
}

/// What must be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Put, and perhaps not synced.
    pub(crate) put: BTreeSet<u64>,
    /// Acknowledged, and not perhaps collected.
    pub(crate) held: BTreeSet<u64>,
    pub(crate) pins: BTreeMap<u64, BTreeSet<u64>>,
    pub(crate) manifests: BTreeMap<ManifestKey, (Manifest, BTreeSet<u64>)>,
    pub(crate) deleted: BTreeSet<ManifestKey>,
    /// It may be there, or deleted: a call has failed in the middle.
    pub(crate) unclear: BTreeMap<ManifestKey, (Manifest, BTreeSet<u64>)>,
}

pub(crate) struct Acting {
    pub(crate) disk: MemoryDisk,
    pub(crate) index: MemoryIndex,
    pub(crate) store: Option<Store>,
    pub(crate) model: Model,
    pub(crate) findings: Vec<Finding>,
}

fn full(error: &WriteError) -> bool {
    match error {
        WriteError::Full(_) => true,
        WriteError::Poisoned { .. } => false,
        WriteError::TooLong(_) | WriteError::Mismatch { .. } => panic!("{error}"),
    }
}

impl Acting {
    /// On a disk that has what `model` says.
    pub(crate) fn on(disk: MemoryDisk, recorded: Recorded, model: Model) -> Self {
        let index = MemoryIndex::new(&disk, recorded);
        Self {
            disk,
            index,
            store: None,
            model,
            findings: Vec::new(),
        }
    }

    pub(crate) fn new() -> Self {
        let mut new = Self::on(MemoryDisk::default(), Recorded::default(), Model::default());
        new.open(With::Index).unwrap();
        new
    }

    pub(crate) fn open(&mut self, with: With) -> Result<(), String> {
        // What is not acknowledged may be there afterwards or not, and what was pinned is not any more.
        self.model.pins.clear();
        self.model.put.clear();
        self.store = None;
        let index = match with {
            With::Index | With::Failing(_) => Some((Box::new(self.index.clone()) as Box<_>, self.index.recorded())),
            With::Nothing => None,
        };
        self.index.fail_after(if let With::Failing(changes) = with {
            changes
        } else {
            u64::MAX
        });
        let opened = Store::open_on(Arc::new(self.disk.clone()), Path::new(FOLDER), index, OPTIONS);
        let opened = opened.map_err(|error| error.to_string())?;
        self.store = Some(opened.store);
        self.findings = opened.findings;
        self.settle();
        Ok(())
    }

    /// What was unclear is seen now.
    fn settle(&mut self) {
        self.disk.quiet(true);
        let store = self.store.as_ref().unwrap();
        let listed: BTreeSet<_> = store.list().iter().map(|listed| listed.key).collect();
        for (key, manifest) in std::mem::take(&mut self.model.unclear) {
            if listed.contains(&key) {
                self.model.manifests.insert(key, manifest);
            } else if store.is_deleted(key) {
                self.model.deleted.insert(key);
            }
        }
        self.disk.quiet(false);
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Does it. False if the store must be opened anew.
    pub(crate) fn act(&mut self, act: &Act) -> bool {
        let went = match act {
            Act::Put { pin, pieces } => self.put(*pin, pieces),
            Act::Sync => self.sync(),
            Act::Commit { step, pieces } => self.commit(*step, pieces),
            Act::Delete(which) => self.delete(*which),
            Act::Unpin(pin) => {
                self.store().unpin(PinId::new(*pin));
                self.model.pins.remove(pin);
                Ok(())
            }
            Act::Collect => self.collect(),
            Act::Heal(number) => self.heal(*number),
            Act::Reopen(with) => return self.open(*with).is_ok(),
        };
        self.say();
        went.as_ref().err().is_none_or(full)
    }

    fn say(&self) {
        let hash = |number: &u64| PieceHash::of(&piece(*number));
        let unclear = |key: &ManifestKey| self.model.unclear.contains_key(key);
        self.disk.say(Said {
            pieces: self.model.held.iter().map(hash).collect(),
            committed: self.model.manifests.keys().copied().filter(|key| !unclear(key)).collect(),
            deleted: self.model.deleted.clone(),
        });
    }

    fn put(&mut self, pin: u64, pieces: &[u64]) -> Result<(), WriteError> {
        let bytes: Vec<_> = pieces.iter().map(|number| piece(*number)).collect();
        let slices: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        let hashes = self.store().put(PinId::new(pin), &slices)?;
        assert!(hashes.iter().zip(&bytes).all(|(hash, bytes)| *hash == PieceHash::of(bytes)));
        self.model.put.extend(pieces);
        self.model.pins.entry(pin).or_default().extend(pieces);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.store().sync().inspect_err(|_| self.model.put.clear())?;
        self.model.held.append(&mut self.model.put);
        Ok(())
    }

    fn heal(&mut self, number: u64) -> Result<(), WriteError> {
        let bytes = piece(number);
        self.store().heal(PieceHash::of(&bytes), &bytes)?;
        self.model.held.insert(number);
        self.model.held.append(&mut self.model.put);
        Ok(())
    }

    fn commit(&mut self, step: u64, pieces: &[u64]) -> Result<(), WriteError> {
        let hashes: Vec<_> = pieces.iter().map(|number| PieceHash::of(&piece(*number))).collect();
        let manifest = Manifest::new(Step::new(step), hashes, format!("{pieces:?}").into_bytes());
        let key = manifest.key();
        let numbers: BTreeSet<u64> = pieces.iter().copied().collect();
        // While it is under way it may be there.
        let said = self.model.manifests.contains_key(&key);
        match self.store().commit(&manifest) {
            Ok(found) => {
                assert!(found == key && !self.model.deleted.contains(&key));
                self.model.held.extend(&numbers);
                self.model.manifests.insert(key, (manifest, numbers));
            }
            Err(CommitError::Deleted(_)) => assert!(self.model.deleted.contains(&key)),
            Err(CommitError::Incomplete { count, missing, .. }) => {
                assert!(count > 0 && !missing.is_empty());
                let unheld = self.disk.failed() || !self.model.held.is_superset(&numbers);
                assert!(unheld, "expected {numbers:?} to be held (CKPT-1)");
            }
            Err(CommitError::Write(error)) => {
                if !said && !full(&error) {
                    self.model.unclear.insert(key, (manifest, numbers));
                }
                return Err(error);
            }
            Err(error @ CommitError::TooLarge { .. }) => panic!("{error}"),
        }
        Ok(())
    }

    fn delete(&mut self, which: u64) -> Result<(), WriteError> {
        let count = self.model.manifests.len() as u64;
        let Some(&key) = self.model.manifests.keys().nth((which % count.max(1)) as usize) else {
            return Ok(());
        };
        // From here on until it is deleted either may be.
        let manifest = self.model.manifests.remove(&key).unwrap();
        self.say();
        match self.store().delete(key) {
            Ok(()) => drop(self.model.deleted.insert(key)),
            Err(DeleteError::Write(error)) => {
                let unclear = if full(&error) {
                    &mut self.model.manifests
                } else {
                    &mut self.model.unclear
                };
                unclear.insert(key, manifest);
                return Err(error);
            }
            Err(error @ DeleteError::NotThere { .. }) => panic!("{error}"),
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), WriteError> {
        let named = self.model.manifests.values().chain(self.model.unclear.values());
        let named: BTreeSet<u64> = named.flat_map(|(_, numbers)| numbers.iter().copied()).collect();
        let pinned: BTreeSet<u64> = self.model.pins.values().flatten().copied().collect();
        let kept = |number: &u64| named.contains(number) || pinned.contains(number);
        self.model.held.retain(kept);
        self.model.put.retain(kept);
        self.say();
        // A collection that writes also syncs what was put, but does not say so.
        match self.store().collect() {
            Ok(collected) => assert!(self.disk.failed() || collected.damaged.is_empty(), "{collected:?}"),
            Err(CollectError::Write(error)) => return Err(error),
            Err(error @ CollectError::Unreadable { .. }) => assert!(self.disk.failed(), "{error}"),
        }
        Ok(())
    }

    /// Compares all that is there with what must be.
    pub(crate) fn check(&self) {
        self.disk.quiet(true);
        self.check_all();
        self.disk.quiet(false);
    }

    fn check_all(&self) {
        let (store, model) = (self.store(), &self.model);
        let listed: BTreeMap<_, _> = store.list().into_iter().map(|listed| (listed.key, listed.problem)).collect();
        for (key, (manifest, numbers)) in &model.manifests {
            assert_eq!(listed.get(key), Some(&None), "{key}: {:?}", self.findings);
            assert_eq!(&store.show(*key).unwrap(), manifest);
            numbers.iter().for_each(|number| self.read(*number));
        }
        for key in listed.keys() {
            assert!(
                model.manifests.contains_key(key) || model.unclear.contains_key(key),
                "{key} is not expected"
            );
        }
        for key in &model.deleted {
            assert!(store.is_deleted(*key) && !listed.contains_key(key), "{key} has come back");
        }
        model.held.iter().for_each(|number| self.read(*number));
        let newest = store.newest();
        if model.unclear.is_empty() {
            assert_eq!(newest.key, model.manifests.keys().next_back().copied());
            assert!(newest.passed_over.is_empty());
        }
    }

    fn read(&self, number: u64) {
        let bytes = piece(number);
        let read = self.store().read(PieceHash::of(&bytes));
        let same = read.as_ref().is_ok_and(|read| *read == bytes);
        assert!(same, "piece {number}: {:?}; {:?}", read.err(), self.findings);
    }
}
