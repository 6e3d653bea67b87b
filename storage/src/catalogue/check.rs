//! What sled gives back, compared with what was written: a record with its hash, all records together with the head. sled
//! may lose its newest batches, single updates in the middle, or everything, and say nothing; every record that is left may
//! be whole then.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::CatalogueError;
use super::limits::{CHUNK_BYTES, SCAN_ENTRIES};
use super::marker::Mark;
use super::record::{CHUNK, Digest, ENTRY, HEAD_KEY, Head, HeadFault, Heading, chunk_key, parse_entry, shown};
use super::store::{Fault, Store};

/// How many records are held in memory while all are looked at.
const PAGE: usize = SCAN_ENTRIES / 4;

/// Everything that there is, in figures.
#[derive(Debug)]
pub(super) struct Contents {
    /// None if there is nothing at all.
    pub(super) head: Option<Head>,
    /// How many entries each table has.
    pub(super) tables: BTreeMap<String, u64>,
}

/// What is wrong with the file at `path`.
pub(super) fn failed(path: &Path, fault: Fault) -> CatalogueError {
    let path = path.to_owned();
    match fault {
        Fault::Disk(source) => CatalogueError::Disk { path, source },
        damage @ (Fault::Damaged(_) | Fault::Panicked(_)) => damaged(&path, damage.to_string()),
    }
}

fn damaged(path: &Path, reason: impl Into<String>) -> CatalogueError {
    CatalogueError::Damaged {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// The value of an entry: what was written, or an error that names it. sled keeps `bytes` for it.
pub(super) fn value_of(store: &Store, table: &str, key: &[u8], bytes: &[u8]) -> Result<(Heading, Vec<u8>), CatalogueError> {
    let wrong = |reason: &str| CatalogueError::Record {
        path: store.path().to_owned(),
        table: table.to_owned(),
        key: shown(key),
        reason: reason.to_owned(),
    };
    let (heading, inline) = Heading::decode(bytes).ok_or_else(|| wrong("it does not have the form of one"))?;
    let mut value = inline.to_vec();
    for index in 0..heading.count() {
        let chunk = store.get(&chunk_key(heading.chunks, index));
        let chunk = chunk.map_err(|fault| failed(store.path(), fault))?;
        let chunk = chunk.filter(|chunk| chunk.len() <= CHUNK_BYTES);
        value.extend_from_slice(&chunk.ok_or_else(|| wrong("a part of its value is missing"))?);
    }
    if Heading::new(table, key, &value, heading.chunks) != heading {
        return Err(wrong("its hash is another one than when it was written"));
    }
    Ok((heading, value))
}

/// Reads everything and compares it with the head.
pub(super) fn contents(store: &Store) -> Result<Contents, CatalogueError> {
    let path = store.path();
    let mut reading = Reading::default();
    let mut from = Vec::new();
    loop {
        let page = store.scan(&from, PAGE).map_err(|fault| failed(path, fault))?;
        for (key, bytes) in &page {
            reading.take(store, key, bytes)?;
        }
        match page.last() {
            // The next key there can be.
            Some((last, _)) if page.len() == PAGE => from = [last, &[0][..]].concat(),
            Some(_) | None => break,
        }
    }
    reading.end(path)
}

#[derive(Default)]
struct Reading {
    head: Option<Head>,
    tables: BTreeMap<String, u64>,
    records: u64,
    digest: Digest,
    chunks: u64,
    wanted_chunks: u64,
}

impl Reading {
    fn take(&mut self, store: &Store, key: &[u8], bytes: &[u8]) -> Result<(), CatalogueError> {
        let strange = || damaged(store.path(), format!("there is a record with the strange key {}", shown(key)));
        match key.first() {
            Some(_) if key == HEAD_KEY => match Head::decode(bytes) {
                Ok(head) => self.head = Some(head),
                Err(HeadFault::Damaged) => {
                    return Err(damaged(store.path(), "its head has another hash than when it was written"));
                }
                Err(HeadFault::Newer(found)) => {
                    let path = store.path().to_owned();
                    return Err(CatalogueError::Newer { path, found });
                }
            },
            Some(&CHUNK) => self.chunks += 1,
            Some(&ENTRY) => {
                let (table, key) = parse_entry(key).ok_or_else(strange)?;
                let (heading, _) = value_of(store, table, key, bytes)?;
                self.digest.add(&heading.hash);
                self.records += 1;
                self.wanted_chunks += u64::from(heading.count());
                match self.tables.get_mut(table) {
                    Some(count) => *count += 1,
                    None => drop(self.tables.insert(table.to_owned(), 1)),
                }
            }
            Some(_) | None => return Err(strange()),
        }
        Ok(())
    }

    fn end(self, path: &Path) -> Result<Contents, CatalogueError> {
        let Some(head) = &self.head else {
            return if self.records == 0 && self.chunks == 0 {
                Ok(Contents {
                    head: None,
                    tables: self.tables,
                })
            } else {
                Err(damaged(path, "its head is missing"))
            };
        };
        if head.records != self.records {
            let reason = format!("expected {} records, found {}", head.records, self.records);
            return Err(damaged(path, reason));
        }
        if head.digest != self.digest {
            return Err(damaged(path, "some of its records are older than the others"));
        }
        if self.chunks != self.wanted_chunks {
            let reason = format!("expected {} parts of long values, found {}", self.wanted_chunks, self.chunks);
            return Err(damaged(path, reason));
        }
        Ok(Contents {
            head: self.head,
            tables: self.tables,
        })
    }
}

/// Compares what there is with what the marker says: nothing that was acknowledged may be missing.
pub(super) fn against(mark: &Mark, contents: &Contents, folder: &Path) -> Result<(), CatalogueError> {
    let path = folder.to_owned();
    let Some(head) = &contents.head else {
        return if mark.commits == 0 {
            Ok(())
        } else {
            Err(emptied(mark, folder))
        };
    };
    if head.id != mark.id {
        return Err(CatalogueError::Foreign {
            path,
            expected: data_encoding::HEXLOWER.encode(&mark.id),
            found: data_encoding::HEXLOWER.encode(&head.id),
        });
    }
    if head.commits < mark.commits {
        return Err(CatalogueError::Behind {
            path,
            expected: mark.commits,
            found: head.commits,
        });
    }
    if head.commits == mark.commits && *mark != Mark::of(head, mark.since) {
        return Err(damaged(folder, "its last commit is another one than the marker says"));
    }
    Ok(())
}

/// The catalogue in `folder` is empty although `mark` says otherwise.
pub(super) fn emptied(mark: &Mark, folder: &Path) -> CatalogueError {
    CatalogueError::Emptied {
        path: folder.to_owned(),
        since: mark.since,
        commits: mark.commits,
    }
}
