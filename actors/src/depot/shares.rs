//! Many pieces, on all the depots that keep them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use sardana_protocol::checkpoint::placement::{homes, ranked};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, PieceHash};
use sardana_protocol::snapshot::SnapshotId;

use super::client::Depots;
use super::error::{DepotError, ReadFailed};

/// The pieces that are yet to be given, by index, and how many depots each has been asked of.
type Left = BTreeMap<usize, usize>;

impl Depots {
    /// Calls `each` with the index and the bytes of all `pieces`. What lies on this host is read from its files; of the rest each is asked
    /// for first where it should be, and then of the other depots. A piece that is there twice is asked for twice.
    ///
    /// # Errors
    /// When no depot gave some of them.
    pub async fn read_pieces(
        &self,
        depots: &[DepotAddress],
        pieces: &[PieceHash],
        each: impl FnMut(usize, &[u8]) + Send,
    ) -> Result<(), ReadFailed> {
        let addresses: BTreeMap<DepotId, DepotAddress> = depots.iter().map(|depot| (depot.depot, *depot)).collect();
        let names: Vec<DepotId> = addresses.keys().copied().collect();
        let each = Mutex::new(each);
        let mut said = BTreeMap::new();
        let mut failed = BTreeSet::new();
        let near = self.read_near(depots, pieces, &each).await;
        let far = (0..pieces.len()).filter(|index| !near.contains(index));
        let mut left: Left = far.map(|index| (index, 0)).collect();
        while !left.is_empty() {
            let groups = groups(pieces, &names, &failed, &mut left);
            if groups.is_empty() {
                return Err(ReadFailed::new(left.keys().map(|&index| pieces[index]), said));
            }
            let reading = groups.iter().filter_map(|(depot, indices)| {
                let address = *addresses.get(depot)?;
                Some(self.read_some(address, pieces, indices, &each).boxed())
            });
            for read in join_all(reading).await {
                left.retain(|index, _| !read.given.contains(index));
                said.extend(read.said.map(|reason| (read.depot, reason)));
                if read.failed {
                    failed.insert(read.depot);
                }
            }
        }
        Ok(())
    }

    async fn read_some<F: FnMut(usize, &[u8]) + Send>(
        &self,
        address: DepotAddress,
        pieces: &[PieceHash],
        indices: &[usize],
        each: &Mutex<F>,
    ) -> Reading {
        let wanted: Vec<PieceHash> = indices.iter().map(|&index| pieces[index]).collect();
        let mut given = HashSet::new();
        let got = self.get(address, &wanted, |number, bytes| {
            let index = indices[number];
            given.insert(index);
            (each.lock().unwrap_or_else(PoisonError::into_inner))(index, bytes);
        });
        let got = got.await;
        let (failed, said) = match got {
            Ok(lacking) => (false, lacking.into_iter().next_back().map(|(_, reason)| reason)),
            Err(error) => (true, Some(error.to_string())),
        };
        let depot = address.depot;
        Reading {
            depot,
            given,
            said,
            failed,
        }
    }

    /// All of `pieces` are durable on `replicas` of `depots` each when this returns.
    ///
    /// # Errors
    /// Which depot did not take its part, if it was one, and why.
    pub async fn write_share(
        &self,
        depots: &[DepotAddress],
        replicas: u32,
        snapshot: SnapshotId,
        pieces: &[(PieceHash, Bytes)],
        progress: impl Fn() + Send + Sync,
    ) -> Result<(), (Option<DepotId>, String)> {
        if depots.is_empty() {
            return Err((None, "expected checkpoint actors to write to, found none".to_owned()));
        }
        let names: Vec<DepotId> = depots.iter().map(|depot| depot.depot).collect();
        let mut parts: BTreeMap<DepotId, Vec<(PieceHash, Bytes)>> = BTreeMap::new();
        for (piece, bytes) in pieces {
            for home in homes(*piece, &names, replicas) {
                parts.entry(home).or_default().push((*piece, bytes.clone()));
            }
        }
        let progress = &progress;
        let writing = depots.iter().filter_map(|address| {
            let pieces = parts.get(&address.depot)?;
            let put = async move {
                let put = self.put(*address, snapshot, pieces, progress).await;
                put.map_err(|error: DepotError| (Some(address.depot), error.to_string()))
            };
            Some(put.boxed())
        });
        join_all(writing).await.into_iter().collect()
    }
}

/// What came of asking one depot.
struct Reading {
    depot: DepotId,
    given: HashSet<usize>,
    said: Option<String>,
    /// It is not asked again.
    failed: bool,
}

/// Which depot to ask next, and for what. Pieces that no depot is left for are in no group.
fn groups(
    pieces: &[PieceHash],
    names: &[DepotId],
    failed: &BTreeSet<DepotId>,
    left: &mut Left,
) -> BTreeMap<DepotId, Vec<usize>> {
    let mut groups: BTreeMap<DepotId, Vec<usize>> = BTreeMap::new();
    for (&index, asked) in left {
        let ranked = ranked(pieces[index], names);
        let next = ranked.iter().zip(1..).skip(*asked).find(|(depot, _)| !failed.contains(depot));
        if let Some((&depot, rank)) = next {
            *asked = rank;
            groups.entry(depot).or_default().push(index);
        } else {
            *asked = ranked.len();
        }
    }
    groups
}
