//! Changes that are made together or not at all.

use std::collections::BTreeMap;

use super::error::CatalogueError;
use super::limits::{BATCH_BYTES, BATCH_CHANGES, KEY_BYTES, VALUE_BYTES};
use super::record::is_name;

/// Changes to any number of tables, made together or not at all by [`Catalogue::commit`](super::Catalogue::commit). Of
/// several changes to one key the last counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// None removes.
    changes: BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>,
}

/// A change of one key.
pub(super) struct KeyChange<'a> {
    pub(super) table: &'a str,
    pub(super) key: &'a [u8],
    /// None removes.
    pub(super) value: Option<&'a [u8]>,
}

impl Batch {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also puts `value` under `key` into `table`, in place of what is there. Sizes are looked at when the batch is
    /// committed.
    #[must_use]
    pub fn put(mut self, table: &str, key: &[u8], value: &[u8]) -> Self {
        self.changes
            .insert((table.to_owned(), key.to_owned()), Some(value.to_owned()));
        self
    }

    /// Also removes `key` from `table`, if it is there.
    #[must_use]
    pub fn remove(mut self, table: &str, key: &[u8]) -> Self {
        self.changes.insert((table.to_owned(), key.to_owned()), None);
        self
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in the order of tables and keys.
    pub(super) fn changes(&self) -> impl Iterator<Item = KeyChange<'_>> {
        self.changes.iter().map(|((table, key), value)| KeyChange {
            table,
            key,
            value: value.as_deref(),
        })
    }

    /// # Errors
    /// When a name cannot be a table's, or anything is too large.
    pub(super) fn check(&self) -> Result<(), CatalogueError> {
        let mut bytes = 0;
        for KeyChange { table, key, value } in self.changes() {
            if !is_name(table) {
                return Err(CatalogueError::Name(table.to_owned()));
            }
            let value = value.map_or(0, <[u8]>::len);
            at_most("key", KEY_BYTES, key.len())?;
            at_most("value", VALUE_BYTES, value)?;
            bytes += key.len() + value;
        }
        if self.changes.len() > BATCH_CHANGES {
            return Err(CatalogueError::TooMany {
                limit: BATCH_CHANGES,
                found: self.changes.len(),
            });
        }
        at_most("batch", BATCH_BYTES, bytes)
    }
}

/// # Errors
/// When `found` is more than `limit`.
pub(super) fn at_most(what: &'static str, limit: usize, found: usize) -> Result<(), CatalogueError> {
    if found <= limit {
        Ok(())
    } else {
        Err(CatalogueError::TooLarge { what, limit, found })
    }
}
