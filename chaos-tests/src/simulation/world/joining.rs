//! What joiners copy and follow, and what members fetch to catch up.

use std::time::Duration;

use sardana_protocol::limits::NAMING_DEADLINE;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::{Event, Followed, Lacking};
use sardana_protocol::membership::Membership;
use sardana_protocol::messages::{Snapshot, Trailer};
use sardana_protocol::snapshot::{Share, holders_of, keepers_of};
use sardana_protocol::words::{Step, WorkerId};

use super::World;
use super::process::{Data, Fetching, Process};
use crate::simulation::calendar::Happening;
use crate::simulation::invariants::Violation;
use crate::simulation::model::{Sum, hash_of_share};
use crate::simulation::network::{IDLE, Node};

/// What a joiner waits for.
#[derive(Default)]
pub(crate) struct Joining {
    serial: u64,
    since: Duration,
    goal: Option<(Goal, Snapshot)>,
    pub(crate) aside: Data,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    State,
    Sum(WantedSum),
}

impl Joining {
    /// Whether it copies a state.
    pub(crate) fn copies(&self) -> bool {
        matches!(self.goal, Some((Goal::State, _)))
    }

    fn waits_for(&self, step: Step) -> bool {
        matches!(self.goal, Some((Goal::Sum(wanted), _)) if wanted.step == step)
    }

    pub(crate) fn end(&mut self) {
        self.goal = None;
        self.aside = Data::None;
    }
}

/// What a worker that is asked for something answers.
enum Answer<T> {
    Here(T),
    /// Not yet, or no worker has answered so far.
    Wait,
    Never,
}

impl World {
    /// What a member lacks is fetched from a donor.
    pub(super) fn fetch(&mut self, worker: WorkerId, wanted: Fetching) {
        self.serial += 1;
        let serial = self.serial;
        let delay = match wanted.what {
            Lacking::State(_) => self.swarm.transfer,
            Lacking::Sum(_) => self.swarm.sum,
        };
        if let Some(process) = self.processes.get_mut(&worker) {
            process.fetching = Some(Fetching { serial, ..wanted });
        }
        let delay = delay + self.network.stream_delay(&mut self.dice) * 2;
        self.calendar.after(delay, Happening::Fetched { worker, serial });
    }

    pub(super) fn fetched(&mut self, worker: WorkerId, serial: u64) {
        let now = self.now();
        let fetching = self.processes.get(&worker).and_then(|process| process.fetching);
        let Some(wanted) = fetching.filter(|fetching| fetching.serial == serial) else {
            return;
        };
        let donor = wanted.donor.worker;
        let delivered = match self.answers(worker, donor) {
            Some(donor) if donor.owes_forever(&wanted) => {
                return self
                    .calendar
                    .after(NAMING_DEADLINE / 10, Happening::Fetched { worker, serial });
            }
            Some(donor) => donor.donate(&wanted),
            // Until its connection is given up.
            None if now.saturating_sub(wanted.since) < NAMING_DEADLINE => {
                return self
                    .calendar
                    .after(NAMING_DEADLINE / 10, Happening::Fetched { worker, serial });
            }
            None => None,
        };
        let seated = |process: &Process| {
            let ring = process.ring.as_ref();
            ring.is_some_and(|ring| ring.form.generation == wanted.generation)
        };
        let refuses = delivered.is_none() && self.answers(worker, donor).is_some_and(seated);
        let held = self.law.donates(donor, worker, wanted.what.step(), refuses);
        self.require(held);
        if let Some(process) = self.processes.get_mut(&worker) {
            process.fetching = None;
        }
        let (generation, step) = (wanted.generation, wanted.what.step());
        match delivered {
            Some(data) => self.leave_for(worker, Event::Fetched { generation, step }, data),
            None => {
                let peer = donor;
                self.leave_for(worker, Event::LinkBroken { generation, peer }, Data::None);
            }
        }
    }

    /// `other`, if it is there and says something to `worker`.
    pub(super) fn answers(&self, worker: WorkerId, other: WorkerId) -> Option<&Process> {
        let process = self.processes.get(&other)?;
        let awake = process.frozen_until.is_none_or(|thaw| thaw <= self.now());
        (awake && self.reaches(Node::Worker(worker), Node::Worker(other))).then_some(process)
    }

    pub(super) fn copy(&mut self, worker: WorkerId, snapshot: Snapshot) {
        self.join(worker, Goal::State, snapshot);
    }

    pub(super) fn follow(&mut self, worker: WorkerId, sum: WantedSum, snapshot: Snapshot) {
        self.join(worker, Goal::Sum(sum), snapshot);
    }

    /// Begins to copy or follow; if that is under way, only the holders have changed.
    fn join(&mut self, worker: WorkerId, goal: Goal, snapshot: Snapshot) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let joining = &mut process.joining;
        if let Some((before, known)) = &mut joining.goal
            && known.id == snapshot.id
            && (*before == goal || goal == Goal::State)
        {
            *known = snapshot;
            return;
        }
        self.serial += 1;
        let serial = self.serial;
        (joining.serial, joining.since, joining.goal) = (serial, now, Some((goal, snapshot)));
        let load = match goal {
            Goal::State => self.swarm.transfer,
            Goal::Sum(_) => self.swarm.sum,
        };
        let delay = self.network.stream_delay(&mut self.dice) * 2 + load;
        self.calendar.after(delay, Happening::Transferred { worker, serial });
    }

    /// A joiner gets what it has asked for, learns that no member has it, or waits on.
    pub(super) fn transferred(&mut self, worker: WorkerId, serial: u64) {
        let Some(process) = self.processes.get(&worker) else { return };
        let joining = &process.joining;
        let (since, Some((goal, snapshot))) = (joining.since, &joining.goal) else {
            return;
        };
        if joining.serial != serial {
            return;
        }
        let (goal, snapshot) = (*goal, snapshot.clone());
        let failed = |what: &str| {
            let reason = format!("nobody has {what}");
            let snapshot = snapshot.id;
            (Event::CopyFailed { snapshot, reason }, Data::None)
        };
        let (event, data) = match goal {
            Goal::State => match self.copied(worker, &snapshot, since) {
                Ok(Answer::Here(state)) => (Event::Copied { snapshot: snapshot.id }, Data::State(state)),
                Ok(Answer::Wait) => return self.transfer_again(worker, serial),
                Ok(Answer::Never) => failed("a share"),
                Err(violation) => return self.require(Err(violation)),
            },
            Goal::Sum(wanted) => match self.followed(worker, wanted, &snapshot, since) {
                Answer::Here((sum, keeper, keeper_at)) => {
                    self.law.follows_up_to(worker, wanted.step);
                    let told = Followed {
                        step: wanted.step,
                        generation: sum.lineage.last,
                        trailer: sum.trailer,
                        keeper_at,
                    };
                    let newest = self.coordinator.machine.as_ref().map(Membership::generation);
                    let told = match (&mut self.liars, newest) {
                        (Some(liars), Some(newest)) => liars.hands_over(keeper, told, newest, &mut self.dice),
                        (Some(_), None) | (None, _) => told,
                    };
                    (Event::Followed(told), Data::Sum(sum))
                }
                Answer::Wait => return self.transfer_again(worker, serial),
                Answer::Never => failed("the sum"),
            },
        };
        if let Some(process) = self.processes.get_mut(&worker) {
            process.joining.goal = None;
        }
        self.member(worker, event, data);
    }

    /// Whether a joiner waits for the sum of this step.
    pub(crate) fn is_awaited(&self, step: Step) -> bool {
        self.processes.values().any(|process| process.joining.waits_for(step))
    }

    /// Joiners that wait for the sum of this step get it at once, if it is there.
    pub(crate) fn hand_to_joiners(&mut self, step: Step) {
        let waiting = self.processes.iter().filter(|(_, process)| process.joining.waits_for(step));
        let waiting: Vec<_> = waiting.map(|(&worker, process)| (worker, process.joining.serial)).collect();
        for (worker, serial) in waiting {
            self.transferred(worker, serial);
        }
    }

    /// A joiner that follows and has nothing to apply waits for the next sum, unless the last one said that there is none.
    pub(super) fn look_at_joiner(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get(&worker) else { return };
        let phases = process.member.phases();
        if phases.joining != "following" || phases.update != "none" {
            return;
        }
        let stopped = process.sum.as_ref().is_some_and(|sum| sum.trailer == Trailer::Stop);
        let over = stopped || process.member.step() >= self.coordinator.config.steps;
        let waits = process.joining.goal.is_some();
        let held = self.law.follows(worker, waits || over);
        self.require(held);
    }

    fn transfer_again(&mut self, worker: WorkerId, serial: u64) {
        let step = self.swarm.gradient + self.swarm.apply;
        let pause = (step / 4).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.calendar.after(pause, Happening::Transferred { worker, serial });
    }

    fn copied(&mut self, joiner: WorkerId, snapshot: &Snapshot, since: Duration) -> Result<Answer<u64>, Violation> {
        let of = u32::try_from(snapshot.holders.len()).unwrap_or(u32::MAX);
        let waited = self.now().saturating_sub(since);
        let mut states = Vec::new();
        for index in 0..of {
            let mut wait = false;
            let mut found = None;
            for place in holders_of(index, of) {
                let Some(holder) = snapshot.holders.get(place as usize).copied().flatten() else {
                    continue;
                };
                match self.answers(joiner, holder.worker) {
                    Some(process) if process.keeping.admitted.contains(&joiner) => {
                        found = found.or(process.keeping.share(snapshot.id, index));
                    }
                    Some(_) => wait |= waited < NAMING_DEADLINE,
                    None => wait |= waited < IDLE,
                }
            }
            match found {
                Some(state) => {
                    let right = snapshot.shares.get(index as usize) == Some(&hash_of_share(state, Share { index, of }));
                    // Its holder has told another hash than the share has.
                    if !right && self.liars.is_some() {
                        return Ok(Answer::Never);
                    }
                    if !right {
                        let text = format!("{joiner} copies share {index} of {}, with another hash", snapshot.id);
                        return Err(Violation::new("STEP-2", text));
                    }
                    states.push(state);
                }
                None if wait => return Ok(Answer::Wait),
                None => return Ok(Answer::Never),
            }
        }
        let Some(&state) = states.first() else {
            return Ok(Answer::Never);
        };
        self.law.computes_with(snapshot.id.step, state)?;
        if states.iter().any(|other| *other != state) {
            let text = format!("{joiner} copies shares of different states as {}", snapshot.id);
            return Err(Violation::new("STEP-2", text));
        }
        Ok(Answer::Here(state))
    }

    fn followed(
        &self,
        joiner: WorkerId,
        wanted: WantedSum,
        snapshot: &Snapshot,
        since: Duration,
    ) -> Answer<(Sum, WorkerId, Step)> {
        let of = u32::try_from(snapshot.holders.len()).unwrap_or(u32::MAX);
        let waited = self.now().saturating_sub(since);
        let mut waits = false;
        for place in keepers_of(wanted.step, of) {
            let Some(keeper) = snapshot.holders.get(place as usize).copied().flatten() else {
                continue;
            };
            let Some(process) = self.answers(joiner, keeper.worker) else {
                waits |= waited < IDLE;
                continue;
            };
            let (keeping, at) = (&process.keeping, process.member.step());
            if !keeping.admitted.contains(&joiner) {
                waits |= waited < NAMING_DEADLINE;
            } else if let Some(sum) = process.sum_of(wanted) {
                return Answer::Here((sum.clone(), keeper.worker, at));
            } else {
                // It is yet to come.
                waits |= at <= wanted.step;
            }
        }
        if waits { Answer::Wait } else { Answer::Never }
    }
}
