//! How the snapshot is taken that joiners copy: all find memory, the closer is asked for it, and every holder says what it copied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::formation::Formation;
use super::{JobEvent, Membership};
use crate::holders::{Disagreement, Taken};
use crate::messages::{CoordinatorMessage, Joiners, Needed, Serve, Trailer};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Step, WorkerId};

/// The snapshot that is taken next, or served.
#[derive(Debug, Default)]
pub(super) struct SnapshotRound {
    pub(super) intake: Intake,
    /// How often in a row nothing was heard of a snapshot that was asked for.
    pub(super) asked_in_vain: u32,
}

/// Where the intake of joiners stands.
#[derive(Debug, Clone, Default)]
pub(super) enum Intake {
    /// There are none, or none can be served now.
    #[default]
    Idle,
    /// The members find memory for their shares, so that the boundary need not wait for that.
    MakingRoom { awaited: BTreeSet<WorkerId>, at: Duration },
    /// The closer was asked for a snapshot.
    Asked { at: Duration },
    /// Some holders have said what they copied.
    Collecting { taken: Taken, at: Duration },
    /// Joiners copy it.
    Serving {
        taken: Taken,
        /// What of it its holders were told to keep, and for whom.
        told: (Needed, Step),
        named: BTreeSet<WorkerId>,
    },
}

impl Membership {
    /// The members are told of a snapshot to come.
    pub(super) fn make_room(&mut self) {
        let holders = self.formation.iter().flat_map(Formation::holders);
        let awaited = holders.map(|member| member.worker).collect();
        self.round.intake = Intake::MakingRoom { awaited, at: self.now };
        self.ask_for_room(Needed::Yes);
    }

    /// A member has memory for its shares.
    pub(super) fn room_made(&mut self, worker: WorkerId, generation: Generation) {
        let Intake::MakingRoom { awaited, .. } = &mut self.round.intake else {
            return;
        };
        if generation == self.formed && awaited.remove(&worker) && awaited.is_empty() {
            self.ask_for_snapshot();
        }
    }

    pub(super) fn ask_for_snapshot(&mut self) {
        self.round.intake = Intake::Asked { at: self.now };
        let generation = self.formed;
        if let Some(closer) = self.formation.as_ref().and_then(Formation::closer) {
            let trailer = Trailer::Snapshot;
            self.send(closer, CoordinatorMessage::CloseWith { generation, trailer });
        }
    }

    /// After a halt: a member that caught up by a fetched sum has not seen the trailer that asked for a snapshot, and will not tell.
    pub(super) fn give_up_collecting(&mut self) {
        if matches!(self.round.intake, Intake::Collecting { .. }) {
            self.end_intake();
        }
    }

    /// Training goes on in another generation: its closer knows of no snapshot.
    pub(super) fn ask_anew_for_snapshot(&mut self) {
        if matches!(self.round.intake, Intake::MakingRoom { .. } | Intake::Asked { .. }) {
            self.round.intake = Intake::Idle;
            self.members.stir();
        }
    }

    /// A holder hashes what it has copied, and has come further: large shares take longer than anybody waits for one that says nothing.
    pub(super) fn still_hashing(&mut self, id: SnapshotId) {
        let now = self.now;
        if id.generation == self.formed {
            self.checkpoints.hashed(now);
        }
        match &mut self.round.intake {
            Intake::Asked { at } if id.generation == self.formed => *at = now,
            Intake::Collecting { taken, at } if taken.id == id => *at = now,
            Intake::Idle
            | Intake::MakingRoom { .. }
            | Intake::Asked { .. }
            | Intake::Collecting { .. }
            | Intake::Serving { .. } => {}
        }
    }

    /// A holder has copied its shares.
    pub(super) fn snapshotted(&mut self, worker: WorkerId, id: SnapshotId, shares: Vec<(u32, StateHash)>) {
        self.still_hashing(id);
        let known = match &self.round.intake {
            // What is taken at the end of a job was not asked for.
            Intake::Idle if self.config.saves.is_none() => return self.is_not_needed(worker, id),
            Intake::Idle => None,
            Intake::MakingRoom { .. } | Intake::Asked { .. } => None,
            Intake::Collecting { taken, .. } | Intake::Serving { taken, .. } => Some(taken.id),
        };
        if known.is_none_or(|known| known < id) {
            // The closer was asked twice: the later snapshot has replaced the earlier one.
            let Some(formation) = self.formation.as_ref().filter(|_| id.generation == self.formed) else {
                return self.is_not_needed(worker, id);
            };
            let taken = Taken::new(id, formation.holders(), |worker| self.members.contains_key(&worker));
            self.round.intake = Intake::Collecting { taken, at: self.now };
            self.forget_copies();
        }
        let Intake::Collecting { taken, .. } = &mut self.round.intake else {
            return;
        };
        if taken.id != id {
            return;
        }
        match taken.told(worker, shares) {
            Ok(true) => self.settle_snapshot(),
            Ok(false) => {}
            Err(Disagreement {
                share,
                holders: [one, other],
            }) => self.fail(format!(
                "two holders of share {share} of the state at {} have different bytes (BITS-1): worker {one} and worker {other}; one of \
                 the two machines computes wrongly, or the model is not deterministic",
                id.step
            )),
        }
    }

    /// A holder has copied what is not asked for any more.
    fn is_not_needed(&mut self, worker: WorkerId, id: SnapshotId) {
        let serve = Serve {
            joiners: Joiners::Only(self.served().into_iter().collect()),
            snapshot: Some(id),
            shares: Needed::No,
            sums_from: Step::ZERO,
        };
        self.send(worker, CoordinatorMessage::Serve(serve));
    }

    /// Once every holder has spoken or is gone: the joiners copy, or another snapshot is needed.
    pub(super) fn settle_snapshot(&mut self) {
        let Intake::Collecting { taken, .. } = &self.round.intake else {
            return;
        };
        if !taken.is_settled() {
            return;
        }
        if !taken.is_whole() || taken.order().is_none() {
            return self.end_intake();
        }
        let taken = taken.clone();
        self.round.asked_in_vain = 0;
        // Its holders may be lost before they are heard of again.
        self.reach(taken.id.step);
        self.manage(|checkpoints, facts| checkpoints.save_if_due(&taken, facts));
        self.tell(JobEvent::Snapshot {
            step: taken.id.step,
            holders: taken.holders(),
        });
        let told = (Needed::Yes, taken.id.step);
        let named = BTreeSet::new();
        self.round.intake = Intake::Serving { taken, told, named };
        self.members.stir();
        self.share_snapshot();
    }
}
