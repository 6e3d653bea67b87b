//! Checkpoints as an operator sees them, and as a simulator counts them. Changes nothing.

use std::time::Duration;

use super::CheckpointManager;
use super::saves::{SaveCounts, Saving};
use crate::checkpoint::DepotAddress;
use crate::status::{CheckpointsView, DepotView, SavedView};
use crate::words::Step;

impl CheckpointManager {
    /// Checkpoints as an operator sees them; none in a job that takes none.
    pub(crate) fn view(&self, now: Duration) -> Option<CheckpointsView> {
        let saves = self.rules.saves?;
        let counts = self.counts();
        let (step, at) = self.saved.last;
        let kept = self.kept_checkpoints();
        let head = kept.iter().rfind(|head| head.key.step == step);
        let count = |hosts: usize| u32::try_from(hosts).unwrap_or(u32::MAX);
        let newest = (step > Step::ZERO).then(|| SavedView {
            step,
            ago: now.saturating_sub(at),
            placed: head.map_or(0, |head| count(head.depots.len())),
            whole: head.map_or(0, |head| {
                count(head.depots.iter().filter(|depot| self.has_whole(**depot, head.key)).count())
            }),
        });
        let writing = self.saving.as_ref();
        Some(CheckpointsView {
            newest,
            writing: writing.map(|saving| (saving.snapshot().step, now.saturating_sub(saving.begun))),
            replicas: saves.replicas,
            committed: counts.committed,
            given_up: counts.given_up,
            merged: counts.merged,
            largest_lag: counts.largest_lag,
            depots: self
                .depots
                .values()
                .map(|depot| DepotView {
                    depot: depot.address.depot,
                    host: depot.host.clone(),
                    address: depot.address.address,
                    checkpoints: count(depot.heads.len()),
                })
                .collect(),
        })
    }

    /// What has become of checkpoints in this life of the coordinator.
    pub(crate) fn counts(&self) -> SaveCounts {
        self.saved.counts
    }

    /// Where the checkpoint under way stands, by name.
    pub(crate) fn phase(&self) -> &'static str {
        self.saving.as_ref().map_or("none", Saving::phase)
    }

    /// Where the checkpoint actors that are connected are reached.
    pub(crate) fn depot_addresses(&self) -> Vec<DepotAddress> {
        self.depots.values().map(|depot| depot.address).collect()
    }
}
