//! What the process of a depot reads of checkpoints: here, and at other depots what is not here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sardana_protocol::checkpoint::{DepotAddress, ManifestKey, PieceHash};
use sardana_storage::manifest;
use sardana_storage::store::PinId;

use super::Depot;
use super::keeper::{Keeper, words};

/// Reads checkpoints as long as the depot runs. Copies are the same.
#[derive(Debug, Clone)]
pub struct Reader(Arc<Keeper>);

/// Pieces that stay here until this is dropped.
#[derive(Debug)]
pub struct Held {
    keeper: Arc<Keeper>,
    pin: PinId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.server.shelf.unpin(self.pin);
    }
}

impl Depot {
    /// For what copies checkpoints elsewhere.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.keeper))
    }
}

impl Reader {
    /// The bytes of a checkpoint's manifest, from here or from one of `depots`.
    ///
    /// # Errors
    /// What is wrong with each copy.
    pub async fn manifest(&self, key: ManifestKey, depots: &[DepotAddress]) -> Result<Vec<u8>, String> {
        let manifest = self.0.manifest_of(key, &self.others(depots)).await?;
        manifest::encode(&manifest).map_err(|error| error.to_string())
    }

    /// The `pieces` that are here stay, though the checkpoint that names them be deleted.
    ///
    /// # Errors
    /// When this process ends.
    pub async fn hold(&self, pieces: Vec<PieceHash>) -> Result<Held, String> {
        let pin = self.0.server.pins.fresh();
        let held = Held {
            keeper: Arc::clone(&self.0),
            pin,
        };
        // Pieces that are not here are read elsewhere.
        let pinned = self.0.server.on_disk(move |store| drop(store.pin(pin, &pieces))).await;
        pinned.map(|()| held).map_err(words)
    }

    /// The bytes of these pieces, in their order, each compared with its hash. What is not here, or damaged, is read from `depots`.
    ///
    /// # Errors
    /// Which cannot be had, and what each depot says.
    pub async fn pieces(&self, pieces: &[PieceHash], depots: &[DepotAddress]) -> Result<Vec<Vec<u8>>, String> {
        let wanted = pieces.to_vec();
        let here = self.0.server.on_disk(move |store| {
            let read = Mutex::new(BTreeMap::new());
            store.read_many(&wanted, |number, bytes| {
                if let Ok(bytes) = bytes {
                    let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                    read.insert(number, bytes.to_vec());
                }
            });
            read.into_inner().unwrap_or_else(PoisonError::into_inner)
        });
        let mut read = here.await.map_err(words)?;
        let left: Vec<usize> = (0..pieces.len()).filter(|number| !read.contains_key(number)).collect();
        if !left.is_empty() {
            let names: Vec<PieceHash> = left.iter().map(|&number| pieces[number]).collect();
            let each = |index: usize, bytes: &[u8]| drop(read.insert(left[index], bytes.to_vec()));
            let asked = self.0.depots.read_pieces(&self.others(depots), &names, each).await;
            asked.map_err(|error| error.to_string())?;
        }
        Ok(read.into_values().collect())
    }

    fn others(&self, depots: &[DepotAddress]) -> Vec<DepotAddress> {
        depots.iter().copied().filter(|one| one.depot != self.0.own).collect()
    }
}
