//! Copying a snapshot and following the ring: each share and each sum has two holders, and if the first does not give it, the other
//! is asked. Dropping the future ends all transfers.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::messages::{MemberAddress, Snapshot};
use sardana_protocol::snapshot::{Share, holders_of, keepers_of};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Step, WorkerId};
use tokio::task::JoinSet;

use super::Peers;
use super::fetch::{FetchError, FollowedSum};
use super::incoming::IncomingShare;
use crate::watched::Watched;

/// Why a snapshot could not be copied, or a sum not be had. The coordinator is told, and the joiner begins anew.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The snapshot's description contradicts itself: its coordinator is broken.
    #[error("the snapshot names {holders} holders and {shares} shares; expected as many of both, and at least one")]
    Senseless {
        /// How many holders.
        holders: usize,
        /// How many hashes of shares.
        shares: usize,
    },
    /// No holder gave a share.
    #[error("{share} of the state at {step}: no holder gave it: {tried}")]
    Share {
        /// The share.
        share: Share,
        /// Of the state at this step.
        step: Step,
        /// Which holders were asked, and what went wrong.
        tried: Tried,
    },
    /// No keeper gave a sum.
    #[error("{sum}: no keeper gave it: {tried}")]
    Sum {
        /// Which.
        sum: WantedSum,
        /// Which keepers were asked, and what went wrong.
        tried: Tried,
    },
}

/// Which workers were asked, and what went wrong.
#[derive(Debug, Default)]
pub struct Tried(Vec<String>);

impl Tried {
    fn failed(&mut self, error: &FetchError) {
        self.0.push(error.to_string());
    }

    fn gone(&mut self, place: u32) {
        self.0.push(format!("the one at place {place} is gone"));
    }
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// The holders of a snapshot, now and later: a holder that is gone turns none.
pub(crate) type Holders = Arc<Watched<Snapshot>>;

impl Peers {
    /// Copies all shares of a snapshot, at once and from different holders, and compares each with its hash. A transfer from a holder
    /// that turns none ends at once, and the other holder is asked.
    ///
    /// # Errors
    /// See [`CopyError`]; the first share that no holder gave ends all.
    pub(crate) async fn copy_state(self: &Arc<Self>, holders: &Holders) -> Result<Bytes, CopyError> {
        let snapshot = holders.read(Clone::clone);
        check(&snapshot)?;
        let of = u32::try_from(snapshot.shares.len()).unwrap_or(u32::MAX);
        let mut rest = self.state_room();
        let mut copying = JoinSet::new();
        for (index, &expected) in (0..of).zip(&snapshot.shares) {
            let share = Share { index, of };
            // One allocation: each part is written where it belongs.
            let part = rest.split_to(self.pieces.bytes_of(share).len());
            let (peers, holders) = (Arc::clone(self), holders.clone());
            copying.spawn(async move { Ok((index, peers.copy_share(&holders, share, expected, part).await?)) });
        }
        let mut parts = vec![BytesMut::new(); snapshot.shares.len()];
        while let Some(copied) = copying.join_next().await {
            let (index, part): (u32, BytesMut) = copied.expect("copying a share does not panic and is not cancelled")?;
            parts[index as usize] = part;
        }
        let mut state = BytesMut::new();
        parts.into_iter().for_each(|part| state.unsplit(part));
        Ok(self.state_in(state))
    }

    async fn copy_share(
        self: Arc<Self>,
        holders: &Holders,
        share: Share,
        expected: StateHash,
        part: BytesMut,
    ) -> Result<BytesMut, CopyError> {
        let step = holders.read(|snapshot| snapshot.id.step);
        let mut incoming = IncomingShare::new(&self, share, part);
        let mut tried = Tried::default();
        for place in holders_of(share.index, share.of) {
            let Some(holder) = at(holders, place) else {
                tried.gone(place);
                continue;
            };
            tokio::select! {
                biased;
                fetched = self.fetch_share(holder, step, Some(expected), &mut incoming) => match fetched {
                    Ok(()) => return Ok(incoming.into_bytes()),
                    Err(error) => {
                        tracing::info!(%share, %step, %error, "a holder did not give a share");
                        tried.failed(&error);
                    }
                },
                () = gone(holders, place, holder.worker) => tried.gone(place),
            }
        }
        Err(CopyError::Share { share, step, tried })
    }

    /// Gets a sum of `expected` bytes from one of its keepers, which may have to wait for it.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub(crate) async fn follow(
        self: &Arc<Self>,
        holders: &Holders,
        wanted: WantedSum,
        expected: usize,
    ) -> Result<FollowedSum, CopyError> {
        holders.read(check)?;
        let of = holders.read(|snapshot| u32::try_from(snapshot.holders.len()).unwrap_or(u32::MAX));
        let mut tried = Tried::default();
        for place in keepers_of(wanted.step, of) {
            let Some(keeper) = at(holders, place) else {
                tried.gone(place);
                continue;
            };
            tokio::select! {
                biased;
                sum = self.follow_sum(keeper, wanted, expected) => match sum {
                    Ok(sum) => return Ok(sum),
                    Err(error) => {
                        tracing::info!(%wanted, %error, "a keeper did not give a sum");
                        tried.failed(&error);
                    }
                },
                () = gone(holders, place, keeper.worker) => tried.gone(place),
            }
        }
        Err(CopyError::Sum { sum: wanted, tried })
    }
}

fn check(snapshot: &Snapshot) -> Result<(), CopyError> {
    let (holders, shares) = (snapshot.holders.len(), snapshot.shares.len());
    if holders == shares && holders > 0 {
        Ok(())
    } else {
        Err(CopyError::Senseless { holders, shares })
    }
}

/// The holder at a place of the snapshot now.
fn at(holders: &Holders, place: u32) -> Option<MemberAddress> {
    holders.read(|snapshot| snapshot.holders.get(place as usize).copied().flatten())
}

/// Waits until `worker` is no longer at its place.
async fn gone(holders: &Holders, place: u32, worker: WorkerId) {
    let away = |snapshot: &Snapshot| {
        let there = snapshot.holders.get(place as usize).copied().flatten();
        there.is_none_or(|holder| holder.worker != worker).then_some(())
    };
    holders.find(away).await;
}
