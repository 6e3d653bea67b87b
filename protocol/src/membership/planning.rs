//! Planned changes: the next generation is made ready while this one trains, and a trailer switches. No member waits.
//!
//! ```text
//!  a joiner has caught up, a member leaves,
//!  or other ranges pay                        all Ready             a boundary
//!  ──────────────────────────────────▶ Prepare ─────▶ CloseWith(Switch) ─────▶ Switched, Switched, …
//! ```
//! Whatever breaks in between halts all workers under a number that is newer still, as any loss does.

use std::collections::BTreeSet;

use super::change::{Plan, Planned, Purpose};
use super::formation::Formation;
use super::roster::Place;
use super::{GenerationEvent, Membership, Phase, Record, Resumed, Stop};
use crate::assign::Means;
use crate::limits::{LEAVE_GRACE, MAX_WORKERS, RESEND};
use crate::messages::{CoordinatorMessage, Form, MemberAddress, Trailer};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Rank, Step, WorkerId};

impl Membership {
    /// Plans the next generation, if there is a reason to and nothing else goes on.
    pub(super) fn plan_ahead(&mut self) {
        // Asked with every message, and nearly always for nothing.
        if !self.changes_anyway() || self.more_catch_up_soon() {
            return;
        }
        let gives_way = |plan: &mut Plan| plan.purpose == Purpose::Balance && !plan.is_ordered();
        self.change.plan.take_if(gives_way);
        if !self.may_plan() {
            return;
        }
        let members: Vec<WorkerId> = self.formation.iter().flat_map(Formation::workers).collect();
        let leaves = |worker: &&WorkerId| self.members.get(worker).is_some_and(|record| record.leaving().is_some());
        let stay: Vec<WorkerId> = members.iter().filter(|worker| !leaves(worker)).copied().collect();
        let newcomers = self.newcomers(MAX_WORKERS as usize - stay.len().min(MAX_WORKERS as usize));
        if stay.len() == members.len() && newcomers.is_empty() {
            return;
        }
        let without = if newcomers.iter().any(|&joiner| self.faults.breaks.is_to_change_sides(joiner)) {
            [newcomers.clone(), stay.clone()].concat()
        } else {
            [stay.clone(), newcomers.clone()].concat()
        };
        if self.is_enough(&without) && self.prepare(without, Purpose::Change) {
            return;
        }
        // Too few would be left: joiners that have caught up come in first.
        if !newcomers.is_empty() {
            self.prepare([members, newcomers].concat(), Purpose::Change);
            return;
        }
        // The last holder of the state waits for a joiner that has it, unless a checkpoint will.
        if stay.is_empty() && self.checkpoints.can_save(&self.facts()) {
            self.checkpoints.want(self.training.reached);
            self.pause();
        } else if !stay.is_empty() || self.grace_is_over() {
            self.pause();
        }
    }

    /// Whether nothing else goes on.
    pub(super) fn may_plan(&self) -> bool {
        let busy =
            self.change.plan.is_some() || !self.change.switching.is_empty() || self.stop != Stop::No || self.is_ending();
        // A member that was left out before must be gone: it keeps no sums any more that joiners might wait for.
        let lingers = || self.members.iter().any(|(&worker, record)| self.lingers(worker, record));
        !busy && matches!(self.phase, Phase::Running { .. }) && !lingers()
    }

    /// Whether a worker is about to come or go.
    pub(super) fn changes_anyway(&self) -> bool {
        self.members.are_some_leaving() || self.round.counts().caught_up > 0
    }

    /// Whether joiners that have caught up wait for others that copy, to come in with them: each plan is told to all. Until the next tick,
    /// and where many are told for as long as that takes.
    fn more_catch_up_soon(&self) -> bool {
        let joiners = self.round.counts();
        let waits = !self.ticks.ticking || self.now.saturating_sub(self.ranges.settled) < self.telling_all();
        !self.members.are_some_leaving() && joiners.caught_up < joiners.copying && waits
    }

    /// Joiners that have caught up, in order of arrival, at most so many.
    fn newcomers(&self, most: usize) -> Vec<WorkerId> {
        let mut newcomers: Vec<(u64, WorkerId)> = self
            .members
            .joining()
            .filter(|(worker, record)| record.leaving().is_none() && self.round.has_caught_up(*worker))
            .map(|(worker, record)| (record.arrival, worker))
            .collect();
        newcomers.sort_unstable();
        newcomers.truncate(most);
        newcomers.into_iter().map(|(_, worker)| worker).collect()
    }

    fn is_enough(&self, workers: &[WorkerId]) -> bool {
        workers.len() >= self.config.min.max(1) as usize
    }

    /// Whether the last holder that leaves has waited long enough.
    fn grace_is_over(&self) -> bool {
        let mut since = self.members.values().filter_map(Record::leaving);
        since.all(|since| self.now.saturating_sub(since) >= LEAVE_GRACE)
    }

    /// What `worker` has to do with the generation to come, if there is one.
    pub(super) fn planned(&self, worker: WorkerId) -> Planned {
        self.change.plan.as_ref().map_or(Planned::No, |plan| plan.part_of(worker))
    }

    /// Whether `generation` is the one to come, and leaves `worker` out.
    pub(super) fn is_planned_without(&self, worker: WorkerId, generation: Generation) -> bool {
        let without = |plan: &Plan| plan.generation == generation && !plan.is_pause() && !plan.has(worker);
        self.change.plan.as_ref().is_some_and(without)
    }

    /// Whether `generation` is the one to come, and is like that.
    pub(super) fn is_planned_with(&self, generation: Generation, is_so: impl Fn(&Formation) -> bool) -> bool {
        let plan = self.change.plan.as_ref().filter(|plan| plan.generation == generation);
        plan.and_then(|plan| plan.next.as_ref()).is_some_and(is_so)
    }

    /// Gives up a plan that counts on `worker`, if no member has been told to switch to it.
    pub(super) fn unplan_with(&mut self, worker: WorkerId) {
        self.change.plan.take_if(|plan| !plan.is_ordered() && plan.has(worker));
    }

    /// Gives up the plan for `generation`, if no member has been told to switch to it. None if there is no such plan.
    pub(super) fn unplan(&mut self, generation: Generation) -> Option<Purpose> {
        let unordered = |plan: &mut Plan| plan.generation == generation && !plan.is_ordered();
        self.change.plan.take_if(unordered).map(|plan| plan.purpose)
    }

    /// Sends out the orders for a generation of `workers`. False if their memory does not hold the shards.
    pub(super) fn prepare(&mut self, workers: Vec<WorkerId>, purpose: Purpose) -> bool {
        let here = |worker| {
            let address = self.members.get(&worker)?.address;
            Some(MemberAddress { worker, address })
        };
        let mut members: Vec<MemberAddress> = workers.into_iter().take(MAX_WORKERS as usize).filter_map(here).collect();
        if purpose == Purpose::Change {
            self.order_by_host(&mut members, |member| member.address.ip());
        }
        let members: Vec<(MemberAddress, Means)> = members
            .into_iter()
            .enumerate()
            .filter_map(|(index, member)| Some((member, self.means(index, member.worker)?)))
            .collect();
        let sums = self.sums(members.iter().map(|(member, _)| member.worker));
        let generation = self.generation.next();
        let Ok(next) = Formation::planned([self.formed, generation], sums, &members) else {
            return false;
        };
        self.generation = generation;
        self.change.plan = Some(Plan {
            generation,
            purpose,
            next: Some(next),
            ready: BTreeSet::new(),
            ordered: None,
        });
        self.send_prepares(|_| true);
        true
    }

    /// Ends this generation at the next boundary although none can follow yet: a worker that leaves loses no work.
    fn pause(&mut self) {
        self.generation = self.generation.next();
        self.change.plan = Some(Plan {
            generation: self.generation,
            purpose: Purpose::Change,
            next: None,
            ready: BTreeSet::new(),
            ordered: None,
        });
        self.order_switch();
    }

    /// Sends the orders to members of the plan that have not said that they are ready, if they are due. Joiners get them again until they
    /// have begun: a joiner that has given up says so.
    fn send_prepares(&mut self, is_due: impl Fn(&Record) -> bool) {
        let Some(Plan {
            next: Some(next), ready, ..
        }) = &self.change.plan
        else {
            return;
        };
        let record = |worker: &WorkerId| self.members.get(worker);
        let joins = |worker: &WorkerId| record(worker).is_some_and(|record| record.joins());
        let forms: Vec<_> = next
            .workers()
            .enumerate()
            .filter(|(_, worker)| record(worker).is_some_and(&is_due) && (!ready.contains(worker) || joins(worker)))
            .filter_map(|(index, worker)| {
                let rank = Rank::at(index);
                Some((worker, next.form(rank, self.training.next_report)?))
            })
            .collect();
        for (worker, form) in forms {
            self.send(worker, CoordinatorMessage::Prepare(Box::new(form)));
        }
    }

    /// A member of the plan has its links.
    pub(super) fn plan_ready(&mut self, worker: WorkerId, generation: Generation) {
        let Some(plan) = self.change.plan.as_mut().filter(|plan| plan.generation == generation) else {
            return;
        };
        let Some(next) = &plan.next else { return };
        if next.rank_of(worker).is_some() {
            plan.ready.insert(worker);
        }
        let all = plan.ready.len() == next.world_size();
        if (all || bites(Bug::SwitchedBeforeReady)) && !plan.is_ordered() {
            self.order_switch();
        }
    }

    fn order_switch(&mut self) {
        let (now, closer) = (self.now, self.formation.as_ref().and_then(Formation::closer));
        let Some(plan) = &mut self.change.plan else { return };
        plan.ordered = Some(now);
        let trailer = Trailer::Switch(plan.generation);
        let generation = self.formed;
        if let Some(closer) = closer {
            self.send(closer, CoordinatorMessage::CloseWith { generation, trailer });
        }
    }

    /// Says again what may have fallen into a broken connection.
    pub(super) fn ask_again_for_the_plan(&mut self) {
        if self.now.saturating_sub(self.change.said) < RESEND {
            return;
        }
        self.change.said = self.now;
        let (now, patience) = (self.now, self.resend_patience());
        let is_due = |record: &Record| now.saturating_sub(record.asked) >= patience;
        match self.change.plan.as_ref().map(Plan::is_ordered) {
            Some(true) => {
                self.order_switch();
                self.send_prepares(is_due);
            }
            Some(false) => self.send_prepares(is_due),
            None => {
                self.say_begun(is_due);
                self.ask_leavers();
            }
        }
    }

    /// A joiner that stands beyond the boundary of the switch sees no trailer that says so: it had the sum before that boundary from a
    /// generation whose other holders died, closed with other orders than the one that was computed again.
    fn say_begun(&mut self, is_due: impl Fn(&Record) -> bool) {
        let Some(formation) = &self.formation else { return };
        let late: Vec<(WorkerId, Form)> = self
            .change
            .switching
            .iter()
            .filter_map(|&worker| {
                let rank = self.members.get(&worker).filter(|record| is_due(record))?.rank?;
                Some((worker, formation.form(rank, self.training.next_report)?))
            })
            .collect();
        for (worker, form) in late {
            self.send(worker, CoordinatorMessage::Prepare(Box::new(form)));
        }
    }

    /// The first to halt at a pause: the others do so too, or are asked to.
    pub(super) fn paused(&mut self) {
        if self.change.plan.take_if(|plan| plan.is_pause()).is_none() {
            return;
        }
        self.phase = Phase::Halting { since: self.now };
        for worker in self.busy() {
            self.put(worker, Place::Called);
            if let Some(record) = self.members.get_mut(&worker) {
                record.asked = self.now;
            }
        }
    }

    /// A member says where it has begun the planned generation. All begin it at the same step, behind the trailer that switches to it.
    pub(super) fn says_switched(&mut self, worker: WorkerId, generation: Generation, step: Step) {
        if !self.switched(worker, generation, step) {
            return;
        }
        let begins = *self.change.begins.get_or_insert(step);
        let Some(formation) = &mut self.formation else { return };
        // The one that made progress in it first is there, or beyond.
        let alike = begins == step && step <= formation.step;
        // None is believed to be far beyond the others by its own word of where they begin.
        formation.step = formation.step.min(step);
        if !alike {
            self.misled();
        }
    }

    /// A worker that makes progress in the planned generation, or finishes in it, has switched to it, or has halted for it if it is a
    /// pause: its word of that may be lost.
    pub(super) fn switched_if_so(&mut self, worker: WorkerId, generation: Generation, step: Step) {
        let planned = self.change.plan.as_ref().is_some_and(|plan| plan.generation == generation);
        if planned {
            self.paused();
        }
        if (planned || self.change.switching.contains(&worker))
            && self.switched(worker, generation, step)
            && self.change.begins.is_some_and(|begins| step < begins)
        {
            self.misled();
        }
    }

    /// A member has begun the planned generation, and is at this step. Whether that was not known yet.
    fn switched(&mut self, worker: WorkerId, generation: Generation, step: Step) -> bool {
        self.reach(step);
        let named = |plan: &Plan| plan.generation == generation;
        match self.planned(worker) {
            Planned::Ordered => self.begin_plan(generation, step),
            Planned::Prepared if self.change.plan.as_ref().is_some_and(named) => self.begun_before_the_order(),
            Planned::Prepared | Planned::No => {}
        }
        generation == self.formed && self.change.switching.remove(&worker)
    }

    /// No trailer can say so yet. Where one joiner has begun what is planned, others may have: they are to halt, too.
    fn begun_before_the_order(&mut self) {
        let next = self.change.plan.as_ref().and_then(|plan| plan.next.as_ref());
        let Some(next) = next.filter(|_| self.is_formed()) else {
            return;
        };
        let joins = |worker: &WorkerId| self.members.get(worker).is_some_and(Record::joins);
        for joiner in next.workers().filter(joins).collect::<Vec<_>>() {
            self.put(joiner, Place::Called);
        }
        self.misled();
    }

    /// A worker has begun the planned generation where no member did: it was handed another trailer than the members, or was told a wrong step, as another
    /// worker has lied to this coordinator; or it lies itself. No sum would ever come of their gradients. A halt finds out where each of them stands.
    fn misled(&mut self) {
        if self.is_formed() {
            self.disturb();
        }
    }

    /// The trailer that switches is known to have closed a sum. So all will begin the planned generation at this step, unless
    /// something breaks.
    pub(super) fn begin_plan(&mut self, generation: Generation, step: Step) {
        let begun = |plan: &mut Plan| plan.generation == generation && plan.is_ordered() && !plan.is_pause();
        let Some(mut next) = self.change.plan.take_if(begun).and_then(|plan| plan.next) else {
            return;
        };
        next.step = step;
        self.formed = generation;
        let members: Vec<WorkerId> = next.workers().collect();
        for (index, member) in members.iter().enumerate() {
            if let Some(record) = self.members.get_mut(member) {
                record.rank = Some(Rank::at(index));
            }
            self.put(*member, Place::Ready);
        }
        let shards = next.ranges();
        self.change.stayed = members.iter().copied().filter(|member| self.is_member(*member)).collect();
        self.formation = Some(next);
        self.change.switching = members.iter().copied().collect();
        self.change.begins = None;
        self.tell(GenerationEvent::Switched {
            generation,
            members,
            shards,
            step,
        });
        self.round.goes_on_after_a_switch();
        self.run(Resumed::NotYet);
    }

    /// Whether it was left out at the last switch and is not gone yet.
    pub(super) fn lingers(&self, worker: WorkerId, record: &Record) -> bool {
        !record.joins() && record.quiet().is_none() && !self.is_member(worker)
    }

    /// Whether `worker` is a member of the current generation.
    pub(super) fn is_member(&self, worker: WorkerId) -> bool {
        self.formation
            .as_ref()
            .is_some_and(|formation| formation.rank_of(worker).is_some())
    }
}
