//! Where the machine of membership and that of checkpoints meet: what the one tells the other, and what it does for it.

use std::collections::BTreeSet;

use super::formation::Formation;
use super::{JobEvent, Loss, Membership, Stop};
use crate::checkpoint::{DepotAddress, Head};
use crate::checkpoint_manager::{CheckpointManager, Command, End, Facts, Rules, SaveCounts};
use crate::messages::{Bounds, DepotOrder};
use crate::snapshot_round::SnapshotRound;
use crate::words::{Generation, Step, WorkerId};

impl super::Config {
    /// What can be said in this job.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            shards: self.shards,
            steps: self.steps,
            order: self.order,
        }
    }

    /// What of it decides about checkpoints.
    pub(super) fn rules_of_checkpoints(&self) -> Rules {
        Rules {
            saves: self.saves,
            task: self.task,
            build: self.build,
            bounds: self.bounds(),
        }
    }
}

impl Membership {
    /// Where training stands, for what is decided about checkpoints.
    pub(super) fn facts(&self) -> Facts {
        let mut steps: BTreeSet<Step> = self.formation.as_ref().and_then(Formation::stop_at).into_iter().collect();
        // None has, until the end.
        if self.is_ending() {
            steps.extend(self.members.ends());
        }
        Facts {
            now: self.now,
            reached: self.training.reached,
            generation: self.generation,
            formed: self.formed,
            begun: self.has_begun(),
            oldest_alive: self.training.oldest_alive(),
            end: End {
                wanted: self.stop != Stop::No,
                steps,
            },
        }
    }

    /// Lets the manager of checkpoints decide, and does what it wants.
    pub(super) fn manage<T>(&mut self, decide: impl FnOnce(&mut CheckpointManager, &Facts) -> T) -> T {
        let facts = self.facts();
        let decided = decide(&mut self.checkpoints, &facts);
        self.do_what_checkpoints_need();
        decided
    }

    fn do_what_checkpoints_need(&mut self) {
        for command in self.checkpoints.take_commands() {
            match command {
                Command::Send { worker, message } => self.send_if_here(worker, message),
                Command::Order { depot, order } => self.out.push(super::Command::Order { depot, order }),
                Command::NamePeers => self.name_peers_to_depots(),
                Command::Commit { to, contents } => self.out.push(super::Command::Commit { to, contents }),
                Command::Tell(event) => self.tell(event),
                Command::Senseless { worker, said } => self.evict(worker, Loss::Senseless(said)),
                Command::CannotLoad { worker, reason } => self.evict(worker, Loss::Failed { reason }),
                Command::FormAnew => self.disturb(),
            }
        }
    }

    fn name_peers_to_depots(&mut self) {
        let all = self.checkpoints.depot_addresses();
        let workers: Vec<WorkerId> = if all.is_empty() {
            Vec::new()
        } else {
            self.members.keys().copied().collect()
        };
        let depots: Vec<u64> = all.iter().map(|one| one.certified).collect();
        for DepotAddress { depot, .. } in all {
            let (workers, depots) = (workers.clone(), depots.clone());
            let order = Box::new(DepotOrder::Serve { workers, depots });
            self.out.push(super::Command::Order { depot, order });
        }
    }

    /// What has become of checkpoints in this life of the coordinator.
    #[must_use]
    pub fn save_counts(&self) -> SaveCounts {
        self.checkpoints.counts()
    }

    /// Where the checkpoint actors that are connected are reached.
    #[must_use]
    pub fn depot_addresses(&self) -> Vec<DepotAddress> {
        self.checkpoints.depot_addresses()
    }

    /// Says again what may have been lost, and sees to what is on too few hosts.
    pub(super) fn tend_checkpoints(&mut self) {
        let facts = self.facts();
        self.checkpoints.tend_saving(self.round.kept_whole(), &facts);
        self.do_what_checkpoints_need();
        self.manage(|checkpoints, facts| {
            checkpoints.tend_depots(facts);
            checkpoints.tend_replicas(facts);
        });
    }

    /// Whether the state at the end of the job is yet to be kept. No member is let go before it is: they hold it.
    pub(super) fn awaits_last_save(&mut self, end: Step) -> bool {
        let facts = self.facts();
        let awaits = self.checkpoints.awaits_last(end, self.round.kept_whole(), &facts);
        self.do_what_checkpoints_need();
        awaits
    }

    /// A member could not load the checkpoint.
    pub(super) fn not_restored(&mut self, worker: WorkerId, generation: Generation, reason: String) {
        if generation != self.formed || !self.is_member(worker) {
            return;
        }
        let members = self.formation.as_ref().map_or(0, |formation| formation.workers().count());
        let forms = self.is_formed();
        self.manage(|checkpoints, facts| {
            if checkpoints.cannot_load(worker, generation) && forms {
                checkpoints.not_restored(worker, members, reason, facts);
            }
        });
    }

    /// The next generation starts from this checkpoint.
    pub(super) fn begin_from(&mut self, head: &Head) {
        let step = head.key.step;
        if self.training.reached > step {
            let (reached, from) = (self.training.reached, step);
            self.tell(JobEvent::StateLost { reached, from });
        }
        self.lead(SnapshotRound::end);
        self.manage(|checkpoints, facts| checkpoints.begin_from(head, facts));
        let kept = self.kept_of_the_lost(step);
        self.ledger.resume_from_checkpoint(kept);
        (self.training.restarted, self.training.next_report, self.training.reached) = (step, step, step);
    }
}
