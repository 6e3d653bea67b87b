//! How a joiner comes to the state while the others train: it copies a snapshot, then follows the ring sum by sum.
//!
//! It sees the same sums with the same trailers as the members do, only by another way. So a trailer that switches to a generation
//! with this worker in it is its way in, at the same boundary as the members'.

use super::Member;
use super::command::{Command, NetworkCommand};
use super::event::Followed;
use super::update::Update;
use crate::job::Order;
use crate::limits::MAX_HOLDERS;
use crate::lineage::Lineage;
use crate::messages::{Snapshot, Trailer, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::snapshot::SnapshotId;
use crate::words::Step;

/// What a worker has of the way in.
#[derive(Debug, Clone, Default)]
pub(super) struct Joining {
    pub(super) follow: Option<Follow>,
    pub(super) given_up: Option<GivenUp>,
    /// The snapshot that the state was copied from.
    copied: Option<SnapshotId>,
}

/// A joiner's progress.
#[derive(Debug, Clone)]
pub(super) struct Follow {
    snapshot: Snapshot,
    stage: Stage,
    /// The sum that was asked for.
    asked: Option<Step>,
    /// The sum that came while the one before it was being applied.
    aside: Option<Followed>,
    /// Whether the coordinator was told that this joiner has caught up.
    told: bool,
}

/// Why a joiner neither copies nor follows any more. Said again when the coordinator counts on the joiner: it may not have heard.
#[derive(Debug, Clone)]
pub(super) struct GivenUp {
    snapshot: SnapshotId,
    reason: String,
}

impl Joining {
    /// The newest snapshot that it was told to copy, as far as it knows of it.
    fn newest(&self) -> Option<SnapshotId> {
        let follows = self.follow.as_ref().map(|follow| follow.snapshot.id);
        let given_up = self.given_up.as_ref().map(|given_up| given_up.snapshot);
        self.copied.max(follows).max(given_up)
    }
}

impl Follow {
    /// Where it stands, by name.
    pub(super) fn phase(&self) -> &'static str {
        match self.stage {
            Stage::Held => "held",
            Stage::Copying => "copying",
            Stage::Loading => "loading",
            Stage::Following => "following",
        }
    }
}

impl GivenUp {
    pub(super) fn say(&self, out: &mut Vec<Command>) {
        out.push(Command::Send(WorkerMessage::CopyFailed {
            snapshot: self.snapshot,
            reason: self.reason.clone(),
        }));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Something else is still being loaded.
    Held,
    Copying,
    Loading,
    Following,
}

impl Member {
    pub(super) fn copy(&mut self, snapshot: Snapshot, out: &mut Vec<Command>) {
        let late = self.joining.newest() > Some(snapshot.id);
        if self.seat.is_some() || self.promise.owed.is_some() || late || !self.is_sound_snapshot(&snapshot) {
            return;
        }
        out.push(Command::Send(WorkerMessage::Copying { snapshot: snapshot.id }));
        match &mut self.joining.follow {
            Some(follow) if follow.snapshot.id == snapshot.id => {
                follow.snapshot = snapshot;
                // The coordinator lacks the news, or it would not say so again.
                follow.told = false;
                match (follow.stage, follow.asked) {
                    (Stage::Copying, _) => {
                        out.push(Command::Network(NetworkCommand::Copy(Box::new(follow.snapshot.clone()))))
                    }
                    (Stage::Following, Some(step)) => self.ask(step, out),
                    (Stage::Held | Stage::Loading | Stage::Following, _) => {}
                }
            }
            Some(_) | None => {
                self.end_copy(out);
                self.joining.follow = Some(Follow {
                    snapshot,
                    stage: Stage::Held,
                    asked: None,
                    aside: None,
                    told: false,
                });
                self.begin_copy(out);
            }
        }
    }

    fn is_sound_snapshot(&self, snapshot: &Snapshot) -> bool {
        let of = snapshot.holders.len();
        (1..=MAX_HOLDERS as usize).contains(&of) && snapshot.shares.len() == of && snapshot.id.step <= self.job.end
    }

    /// Begins what was ordered, unless something else is still being loaded or applied.
    pub(super) fn begin_copy(&mut self, out: &mut Vec<Command>) {
        if self.update != Update::None || self.promise.owed.is_some() {
            return;
        }
        let (copied, step, order) = (self.joining.copied, self.step, self.job.order);
        let Some(follow) = self.joining.follow.as_mut().filter(|follow| follow.stage == Stage::Held) else {
            return;
        };
        // A state as new as the snapshot is the job's own (BITS-1). In fast order that holds only for what was copied from it.
        let own = match order {
            Order::Exact => step >= follow.snapshot.id.step,
            Order::Fast => copied == Some(follow.snapshot.id),
        };
        if own {
            follow.stage = Stage::Following;
            self.ask(step, out);
        } else {
            follow.stage = Stage::Copying;
            out.push(Command::Network(NetworkCommand::Copy(Box::new(follow.snapshot.clone()))));
        }
    }

    fn ask(&mut self, step: Step, out: &mut Vec<Command>) {
        let end = self.job.end;
        let sum = self.wanted(step);
        let Some(follow) = &mut self.joining.follow else { return };
        if step >= end {
            follow.asked = None;
            return;
        }
        follow.asked = Some(step);
        out.push(Command::Network(NetworkCommand::Follow {
            sum,
            snapshot: Box::new(follow.snapshot.clone()),
        }));
    }

    pub(super) fn copied(&mut self, snapshot: SnapshotId, out: &mut Vec<Command>) {
        let idle = self.update == Update::None && self.seat.is_none() && self.promise.owed.is_none();
        let Some(follow) = self.joining.follow.as_mut().filter(|_| idle) else {
            return;
        };
        if follow.snapshot.id == snapshot && follow.stage == Stage::Copying {
            follow.stage = Stage::Loading;
            let lineage = Lineage::of(self.job.order, snapshot.generation);
            self.comes(Update::Fetched(snapshot.step), lineage);
            out.push(Command::Accept {
                trailer: Trailer::Continue,
            });
        }
    }

    pub(super) fn copy_failed(&mut self, snapshot: SnapshotId, reason: String, out: &mut Vec<Command>) {
        if self
            .joining
            .follow
            .as_ref()
            .is_some_and(|follow| follow.snapshot.id == snapshot)
        {
            self.give_up(reason, out);
        }
    }

    /// Neither copies nor follows any more, and says why.
    pub(super) fn give_up(&mut self, reason: String, out: &mut Vec<Command>) {
        let Some(follow) = self.joining.follow.take() else { return };
        let given_up = GivenUp {
            snapshot: follow.snapshot.id,
            reason,
        };
        self.unprepare(out);
        out.push(Command::Network(NetworkCommand::EndCopy));
        given_up.say(out);
        self.joining.given_up = Some(given_up);
        // If it is to begin with that once more, then wholly.
        self.joining.copied = None;
    }

    pub(super) fn followed(&mut self, sum: Followed, out: &mut Vec<Command>) {
        let Followed { step, trailer, .. } = sum;
        let (mine, idle) = (self.step, self.update == Update::None);
        let asked = |follow: &Follow| follow.asked == Some(step);
        if !self.joining.follow.as_ref().is_some_and(asked) {
            return;
        }
        if let Err(reason) = self.may_be_handed(sum) {
            return self.give_up(reason, out);
        }
        let Some(follow) = &mut self.joining.follow else { return };
        follow.asked = None;
        let is_next = step == mine && idle;
        if is_next {
            out.push(Command::Accept { trailer });
        } else if step == mine.next() && !idle {
            if bites(Bug::AsideDropped) {
                return;
            }
            follow.aside = Some(sum);
            out.push(Command::LayAside);
        } else {
            // It was asked for in the wrong order, which does not happen; the right one is asked for again.
            return self.ask(mine, out);
        }
        if sum.keeper_at <= step.next() && !follow.told {
            follow.told = true;
            let snapshot = follow.snapshot.id;
            out.push(Command::Send(WorkerMessage::CaughtUp { snapshot, step }));
        }
        if is_next {
            self.comes(Update::Summed(trailer), self.led_on_by(sum.generation));
            self.ask_after(step, trailer, out);
        }
    }

    /// Whether a keeper can have such a sum for this joiner. One of a later coordinator than has greeted it is not for it: with that it begins anew.
    fn may_be_handed(&self, sum: Followed) -> Result<(), String> {
        let (of, known) = (sum.generation, self.promise.incarnation);
        let last = self.wanted(sum.step).before;
        if of.incarnation() > known {
            return Err(format!("it was handed a sum of {of}, and knows coordinators up to {known}"));
        }
        if of < last {
            return Err(format!("it was handed a sum of {of}, and has one of {last} already"));
        }
        Ok(())
    }

    /// Says with a heartbeat that it has caught up: the coordinator does not ask for it.
    pub(super) fn say_caught_up(&self, out: &mut Vec<Command>) {
        let told = self.joining.follow.as_ref().filter(|follow| follow.told);
        if let Some(Follow { snapshot, .. }) = told {
            let (snapshot, step) = (snapshot.id, self.step);
            out.push(Command::Send(WorkerMessage::CaughtUp { snapshot, step }));
        }
    }

    /// Asks for the sum that comes after that of `step`, if there is one for a joiner to apply.
    fn ask_after(&mut self, step: Step, trailer: Trailer, out: &mut Vec<Command>) {
        let goes_on = match trailer {
            Trailer::Continue | Trailer::Snapshot => true,
            Trailer::Stop => false,
            Trailer::Switch(generation) => !self.is_prepared(generation),
        };
        if goes_on {
            self.ask(step.next(), out);
        }
    }

    /// The state has changed: goes on with what is here, or asks.
    pub(super) fn follow_on(&mut self, out: &mut Vec<Command>) {
        let over = self.is_over();
        let Some(follow) = &mut self.joining.follow else { return };
        match (follow.stage, follow.aside.take()) {
            (Stage::Loading, _) => {
                follow.stage = Stage::Following;
                self.joining.copied = Some(follow.snapshot.id);
                let step = self.step;
                self.ask(step, out);
            }
            (Stage::Following, Some(sum)) => {
                let Followed { step, trailer, .. } = sum;
                self.comes(Update::Summed(trailer), self.led_on_by(sum.generation));
                out.push(Command::AcceptAside { trailer });
                self.ask_after(step, trailer, out);
            }
            (Stage::Held, _) => self.begin_copy(out),
            // It was to take a seat here, and has given that up.
            (Stage::Following, None) if follow.asked.is_none() && !over => {
                let step = self.step;
                self.ask(step, out);
            }
            (Stage::Copying | Stage::Following, _) => {}
        }
    }

    /// Neither copies nor follows any more, for a better reason than a failure.
    pub(super) fn end_copy(&mut self, out: &mut Vec<Command>) {
        self.joining.given_up = None;
        if self.joining.follow.take().is_some() {
            out.push(Command::Network(NetworkCommand::EndCopy));
        }
    }
}
