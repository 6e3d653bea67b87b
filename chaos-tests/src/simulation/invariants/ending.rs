//! The end: the last step, or the one where all were told to stop, with the state of an undisturbed run (BITS-1); and the count, as far
//! as it can be known.

use std::collections::BTreeSet;

use sardana_protocol::job::Order;
use sardana_protocol::membership::{Loss, Summary};
use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};
use crate::simulation::model::hash_of;

/// What may leave the coordinator in doubt how many gradients were computed, or how many of them in vain.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Whether connections broke or messages were lost: then it cannot know.
    pub(crate) uncountable: bool,
    /// Whether a worker may lack the memory for all K gradients.
    pub(crate) scarce: bool,
    /// How often members computed anew, for want of memory, what they had.
    dropped: u64,
    /// How many workers were lost, as people were told, without the number of gradients that they had computed.
    uncounted: u64,
    /// Workers that have ended with their host, whose agent would have said with what count.
    unseen: BTreeSet<WorkerId>,
    /// How often all members were others than before.
    pub(super) inherited: u64,
    /// How often people were told that the state was lost.
    pub(super) states_lost: u64,
}

impl Law {
    /// The job is done only when every member has reported the last step. `behind`: a member that has not reached it.
    pub(crate) fn all_at_the_end(&mut self, last: Step, behind: Option<(WorkerId, Step)>) -> Held {
        self.check("all are at the end", behind.is_none(), || {
            format!("the job is done at {last}, and a member is not there: {behind:?}")
        })
    }

    /// A worker is lost.
    pub(crate) fn loses(&mut self, cause: &Loss) {
        let counted = matches!(cause, Loss::Exited { tally: Some(_), .. });
        self.doubts.uncounted += u64::from(!counted);
    }

    /// A worker has ended with its host: no agent will say with what count.
    pub(crate) fn ends_unseen(&mut self, worker: WorkerId) {
        self.doubts.unseen.insert(worker);
    }

    /// A generation is formed, whose members compute some gradients anew that they have, or do not.
    pub(crate) fn drops(&mut self, dropping: bool) -> Held {
        self.doubts.dropped += u64::from(dropping);
        self.check(
            "what is there is not computed anew but for want of memory",
            self.doubts.scarce || self.order == Order::Fast || !dropping,
            || "members that have the memory for it are to compute anew what they have".to_owned(),
        )
    }

    /// The job is done. `really`: how many gradients all workers there ever were have computed.
    pub(crate) fn ended(&mut self, summary: &Summary, really: u64) -> Held {
        let (step, last) = (summary.step, self.steps);
        let right = step == last || (self.may_stop_early && step < last);
        self.check("the job ends where it should", right, || {
            format!("it ended at {step} of {last}")
        })?;
        let holds = self.reference.is_at(step, |state| summary.hash == hash_of(state));
        self.check("BITS-1, at the end", holds, || {
            format!("the final state at {step} is not that of an undisturbed run")
        })?;
        if self.doubts.uncountable {
            self.excuse("how many gradients were computed cannot be known");
            return Ok(());
        }
        let (unknown, uncounted) = (summary.unknown, self.doubts.uncounted);
        let (inherited, lost, dropped) = (self.doubts.inherited, self.doubts.states_lost, self.doubts.dropped);
        // Others that ended so were lost, without their count.
        let unseen = self.doubts.unseen.intersection(&self.gone).count() as u64;
        if self.lives > 1 && unknown > 0 {
            self.excuse("a coordinator does not know what was counted in an earlier life");
            return Ok(());
        }
        // A worker that is lost without its count may come back, and leave it unsure what it had computed in vain; and so may a joiner with
        // the state of lost workers, and an older state that holds gradients of theirs.
        let most = 2 * uncounted + unseen + inherited + lost + dropped;
        self.check("each count is known", u64::from(unknown) <= most, || {
            format!(
                "{unknown} counts are said to be unknown, {uncounted} workers were lost without theirs, {unseen} were let go and ended with \
                 their hosts, {inherited} times all members were others than before, {lost} times the state was lost, and {dropped} times memory \
                 did not hold what was there"
            )
        })?;
        let (computed, again) = (summary.computed, summary.recomputed);
        let once = u64::from(self.shards) * step.get();
        // What was in vain may be in doubt, not what was computed by workers whose counts are there.
        let counted = computed <= really && (uncounted + unseen > 0 || computed >= once);
        let right = counted && (unknown > 0 || computed == once + again);
        self.check("each gradient once", right, || {
            format!(
                "{computed} gradients were counted, {really} computed; expected {once} and {again} again, {unknown} unknown"
            )
        })
    }
}
