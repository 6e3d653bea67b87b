//! A coordinator that comes back, or a new one elsewhere, finds a generation that trains without it.
//!
//! ```text
//!  a member of it says hello         all are here, in one unbroken ring
//!  ──────────────────────────▶ Found ──────────────────────────────────▶ adopted: no worker notices
//!                                │  all are here or seen to end, or ADOPTION_PATIENCE is over
//!                                └───────────────────────────────────────▶ halted, as after any loss
//! ```
//! What it knows of its own life before comes from a [`JobRecord`], if there is one; what is true comes from the
//! workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::formation::Formation;
use super::record::JobRecord;
use super::remembering::Released;
use super::roster::Place;
use super::{Arrival, Config, GenerationEvent, Membership, Phase, Record, Resumed, Stop};
use crate::limits::ADOPTION_PATIENCE;
use crate::messages::{Introduction, MemberAddress, MembersDigest, Ring, Seated, WorkerMessage};
use crate::plan::Visit;
use crate::planted::{Bug, bites};
use crate::words::{Generation, Incarnation, Rank, Step, WorkerId};

/// What this life of the coordinator knows of earlier ones.
#[derive(Debug, Default)]
pub(super) struct EarlierLife {
    /// Whether there was one, which may have ordered what this one does not know.
    pub(super) resumed: bool,
    /// What it may have left.
    pub(super) past: Past,
    /// The generation that its record names.
    pub(super) recorded: Generation,
    /// The newest generation that any worker has named since.
    pub(super) claimed: Generation,
    /// Workers that it has asked to leave, and that have not come yet.
    pub(super) asked_before: BTreeSet<WorkerId>,
}

/// What may have gone on before this coordinator began.
#[derive(Debug, Clone, Default)]
pub(super) enum Past {
    /// Nothing, or it is dealt with.
    #[default]
    None,
    /// Workers may train that have not found this coordinator yet.
    Possible {
        /// Workers that are known to have ended.
        gone: BTreeSet<WorkerId>,
    },
    /// They do.
    Found(Found),
}

/// A generation that trains.
#[derive(Debug, Clone)]
pub(super) struct Found {
    generation: Generation,
    world_size: u32,
    digest: MembersDigest,
    /// The worker at each rank, as its members say of themselves and of their peers.
    ranks: BTreeMap<Rank, WorkerId>,
    /// The seats of members whose part of the ring works.
    seats: BTreeMap<Rank, Seated>,
    gone: BTreeSet<WorkerId>,
    ring: Ring,
    since: Duration,
}

/// What becomes of a generation that was found.
enum Verdict {
    Wait,
    Adopt(Box<Formation>),
    Halt,
}

impl Found {
    fn hears(&mut self, worker: WorkerId, generation: Generation, seat: Option<&Seated>) {
        let same = |seat: &&Seated| {
            let of_these = (seat.world_size, seat.digest) == (self.world_size, self.digest);
            generation == self.generation && of_these
        };
        match (seat, seat.filter(same)) {
            (_, Some(seat)) => {
                self.ranks.insert(seat.rank, worker);
                for &(rank, peer) in &seat.peers {
                    self.ranks.entry(rank).or_insert(peer);
                }
                if seat.ring == Ring::Whole || bites(Bug::BrokenRingAdopted) {
                    self.seats.insert(seat.rank, seat.clone());
                } else {
                    self.ring = Ring::Broken;
                }
            }
            // A newcomer, or a joiner.
            (None, None) if generation < self.generation => {}
            // It has promised this one or something newer, or is in another one: not all are in this one.
            (Some(_) | None, None) => self.ring = Ring::Broken,
        }
    }

    /// Whether all members have said how they stand, in one unbroken ring.
    fn is_whole(&self) -> bool {
        let unbroken = self.ring == Ring::Whole || bites(Bug::BrokenRingAdopted);
        unbroken
            && !self
                .gone
                .iter()
                .any(|worker| self.ranks.values().any(|member| member == worker))
    }

    /// Whether each member is known, and `is_there`, as so many are, or known to have ended.
    fn is_accounted_for(&self, there: usize, is_there: impl Fn(WorkerId) -> bool) -> bool {
        // Asked with all that is heard while they come one after the other.
        if there + self.gone.len() < self.world_size as usize {
            return false;
        }
        let accounted = |rank: u32| {
            let worker = self.ranks.get(&Rank::new(rank));
            worker.is_some_and(|&worker| is_there(worker) || self.gone.contains(&worker))
        };
        (0..self.world_size).all(accounted)
    }
}

impl Membership {
    /// A coordinator in its life `incarnation`, at the time `now`, of a job that may train already. `record` is what its last life
    /// has written down, if anything is left of that.
    #[must_use]
    pub fn resume(config: Config, incarnation: Incarnation, now: Duration, record: Option<JobRecord>) -> Self {
        let incarnation = Incarnation::new(incarnation.get() - u64::from(bites(Bug::ReusedIncarnation)));
        let mut this = Self::new(config, incarnation, now);
        if let Some(record) = record.map(|record| record.within(this.bounds())) {
            if bites(Bug::ReusedGeneration) {
                this.generation = record.formed;
            }
            this.earlier.asked_before = record.leaving;
            this.absent.released = Released::recall(record.released, record.forgotten);
            if !bites(Bug::LedgerForgotten) {
                this.ledger = record.ledger;
            }
            for &worker in &record.workers {
                this.ledger.lost(worker, None);
                this.miss(worker, now);
            }
            (this.training.reached, this.training.restarted) = (record.reached, record.restarted);
            this.checkpoints.remember(record.saved);
            (this.earlier.recorded, this.training.next_report) = (record.formed, record.next_report);
            if record.stop {
                this.stop = Stop::Wanted { asked: now };
            }
        }
        this.earlier.past = Past::Possible { gone: BTreeSet::new() };
        this.earlier.resumed = true;
        this.training.unbroken = false;
        this
    }

    /// Whether workers may train that have not found this coordinator yet.
    pub(super) fn may_be_missing_a_past(&self, since: Duration) -> bool {
        let possible = matches!(self.earlier.past, Past::Possible { .. }) && self.formed.count() == 0;
        possible && self.now.saturating_sub(since) < ADOPTION_PATIENCE && !bites(Bug::ImpatientReturn)
    }

    /// How a worker that arrives takes part while the past is not dealt with. A worker that has had a seat is halted, should it come to
    /// that.
    pub(super) fn place_in_the_past(&mut self, arrival: &Arrival) -> Option<Place> {
        let introduction = &arrival.introduction;
        let (generation, seat) = (introduction.generation, introduction.seat.as_ref());
        if !matches!(self.earlier.past, Past::None) {
            // A joiner names no generation, but what it has it has from one.
            let some = if introduction.standing.step > Step::ZERO {
                Generation::NONE.next()
            } else {
                Generation::NONE
            };
            self.earlier.claimed = self.earlier.claimed.max(generation).max(some);
        }
        match &mut self.earlier.past {
            Past::Found(found) => found.hears(arrival.worker, generation, seat),
            Past::Possible { .. } if self.formed.count() == 0 => {
                if let (Some(seat), Phase::Gathering { .. }) = (seat, &self.phase) {
                    self.earlier.past = Past::Found(self.find(arrival.worker, generation, seat));
                }
            }
            Past::None | Past::Possible { .. } => return None,
        }
        Some(if introduction.training || generation > Generation::NONE {
            Place::Called
        } else if self.is_group() {
            Place::Quiet(introduction.standing.clone())
        } else {
            Place::Joining(introduction.standing.clone())
        })
    }

    fn find(&self, worker: WorkerId, generation: Generation, seat: &Seated) -> Found {
        let mut found = Found {
            generation,
            world_size: seat.world_size,
            digest: seat.digest,
            ranks: BTreeMap::new(),
            seats: BTreeMap::new(),
            gone: match &self.earlier.past {
                Past::Possible { gone } => gone.clone(),
                Past::None | Past::Found(_) => BTreeSet::new(),
            },
            // Workers that came before have promised something else.
            ring: if self.members.values().any(Record::is_called) {
                Ring::Broken
            } else {
                Ring::Whole
            },
            since: self.now,
        };
        found.hears(worker, generation, Some(seat));
        found
    }

    /// Whether a worker that has trained has a newer state than all that train now: they began anew without it, and it comes later than it
    /// was waited for. One step more is no reason to halt them, unless they began in another life of the coordinator: the others had given
    /// that step up with its connection, and are about to have it again.
    pub(super) fn has_trained_further(&self, introduction: &Introduction) -> bool {
        let (generation, step) = (introduction.generation, introduction.standing.step);
        let earlier = generation.incarnation() < self.formed.incarnation();
        let reached = if earlier {
            self.training.reached
        } else {
            self.training.reached.next()
        };
        self.is_formed() && generation.count() > 0 && step > reached
    }

    /// A worker is gone before the past is dealt with. `certainly`: its process has ended.
    pub(super) fn lost_in_the_past(&mut self, worker: WorkerId, certainly: bool) {
        let gone = match &mut self.earlier.past {
            Past::None => return,
            Past::Possible { gone } => gone,
            Past::Found(found) => {
                found.seats.retain(|rank, _| found.ranks.get(rank) != Some(&worker));
                &mut found.gone
            }
        };
        if certainly {
            gone.insert(worker);
        }
    }

    /// What a worker says may show that it is in a generation which this coordinator has neither formed nor found: a trailer that was
    /// ordered in an earlier life has switched to it.
    pub(super) fn mind_the_past(&mut self, worker: WorkerId, message: &WorkerMessage) {
        let (generation, ring) = match message {
            WorkerMessage::Progress { generation, .. }
            | WorkerMessage::Switched { generation, .. }
            | WorkerMessage::Finished { generation, .. } => (*generation, Ring::Whole),
            WorkerMessage::LinkBroken { generation, .. } | WorkerMessage::GivenUp { generation } => {
                (*generation, Ring::Broken)
            }
            WorkerMessage::Halted { .. }
            | WorkerMessage::Ready { .. }
            | WorkerMessage::RoomMade { .. }
            | WorkerMessage::Hashing { .. }
            | WorkerMessage::Snapshotted { .. }
            | WorkerMessage::Dropped { .. }
            | WorkerMessage::Saved { .. }
            | WorkerMessage::Saving { .. }
            | WorkerMessage::NotSaved { .. }
            | WorkerMessage::NotRestored { .. }
            | WorkerMessage::CaughtUp { .. }
            | WorkerMessage::Copying { .. }
            | WorkerMessage::CopyFailed { .. }
            | WorkerMessage::Leave { .. }
            | WorkerMessage::Renew { .. }
            | WorkerMessage::Links(_)
            | WorkerMessage::DeviceMemory(_)
            | WorkerMessage::Failed { .. } => return,
        };
        if let Past::Found(found) = &mut self.earlier.past {
            if generation > found.generation || (generation == found.generation && ring == Ring::Broken) {
                found.ring = Ring::Broken;
            }
            return;
        }
        let earlier = generation.incarnation() < self.generation.incarnation();
        if earlier && generation > self.formed && self.is_formed() {
            self.put(worker, Place::Called);
            // The others may not have seen the trailer.
            self.disturb();
        }
    }

    /// Whether a generation was found, of which it is not clear yet what becomes of it.
    pub(super) fn settle_the_past(&mut self) -> bool {
        let verdict = match &self.earlier.past {
            Past::None | Past::Possible { .. } => return false,
            Past::Found(found) => self.judge(found),
        };
        match verdict {
            Verdict::Wait => return true,
            Verdict::Adopt(formation) => {
                self.leave_the_past();
                self.adopt(*formation);
            }
            Verdict::Halt => {
                self.leave_the_past();
                self.disturb();
            }
        }
        false
    }

    /// The past is dealt with. What was counted in generations that the record does not know of is not known.
    pub(super) fn leave_the_past(&mut self) {
        self.earlier.past = Past::None;
        if std::mem::replace(&mut self.earlier.claimed, Generation::NONE) > self.earlier.recorded {
            self.ledger.rescued();
        }
    }

    fn judge(&self, found: &Found) -> Verdict {
        let patience = self.now.saturating_sub(found.since) >= ADOPTION_PATIENCE;
        // Members of a later one may be on their way: without a record that is not known.
        let newest = found.generation >= self.earlier.recorded && (self.earlier.recorded != Generation::NONE || patience);
        let whole = found.is_whole();
        if whole && !newest && found.generation >= self.earlier.recorded {
            return Verdict::Wait;
        }
        if whole && newest && found.seats.len() == found.world_size as usize {
            return self
                .formation_found(found)
                .map_or(Verdict::Halt, |found| Verdict::Adopt(Box::new(found)));
        }
        if patience || found.is_accounted_for(self.members.len(), |worker| self.members.contains_key(&worker)) {
            Verdict::Halt
        } else {
            Verdict::Wait
        }
    }

    /// The generation as its members tell it. None if that makes none (GEN-2).
    fn formation_found(&self, found: &Found) -> Option<Formation> {
        let mut members = Vec::new();
        let mut steady = Vec::new();
        for (rank, seat) in &found.seats {
            let worker = *found.ranks.get(rank)?;
            let address = self.members.get(&worker)?.address;
            members.push(MemberAddress { worker, address });
            steady.push(Visit {
                rank: seat.rank,
                shards: seat.shards,
            });
        }
        let peers = |seat: &Seated| seat.peers.iter().map(|(rank, _)| *rank).collect();
        let others = found.seats.iter().map(|(&rank, seat)| (rank, peers(seat))).collect();
        let sums = self.sums(members.iter().map(|member: &MemberAddress| member.worker));
        let formation = Formation::found(found.generation, sums, self.training.reached, members, steady, others)?;
        (formation.digest() == found.digest).then_some(formation)
    }

    fn adopt(&mut self, formation: Formation) {
        self.formed = formation.generation;
        for (index, worker) in formation.workers().enumerate() {
            if let Some(record) = self.members.get_mut(&worker) {
                record.rank = Some(Rank::at(index));
            }
            self.put(worker, Place::Ready);
        }
        let members: Vec<WorkerId> = formation.workers().collect();
        self.tell(GenerationEvent::Adopted {
            generation: self.formed,
            members,
            step: self.training.reached,
        });
        self.formation = Some(formation);
        self.run(Resumed::Yes);
        // Workers that have promised something, and are in none of it.
        let strays: Vec<WorkerId> = self
            .members
            .iter()
            .filter(|(worker, record)| record.is_called() && !self.is_member(**worker))
            .map(|(&worker, _)| worker)
            .collect();
        if !strays.is_empty() {
            self.disturb();
        }
    }
}
