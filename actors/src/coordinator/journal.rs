//! The job's record as entries of a catalogue, of which only those that have changed are written.
//!
//! ```text
//!  job      0                the form; earlier versions had the whole record here, in up to three parts
//!  record   identity, part   what every worker of the job computes
//!           rest, part       what was counted, and where the job stands
//!           torn             several commits are under way
//!  workers  id               what the record says of one worker
//! ```
//! What is on the disk is known from what was read and written, so that the difference is right also after a failure: then the catalogue
//! is opened and read anew. A difference that does not fit one commit is marked as torn until the last of it is there; a life that
//! reads it torn knows that its count is not sure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sardana_protocol::codec::{CodecError, decode, encode};
use sardana_protocol::job::{EarlierIdentity, JobIdentity, UncompressedIdentity};
use sardana_protocol::membership::{EarlierRecord, JobRecord, WorkerRecord};
use sardana_protocol::words::WorkerId;
use sardana_storage::catalogue::limits::{BATCH_BYTES, BATCH_CHANGES, KEY_BYTES, SCAN_ENTRIES, VALUE_BYTES};
use sardana_storage::catalogue::{Batch, Catalogue, Found, Repair};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::limits::{RECORD_ENTRIES, RECORD_VALUES};
use super::records::{KeptJob, RecordsError};

const JOB: &str = "job";
const RECORD: &str = "record";
const WORKERS: &str = "workers";

/// In place of a record's first part, which it cannot be: a version that does not know it says so.
const FORM: &[u8] = b"sardana record 4";

/// The form before gradients could be compressed.
const WITHOUT_COMPRESSION: &[u8] = b"sardana record 3";

/// The form before jobs told what they train on.
const WITHOUT_DATA: &[u8] = b"sardana record 2";

const IDENTITY: &str = "identity";
const REST: &str = "rest";
const TORN: &str = "torn";

/// Longest of the two parts that concern no single worker.
const LONG: usize = RECORD_VALUES * VALUE_BYTES;

/// Longest entry of a worker: some numbers.
const SHORT: usize = 256;

/// Table, and key.
type Key = (&'static str, Vec<u8>);
type Entries = BTreeMap<Key, Vec<u8>>;

/// A record on a disk.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// None after a failure, until it is opened anew.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    catalogue: Catalogue,
    /// What is there.
    written: Entries,
}

/// A journal that was opened, the job that it has, and what was repaired.
pub(super) type Opened = (Journal, Option<KeptJob>, Vec<Repair>);

impl Journal {
    /// Opens the journal in the folder `path`, or makes one. Blocks.
    pub(super) fn open(path: &Path) -> Result<Opened, RecordsError> {
        let (open, repairs) = Open::at(path)?;
        let job = job_of(&open.written)?;
        let journal = Self {
            path: path.to_owned(),
            open: Some(open),
        };
        Ok((journal, job, repairs))
    }

    /// Makes it say this, or nothing. On the disk when this returns. Says how many entries were changed. Blocks.
    pub(super) fn write(&mut self, job: Option<&KeptJob>) -> Result<usize, RecordsError> {
        let wanted = job.map(entries).transpose()?.unwrap_or_default();
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::at(&self.path)?.0,
        };
        let changed = open.become_so(wanted)?;
        // Not after a failure: then what is there is not known.
        self.open = Some(open);
        Ok(changed)
    }

    /// As after a failure.
    #[cfg(test)]
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}

impl Open {
    fn at(path: &Path) -> Result<(Self, Vec<Repair>), RecordsError> {
        let opened = Catalogue::open(path)?;
        let repairs = match opened.found {
            Found::Fresh | Found::Used => Vec::new(),
            Found::Repaired(repairs) => repairs,
        };
        let written = read(&opened.catalogue)?;
        let catalogue = opened.catalogue;
        Ok((Self { catalogue, written }, repairs))
    }

    fn become_so(&mut self, wanted: Entries) -> Result<usize, RecordsError> {
        let changed = difference(&self.written, &wanted);
        let mut batches = batches(&self.written, &wanted, &changed);
        if batches.len() > 1 {
            let torn = TORN.as_bytes();
            if let Some(first) = batches.first_mut() {
                *first = std::mem::take(first).put(RECORD, torn, torn);
            }
            if let Some(last) = batches.last_mut() {
                *last = std::mem::take(last).remove(RECORD, torn);
            }
        }
        for batch in &batches {
            self.catalogue.commit(batch)?;
        }
        self.written = wanted;
        Ok(changed.len())
    }
}

fn difference(old: &Entries, new: &Entries) -> Vec<Key> {
    let keys: BTreeSet<&Key> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .cloned()
        .collect()
}

/// The changes, in as few commits as they fit. In each is room for one short change more.
fn batches(old: &Entries, new: &Entries, changed: &[Key]) -> Vec<Batch> {
    let (mut batches, mut batch, mut changes, mut bytes) = (Vec::new(), Batch::new(), 0, 0);
    for key in changed {
        let value = new.get(key);
        let more = key.1.len() + value.map_or(0, Vec::len);
        if changes + 1 >= BATCH_CHANGES || bytes + more + KEY_BYTES > BATCH_BYTES {
            batches.push(std::mem::take(&mut batch));
            (changes, bytes) = (0, 0);
        }
        batch = match value {
            Some(value) => batch.put(key.0, &key.1, value),
            None => batch.remove(key.0, &key.1),
        };
        debug_assert!(value.is_some() || old.contains_key(key), "only what is there is removed");
        changes += 1;
        bytes += more;
    }
    if changes > 0 {
        batches.push(batch);
    }
    batches
}

fn entries(job: &KeptJob) -> Result<Entries, CodecError> {
    let (rest, workers) = job.record.clone().apart();
    let mut entries = Entries::from([((JOB, vec![0]), FORM.to_vec())]);
    for (name, bytes) in [
        (IDENTITY, encode(&(&job.identity, &job.auxiliary), LONG)?),
        (REST, encode(&rest, LONG)?),
    ] {
        for (part, bytes) in (0..).zip(bytes.chunks(VALUE_BYTES)) {
            entries.insert((RECORD, part_key(name, part)), bytes.to_vec());
        }
    }
    for (worker, one) in &workers {
        let key = worker.get().to_be_bytes().to_vec();
        entries.insert((WORKERS, key), encode(one, SHORT)?);
    }
    Ok(entries)
}

fn part_key(name: &str, part: u8) -> Vec<u8> {
    [name.as_bytes(), &[part]].concat()
}

fn read(catalogue: &Catalogue) -> Result<Entries, RecordsError> {
    let mut entries = Entries::new();
    for name in [JOB, RECORD, WORKERS] {
        let table = catalogue.table(name)?;
        let mut from = Vec::new();
        loop {
            let found = table.scan(&from, SCAN_ENTRIES)?;
            let Some((last, _)) = found.last() else { break };
            from = [last.as_slice(), &[0]].concat();
            entries.extend(found.into_iter().map(|(key, value)| ((name, key), value)));
            if entries.len() > RECORD_ENTRIES {
                return Err(RecordsError::Record(CodecError::TooLong {
                    length: entries.len(),
                    limit: RECORD_ENTRIES,
                }));
            }
        }
    }
    Ok(entries)
}

fn job_of(entries: &Entries) -> Result<Option<KeptJob>, RecordsError> {
    match entries.get(&(JOB, vec![0])).map(Vec::as_slice) {
        None => Ok(None),
        Some(FORM) => Ok(Some(present::<JobIdentity>(entries)?)),
        Some(WITHOUT_COMPRESSION) => Ok(Some(present::<UncompressedIdentity>(entries)?)),
        Some(WITHOUT_DATA) => Ok(Some(present::<EarlierIdentity>(entries)?)),
        Some(_) => Ok(Some(earlier(entries)?)),
    }
}

fn joined(entries: &Entries, table: &'static str, key: impl Fn(u8) -> Vec<u8>) -> Vec<u8> {
    let parts = (0..=u8::MAX).map_while(|part| entries.get(&(table, key(part))));
    parts.flatten().copied().collect()
}

fn present<I: DeserializeOwned + Into<JobIdentity>>(entries: &Entries) -> Result<KeptJob, CodecError> {
    let long = |name| joined(entries, RECORD, |part| part_key(name, part));
    let (identity, auxiliary) = decode::<(I, Vec<String>)>(&long(IDENTITY), LONG)?;
    let rest: JobRecord = decode(&long(REST), LONG)?;
    let mut workers = BTreeMap::new();
    for ((_, key), bytes) in entries.iter().filter(|((table, _), _)| *table == WORKERS) {
        let id = <[u8; 8]>::try_from(key.as_slice()).map_err(|_| CodecError::Malformed {
            reason: format!("expected a worker's id of 8 bytes, found {}", key.len()),
        })?;
        let one: WorkerRecord = decode(bytes, SHORT)?;
        workers.insert(WorkerId::new(u64::from_be_bytes(id)), one);
    }
    let record = JobRecord::together(rest, workers);
    let torn = entries.contains_key(&(RECORD, TORN.as_bytes().to_vec()));
    Ok(KeptJob {
        identity: identity.into(),
        auxiliary,
        record: if torn { record.torn() } else { record },
    })
}

/// As earlier versions wrote it.
fn earlier(entries: &Entries) -> Result<KeptJob, CodecError> {
    #[derive(Deserialize)]
    struct Earlier {
        identity: EarlierIdentity,
        auxiliary: Vec<String>,
        record: EarlierRecord,
    }
    let job: Earlier = decode(&joined(entries, JOB, |part| vec![part]), LONG)?;
    Ok(KeptJob {
        identity: job.identity.into(),
        auxiliary: job.auxiliary,
        record: job.record.into(),
    })
}
