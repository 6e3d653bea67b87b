//! The membership as an operator sees it.

use std::time::Duration;

use super::balancing::Measured;
use super::roster::Place;
use super::saves::Saves;
use super::{Membership, Phase, Record};
use crate::status::{CheckpointsView, DepotView, Doing, Overview, SavedView, WorkerView};
use crate::words::{ShardRange, Step, WorkerId};

impl Membership {
    /// Who takes part at this moment, and how. Changes nothing.
    #[must_use]
    pub fn overview(&self, now: Duration) -> Overview {
        let mut workers: Vec<(&WorkerId, &Record)> = self.members.iter().collect();
        workers.sort_by_key(|(worker, record)| record.order(**worker));
        Overview {
            stage: self.stage(),
            generation: self.formed,
            step: self.reached,
            workers: workers
                .into_iter()
                .map(|(&worker, record)| self.view(now, worker, record))
                .collect(),
            checkpoints: self.config.saves.map(|saves| self.checkpoints(now, saves)),
        }
    }

    fn checkpoints(&self, now: Duration, saves: Saves) -> CheckpointsView {
        let counts = self.save_counts();
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
        CheckpointsView {
            newest,
            writing: self
                .saving
                .as_ref()
                .map(|saving| (saving.snapshot().step, now.saturating_sub(saving.begun))),
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
        }
    }

    fn view(&self, now: Duration, worker: WorkerId, record: &Record) -> WorkerView {
        let shards = self.formation.as_ref().and_then(|formation| formation.steady_shards(worker));
        let rank = record.rank.filter(|_| shards.is_some());
        let doing = match record.place() {
            Place::Quiet(_) => Doing::Waiting,
            // A step is applied only with all: who has not said that it is ready, is, and says so late.
            Place::Called if !matches!(self.phase, Phase::Running { .. }) => Doing::Answering,
            Place::Called | Place::Ready if shards.is_none_or(ShardRange::is_empty) => Doing::Standby,
            Place::Called | Place::Ready => Doing::Training,
            Place::Finished(_) => Doing::Finished,
            Place::Joining(joining) if joining.loaded => Doing::Following,
            Place::Joining(_) => Doing::Copying,
            Place::Left(..) => Doing::Waiting,
        };
        WorkerView {
            worker,
            address: record.address,
            rank,
            shards,
            pace: record.measured.map(Measured::pace),
            doing,
            leaving: record.leaving().is_some(),
            step: record.joining().map_or(self.reached, |joining| joining.step),
            computed: record.computed,
            silent: now.saturating_sub(record.heard),
        }
    }
}
