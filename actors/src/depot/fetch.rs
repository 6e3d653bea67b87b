//! A checkpoint is brought here from other depots: because another host was lost, or because something is damaged.

use std::pin::pin;
use std::sync::Arc;

use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, ManifestKey, PieceHash, Placing};
use sardana_protocol::limits::{FETCH_TOLD_EVERY, MAX_DEPOTS};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::Incarnation;
use sardana_storage::manifest;
use sardana_storage::store::PinId;
use tokio::time::timeout;

use super::keeper::{Keeper, Whole, words};
use super::limits::FETCHED_PIECES;

/// Does this, and calls `tell` every [`FETCH_TOLD_EVERY`] until it is done: what is waited for meanwhile gives up by itself where it should.
pub(super) async fn telling<F: Future>(tell: impl Fn(), work: F) -> F::Output {
    let mut work = pin!(work);
    loop {
        match timeout(FETCH_TOLD_EVERY, &mut work).await {
            Ok(done) => return done,
            Err(_) => tell(),
        }
    }
}

impl Keeper {
    /// Fetches what this depot lacks of a checkpoint, as if it had been placed on `depots` from the beginning, makes it durable, and says so.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        incarnation: Incarnation,
        snapshot: SnapshotId,
        key: ManifestKey,
        depots: &[DepotAddress],
        placing: Placing,
    ) -> Result<(), String> {
        let _one = self.fetching.lock().await;
        let ids: Vec<DepotId> = depots.iter().map(|depot| depot.depot).collect();
        if ids.len() > MAX_DEPOTS || !ids.contains(&self.own) {
            let (own, count) = (self.own, ids.len());
            return Err(format!(
                "expected at most {MAX_DEPOTS} checkpoint actors, among them {own}, found {count}: {ids:?}"
            ));
        }
        let others: Vec<DepotAddress> = depots.iter().copied().filter(|depot| depot.depot != self.own).collect();
        let manifest = Manifest {
            depots: ids.clone(),
            placing,
            ..self.manifest_of(key, &others).await?
        };
        let pin = self.server.pins.fresh();
        let fetching = async {
            self.fetch_pieces(pin, &manifest, &others).await?;
            let bytes = manifest::encode(&manifest).map_err(|error| error.to_string())?;
            let whole = Whole {
                snapshot,
                depots: ids,
                placing,
                bytes,
            };
            self.commit(incarnation, whole).await
        };
        let fetched = fetching.await;
        // The manifest keeps them, or nothing does.
        self.server.shelf.unpin(pin);
        fetched
    }

    /// The manifest as it is here, or at one of the other depots.
    pub(super) async fn manifest_of(&self, key: ManifestKey, others: &[DepotAddress]) -> Result<Manifest, String> {
        let here = self.server.on_disk(move |store| {
            let shown = store.show(key).map_err(|error| error.to_string())?;
            manifest::decode_as(shown.bytes(), key).map_err(|error| error.to_string())
        });
        let mut said = match here.await.map_err(words)? {
            Ok(manifest) => return Ok(manifest),
            Err(reason) => reason,
        };
        for depot in others {
            match self.depots.manifest(*depot, key).await {
                Ok(manifest) => return Ok(manifest),
                Err(error) => said = format!("{said}; {error}"),
            }
        }
        Err(format!(
            "expected the manifest of checkpoint {key} here or at another checkpoint actor, found none: {said}"
        ))
    }

    /// Fetches the pieces that should be here and are not, or are damaged.
    async fn fetch_pieces(&self, pin: PinId, manifest: &Manifest, others: &[DepotAddress]) -> Result<(), String> {
        let own = self.own;
        let manifest = Arc::new(manifest.clone());
        let missing = self.server.on_disk({
            let manifest = Arc::clone(&manifest);
            move |store| store.pin(pin, &manifest::pieces_at(&manifest, own))
        });
        let missing: Vec<PieceHash> = missing.await.map_err(words)?;
        if missing.is_empty() {
            return Ok(());
        }
        for some in missing.chunks(FETCHED_PIECES) {
            let mut fetched = Vec::new();
            let reading = self.depots.read_pieces(others, some, |_, bytes| fetched.push(bytes.to_vec()));
            reading.await.map_err(|error| error.to_string())?;
            let written = self.server.on_disk(move |store| {
                let pieces: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
                store.put(pin, &pieces)
            });
            written.await.map_err(words)?.map_err(|error| error.to_string())?;
        }
        let synced = self.server.on_disk(|store| store.sync()).await.map_err(words)?;
        synced.map_err(|error| error.to_string())?;
        tracing::info!(
            target: "sardana::event::fetched", depot = %own, step = %manifest.step(), pieces = missing.len(),
            "what was missing or damaged here of a checkpoint was fetched from other hosts"
        );
        Ok(())
    }
}
