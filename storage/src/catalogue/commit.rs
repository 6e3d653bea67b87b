//! The open catalogue: reading, applying batches, and syncing them, several at once if they come at once.
//!
//! ```text
//! apply (one at a time, in memory) ─▶ sled flush ─▶ fdatasync sled's data ─▶ overwrite half a marker ─▶ fdatasync it ─▶ acknowledged
//! ```
//!
//! A write or sync that failed is not tried again: after a failed sync the system forgets which pages were not written, and
//! the next sync succeeds without them. The catalogue is poisoned instead.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use super::batch::{Batch, KeyChange};
use super::check::{failed, value_of};
use super::error::CatalogueError;
use super::limits::{CHUNK_BYTES, SCAN_ENTRIES};
use super::marker::Marker;
use super::open::Parts;
use super::record::{HEAD_KEY, Head, Heading, chunk_key, entry_key, parse_entry};
use super::store::{Fault, Store};
use crate::lock::{FileLock, held};

/// Keys and values, in the order of the keys.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug)]
pub(super) struct Open {
    folder: PathBuf,
    pub(super) since: u64,
    /// None only while it is dropped.
    store: Option<(Store, FileLock)>,
    /// What was applied. Held while sled is asked anything, so that no reader sees half a batch.
    applied: Mutex<Applied>,
    /// What was synced. Held during a sync: a thread that comes meanwhile waits, and then finds its own batch synced, or syncs all
    /// that wait.
    synced: Mutex<Synced>,
    /// Why nothing more is done.
    poison: OnceLock<String>,
}

#[derive(Debug)]
struct Applied {
    head: Head,
    tables: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Synced {
    commits: u64,
    marker: Marker,
}

impl Open {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            folder: parts.folder,
            since: parts.since,
            synced: Mutex::new(Synced {
                commits: parts.head.commits,
                marker: parts.marker,
            }),
            applied: Mutex::new(Applied {
                head: parts.head,
                tables: parts.contents.tables,
            }),
            store: Some((parts.store, parts.lock)),
            poison: OnceLock::new(),
        }
    }

    pub(super) fn commits(&self) -> u64 {
        held(&self.synced).commits
    }

    pub(super) fn len(&self, table: &str) -> u64 {
        held(&self.applied).tables.get(table).copied().unwrap_or(0)
    }

    /// sled, unless something has failed before.
    pub(super) fn store(&self) -> Result<&Store, CatalogueError> {
        match (self.poison.get(), &self.store) {
            (None, Some((store, _))) => Ok(store),
            (reason, _) => Err(self.poisoned(reason.cloned().unwrap_or_default())),
        }
    }

    fn poisoned(&self, reason: String) -> CatalogueError {
        CatalogueError::Poisoned {
            path: self.folder.clone(),
            reason,
        }
    }

    /// From here on nothing works any more.
    fn spoil(&self, fault: &Fault) -> CatalogueError {
        let reason = self.poison.get_or_init(|| fault.to_string());
        self.poisoned(reason.clone())
    }

    pub(super) fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        let _whole = held(&self.applied);
        let store = self.store()?;
        let found = store.get(&entry_key(table, key));
        match found.map_err(|fault| failed(store.path(), fault))? {
            Some(bytes) => Ok(Some(value_of(store, table, key, &bytes)?.1)),
            None => Ok(None),
        }
    }

    pub(super) fn scan(&self, table: &str, from: &[u8], limit: usize) -> Result<Entries, CatalogueError> {
        let _whole = held(&self.applied);
        let store = self.store()?;
        let found = store.scan(&entry_key(table, from), limit.min(SCAN_ENTRIES));
        let mut entries = Vec::new();
        for (key, bytes) in found.map_err(|fault| failed(store.path(), fault))? {
            match parse_entry(&key) {
                Some((of, key)) if of == table => entries.push((key.to_owned(), value_of(store, table, key, &bytes)?.1)),
                // The next table begins.
                Some(_) | None => break,
            }
        }
        Ok(entries)
    }

    pub(super) fn commit(&self, batch: &Batch) -> Result<u64, CatalogueError> {
        batch.check()?;
        let number = self.apply(batch)?;
        self.sync(number)?;
        Ok(number)
    }

    /// Gives `batch` to sled: its number.
    fn apply(&self, batch: &Batch) -> Result<u64, CatalogueError> {
        let mut applied = held(&self.applied);
        let store = self.store()?;
        if batch.is_empty() {
            return Ok(applied.head.commits);
        }
        let mut change = Change {
            writes: sled::Batch::default(),
            head: applied.head.clone(),
            tables: applied.tables.clone(),
        };
        for KeyChange { table, key, value } in batch.changes() {
            let name = entry_key(table, key);
            let old = store.get(&name).map_err(|fault| self.spoil(&fault))?;
            if let Some(old) = &old {
                change.take_away(table, &value_of(store, table, key, old)?.0);
            }
            match value {
                Some(value) => change.put(table, key, name, value),
                None if old.is_some() => change.writes.remove(name),
                None => {}
            }
        }
        change.head.commits += 1;
        change.writes.insert(HEAD_KEY, change.head.encode());
        store.apply(change.writes).map_err(|fault| self.spoil(&fault))?;
        applied.head = change.head;
        applied.tables = change.tables;
        Ok(applied.head.commits)
    }

    /// Returns when batch `number` is on the disk.
    fn sync(&self, number: u64) -> Result<(), CatalogueError> {
        let mut synced = held(&self.synced);
        if synced.commits >= number {
            return Ok(());
        }
        let store = self.store()?;
        let head = held(&self.applied).head.clone();
        store.sync().map_err(|fault| self.spoil(&fault))?;
        let marked = synced.marker.advance(&head);
        marked.map_err(|error| self.spoil(&Fault::Disk(error)))?;
        synced.commits = head.commits;
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some((store, lock)) = self.store.take() {
            store.close(Some(lock));
        }
    }
}

/// What a batch will have changed.
struct Change {
    writes: sled::Batch,
    head: Head,
    tables: BTreeMap<String, u64>,
}

impl Change {
    fn take_away(&mut self, table: &str, old: &Heading) {
        for index in 0..old.count() {
            self.writes.remove(chunk_key(old.chunks, index));
        }
        self.head.digest.remove(&old.hash);
        self.head.records = self.head.records.saturating_sub(1);
        if let Some(count) = self.tables.get_mut(table) {
            *count = count.saturating_sub(1);
        }
    }

    fn put(&mut self, table: &str, key: &[u8], name: Vec<u8>, value: &[u8]) {
        let heading = Heading::new(table, key, value, self.head.next_chunks);
        if heading.count() > 0 {
            self.head.next_chunks += 1;
            for (index, chunk) in (0..heading.count()).zip(value.chunks(CHUNK_BYTES)) {
                self.writes.insert(chunk_key(heading.chunks, index), chunk);
            }
        }
        self.writes.insert(name, heading.encode(value));
        self.head.digest.add(&heading.hash);
        self.head.records += 1;
        *self.tables.entry(table.to_owned()).or_insert(0) += 1;
    }
}
