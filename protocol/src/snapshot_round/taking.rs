//! How the snapshot is taken: all find memory, the closer is asked for it, and every holder says what it copied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Command, Facts, Kept, SnapshotRound, Stage};
use crate::holders::Taken;
use crate::laggards::Laggards;
use crate::limits::{HASH_MOST, LAST_SNAPSHOT_PATIENCE, ROOM_PATIENCE, SNAPSHOT_DOUBLINGS, SNAPSHOT_PATIENCE};
use crate::messages::{CoordinatorMessage, Joiners, Serve, Shares, Trailer};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Step, WorkerId};

impl SnapshotRound {
    /// The members are told of a snapshot to come.
    pub(super) fn make_room(&mut self, facts: &Facts) {
        let awaited = facts.holders.iter().map(|member| member.worker).collect();
        self.stage = Stage::MakingRoom { awaited, at: facts.now };
        self.ask_for_room(Shares::Keep, facts);
    }

    /// The members that are to hold a snapshot are told that it will come, or that none will.
    fn ask_for_room(&mut self, needed: Shares, facts: &Facts) {
        let serve = Serve {
            joiners: Joiners::Only(self.served(facts).into_iter().collect()),
            snapshot: None,
            shares: needed,
            sums_from: Step::ZERO,
        };
        self.serve(facts.holders.iter().map(|member| member.worker), &serve);
    }

    /// A member has memory for its shares in the generation `generation`; `formed` is the newest. True once all have: the snapshot is to
    /// be asked for.
    pub(crate) fn room_made(&mut self, worker: WorkerId, generation: Generation, formed: Generation) -> bool {
        let Stage::MakingRoom { awaited, .. } = &mut self.stage else {
            return false;
        };
        generation == formed && awaited.remove(&worker) && awaited.is_empty()
    }

    /// The closer is asked for a snapshot.
    pub(crate) fn ask(&mut self, facts: &Facts) {
        let (at, since) = (facts.now, facts.now);
        self.stage = Stage::Asked { at, since };
        if let Some(closer) = facts.closer {
            let (generation, trailer) = (facts.formed, Trailer::Snapshot);
            self.send(closer, CoordinatorMessage::CloseWith { generation, trailer });
        }
    }

    /// Training goes on in another generation after a halt. A member that caught up by a fetched sum has not seen the trailer that
    /// asked the generation before for a snapshot, and will not tell. What is taken in this one already is the last state: none asks for that.
    pub(crate) fn goes_on_after_a_halt(&mut self, facts: &Facts) {
        if let Stage::Collecting { taken, .. } = &self.stage
            && taken.id.generation != facts.formed
        {
            self.end(facts);
        }
        self.goes_on_after_a_switch();
    }

    /// Training goes on in another generation: its closer knows of no snapshot.
    pub(crate) fn goes_on_after_a_switch(&mut self) {
        if matches!(self.stage, Stage::MakingRoom { .. } | Stage::Asked { .. }) {
            self.stage = Stage::Idle;
            self.joiners.stir();
        }
    }

    /// Whether it is news that this worker has come further with a snapshot.
    fn awaits(&self, worker: WorkerId, id: SnapshotId, facts: &Facts) -> bool {
        let holds = || facts.holders.iter().any(|holder| holder.worker == worker);
        match self.taken() {
            Some(taken) if taken.id == id => taken.awaits(worker),
            Some(taken) => taken.id < id && id.generation == facts.formed && holds(),
            None => id.generation == facts.formed && holds(),
        }
    }

    /// A holder hashes what it has copied, and has come further: large shares take longer than a holder that says nothing is waited for.
    /// Whether that is news.
    pub(crate) fn hashing(&mut self, worker: WorkerId, id: SnapshotId, facts: &Facts) -> bool {
        let is_news = self.awaits(worker, id, facts);
        if is_news {
            match &mut self.stage {
                Stage::Asked { at, since } if facts.now.saturating_sub(*since) < HASH_MOST => *at = facts.now,
                Stage::Collecting { taken, at, .. } if taken.id == id => *at = facts.now,
                Stage::Idle
                | Stage::MakingRoom { .. }
                | Stage::Asked { .. }
                | Stage::Collecting { .. }
                | Stage::Serving { .. } => {}
            }
        }
        is_news
    }

    /// A holder has copied its shares.
    pub(crate) fn snapshotted(&mut self, worker: WorkerId, id: SnapshotId, shares: Vec<(u32, StateHash)>, facts: &Facts) {
        self.hashing(worker, id, facts);
        // What is taken at the end of a job was not asked for.
        if matches!(self.stage, Stage::Idle) && !self.keeps_checkpoints {
            return self.is_not_needed(worker, id, facts);
        }
        if self.taken().is_none_or(|known| known.id < id) {
            // The closer was asked twice: the later snapshot has replaced the earlier one.
            if id.generation != facts.formed || facts.holders.is_empty() {
                return self.is_not_needed(worker, id, facts);
            }
            self.collect(id, facts);
        }
        let Stage::Collecting { taken, others, .. } = &mut self.stage else {
            return;
        };
        if taken.id != id {
            return;
        }
        match taken.told(worker, shares) {
            Ok(true) => {
                others.done(taken.settled(), taken.holders() as usize, facts.now);
                self.settle(facts);
            }
            Ok(false) => {}
            Err(found) => self.out.push(Command::Disagree { step: id.step, found }),
        }
    }

    /// The first holder has said what it copied of this one.
    fn collect(&mut self, id: SnapshotId, facts: &Facts) {
        let is_here = |worker| !facts.absent.contains(&worker);
        let taken = Taken::new(id, facts.holders.iter().copied(), is_here);
        let (at, others) = (facts.now, Laggards::new(facts.now));
        self.stage = Stage::Collecting { taken, at, others };
        self.joiners.change_all(|joiner| joiner.forget_copy());
    }

    /// A holder has copied what is not asked for any more.
    fn is_not_needed(&mut self, worker: WorkerId, id: SnapshotId, facts: &Facts) {
        let serve = Serve {
            joiners: Joiners::Only(self.served(facts).into_iter().collect()),
            snapshot: Some(id),
            shares: Shares::Drop,
            sums_from: Step::ZERO,
        };
        self.send(worker, CoordinatorMessage::Serve(serve));
    }

    /// Once every holder has spoken or is gone: the joiners copy, or another snapshot is needed.
    pub(super) fn settle(&mut self, facts: &Facts) {
        let Stage::Collecting { taken, .. } = &self.stage else {
            return;
        };
        if !taken.is_settled() {
            return;
        }
        if !taken.is_whole() || taken.order().is_none() {
            return self.end(facts);
        }
        let taken = taken.clone();
        self.asked_in_vain = 0;
        self.out.push(Command::Whole(Box::new(taken.clone())));
        let kept = Kept {
            shares: Shares::Keep,
            sums_from: taken.id.step,
        };
        let named = BTreeSet::new();
        self.stage = Stage::Serving { taken, kept, named };
        self.joiners.stir();
        self.share(facts);
    }

    /// No snapshot is needed any more, or it is not whole any more: no holder keeps anything of it.
    pub(crate) fn end(&mut self, facts: &Facts) {
        self.joiners.stir();
        match std::mem::take(&mut self.stage) {
            Stage::Idle => {}
            Stage::MakingRoom { .. } | Stage::Asked { .. } => self.ask_for_room(Shares::Drop, facts),
            Stage::Collecting { taken, .. } | Stage::Serving { taken, .. } => {
                self.joiners.change_all(|joiner| joiner.forget_copy());
                // Also members that have one from before, since they have not seen the trailer that asked for this one.
                self.out.push(Command::SendToAll(Serve {
                    joiners: Joiners::Only(Vec::new()),
                    snapshot: Some(taken.id),
                    shares: Shares::Drop,
                    sums_from: Step::ZERO,
                }));
            }
        }
    }

    /// Whether a snapshot is settled since others have told all that the holders have that say nothing, or take many times as long. Where a
    /// boundary comes at which it can be asked for again, it is, once.
    fn does_without_the_late(&mut self, patience: Duration, facts: &Facts) -> bool {
        let Stage::Collecting { taken, at, others } = &mut self.stage else {
            return false;
        };
        let (last, silent) = (!facts.trains_on, facts.now.saturating_sub(*at));
        let given_up = if last {
            silent >= LAST_SNAPSHOT_PATIENCE
        } else {
            self.asked_in_vain > 0 && silent >= patience
        };
        (given_up || others.are_late(facts.now)) && taken.do_without_the_silent()
    }

    /// Asks again for what has not come.
    pub(super) fn tend_taking(&mut self, facts: &Facts) {
        let late = |at: &Duration, patience| facts.trains_on && facts.now.saturating_sub(*at) >= patience;
        if let Stage::MakingRoom { at, .. } = &self.stage
            && late(at, ROOM_PATIENCE)
        {
            return self.ask(facts);
        }
        let patience = SNAPSHOT_PATIENCE * (1 << self.asked_in_vain.min(SNAPSHOT_DOUBLINGS));
        if self.does_without_the_late(patience, facts) {
            return self.settle(facts);
        }
        if let Stage::Asked { at, .. } | Stage::Collecting { at, .. } = &self.stage
            && late(at, patience)
        {
            self.asked_in_vain += 1;
            self.make_room(facts);
        }
    }
}
