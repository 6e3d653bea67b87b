//! The generation that a group's worker is in: its links, and the group made of them, until the program has it.

use sardana_collectives::group::{Alarm, Group, GroupLinks, LaneLinks, Place};
use sardana_collectives::links::in_process;
use sardana_collectives::ring::{PlanLinks, RingLinks};
use sardana_protocol::messages::Form;
use sardana_protocol::plan::{Part, RingPart};
use tokio::task::AbortHandle;

/// The generation under way.
pub(super) struct Current {
    pub(super) form: Box<Form>,
    pub(super) alarm: Alarm,
    /// The task that makes its links, or waits for its alarm.
    pub(super) task: AbortHandle,
    group: Handed,
}

/// Where its group is.
enum Handed {
    /// Its links are not made, or cannot be.
    NotYet,
    /// The program has not asked for it.
    Ready(Box<Group>),
    /// The program has it, or had it.
    Over,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Current {
    /// The generation of `form`, whose links `task` makes.
    pub(super) fn new(form: Box<Form>, task: AbortHandle) -> Self {
        Self {
            form,
            alarm: Alarm::default(),
            task,
            group: Handed::NotYet,
        }
    }

    /// Its links are made.
    pub(super) fn is_linked(&mut self, mut links: RingLinks) {
        let place = Place {
            rank: self.form.rank,
            world_size: self.form.world_size,
            generation: self.form.generation,
        };
        if let Some(links) = group_links(&self.form, &mut links) {
            self.group = Handed::Ready(Box::new(Group::new(place, links, self.alarm.clone())));
        }
    }

    /// Whether there is a group that the program has not asked for.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.group, Handed::Ready(_))
    }

    /// Whether the program has the group, or had it.
    pub(super) const fn is_handed_over(&self) -> bool {
        matches!(self.group, Handed::Over)
    }

    /// The group, for the program, if it is ready.
    pub(super) fn hand_over(&mut self) -> Option<Group> {
        if !self.is_ready() {
            return None;
        }
        match std::mem::replace(&mut self.group, Handed::Over) {
            Handed::Ready(group) => Some(*group),
            Handed::NotYet | Handed::Over => None,
        }
    }
}

/// The lanes of the group at the form's rank: the links of its first plan, and of its steady one. None if some are not there.
fn group_links(form: &Form, links: &mut RingLinks) -> Option<GroupLinks> {
    Some(GroupLinks {
        running: lane(&form.first, &mut links.first)?,
        finished: lane(&form.steady, &mut links.steady)?,
    })
}

fn lane(part: &Part, links: &mut PlanLinks) -> Option<LaneLinks> {
    let Part::Ring(RingPart { hops, .. }) = part else {
        return None;
    };
    let Some((before, after)) = hops else {
        // Nothing passes the links of a rank that is alone.
        let (to, from) = in_process();
        return Some(LaneLinks { from, to });
    };
    Some(LaneLinks {
        from: links.incoming.remove(&before.hop)?,
        to: links.outgoing.remove(&after.hop)?,
    })
}
