//! The membership as an operator sees it.

use std::time::Duration;

use super::balancing::Measured;
use super::roster::Place;
use super::{Membership, Phase, Record};
use crate::status::{Doing, Overview, WorkerView};
use crate::words::{ShardRange, WorkerId};

impl Membership {
    /// The workers that take part at this moment, and how. Changes nothing.
    #[must_use]
    pub fn overview(&self, now: Duration) -> Overview {
        let mut workers: Vec<(&WorkerId, &Record)> = self.members.iter().collect();
        workers.sort_by_key(|(worker, record)| record.order(**worker));
        Overview {
            stage: self.stage(),
            generation: self.formed,
            step: self.training.reached,
            workers: workers
                .into_iter()
                .map(|(&worker, record)| self.view(now, worker, record))
                .collect(),
            checkpoints: self.checkpoints.view(now),
        }
    }

    fn view(&self, now: Duration, worker: WorkerId, record: &Record) -> WorkerView {
        let shards = self.formation.as_ref().and_then(|formation| formation.steady_shards(worker));
        let rank = record.rank.filter(|_| shards.is_some());
        let doing = match record.place() {
            Place::Quiet(_) => Doing::Waiting,
            // A step is applied only with all: a member that has not said that it is ready, is, and says so late.
            Place::Called if !matches!(self.phase, Phase::Running { .. }) => Doing::Answering,
            Place::Called | Place::Ready if self.is_group() && rank.is_some() => Doing::Calling,
            Place::Called | Place::Ready if shards.is_none_or(ShardRange::is_empty) => Doing::Standby,
            Place::Called | Place::Ready => Doing::Training,
            Place::Finished(_) => Doing::Finished,
            Place::Joining(_) if self.round.has_loaded(worker) => Doing::Following,
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
            step: self.round.step_of(worker).unwrap_or(self.training.reached),
            computed: record.computed,
            silent: now.saturating_sub(record.heard),
        }
    }
}
