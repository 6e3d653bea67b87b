//! What the ring does, seen from outside: it gives a member the sum once all members have offered their pieces, and passes it
//! from the closer to the others one by one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::messages::{Form, MemberAddress, Trailer};
use sardana_protocol::plan::{OrderedPart, Part};
use sardana_protocol::words::{Generation, Rank, ShardRange, Step, WorkerId};

use crate::model::Piece;

/// One member's end of a generation's ring.
#[derive(Debug, Clone)]
pub(crate) struct RingEnd {
    pub(crate) form: Form,
    pub(crate) begun: Option<Step>,
    pub(crate) offered: Vec<Piece>,
    pub(crate) closing: Trailer,
    pub(crate) delivered: Option<Step>,
}

impl RingEnd {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            begun: None,
            offered: Vec::new(),
            closing: Trailer::Continue,
            delivered: None,
        }
    }

    fn part(&self, step: Step) -> &OrderedPart {
        let part = if step == self.form.step {
            &self.form.first
        } else {
            &self.form.steady
        };
        match part {
            Part::Ordered(part) => part,
            Part::Ring(_) => panic!("exact order has no ring parts: {part:?}"),
        }
    }
}

/// A finished sum on its way along the ring.
#[derive(Debug, Clone)]
pub(crate) struct Sum {
    /// Whether it reaches the member that was asked for.
    pub(crate) comes: bool,
    pub(crate) gradients: Vec<(u32, u64)>,
    pub(crate) trailer: Trailer,
}

/// The sums that rings have finished, and whom each has reached.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    finished: BTreeMap<(Generation, Step), (Sum, BTreeSet<Rank>)>,
}

/// What a member receives.
pub(crate) struct Delivery {
    pub(crate) generation: Generation,
    pub(crate) step: Step,
    pub(crate) sum: Sum,
    /// Who has closed it just now, if it was.
    pub(crate) closed_by: Option<WorkerId>,
}

impl Sums {
    /// The sum that `worker` can receive now, if any. `passes_on`: whether a member still sends on what it has of a generation.
    pub(crate) fn next(
        &mut self,
        worker: WorkerId,
        ends: &BTreeMap<WorkerId, &RingEnd>,
        passes_on: impl Fn(WorkerId, Generation) -> bool,
    ) -> Option<Delivery> {
        let end = ends.get(&worker)?;
        let step = end.begun.filter(|&step| end.delivered != Some(step))?;
        let key = (end.form.generation, step);
        let before = end.part(step).sum_from.map(|from| from.peer);
        let mut closed_by = None;
        let (sum, reached) = match self.finished.entry(key) {
            Entry::Occupied(finished) => finished.into_mut(),
            Entry::Vacant(missing) => {
                let (closer, sum) = close(end, step, ends)?;
                closed_by = Some(closer);
                missing.insert((sum, BTreeSet::new()))
            }
        };
        let comes = before.is_none_or(|before| {
            let passes_on = |member: MemberAddress| passes_on(member.worker, key.0);
            reached.contains(&before) && end.form.peer(before).is_some_and(passes_on)
        });
        if comes {
            reached.insert(end.form.rank);
        }
        // Closing is told also if the sum does not reach this member yet.
        let sum = sum.clone();
        (comes || closed_by.is_some()).then_some(Delivery {
            generation: key.0,
            step,
            sum: Sum { comes, ..sum },
            closed_by,
        })
    }
}

/// All gradients in visiting order, if every member has offered its own, and who closes the sum.
fn close(end: &RingEnd, step: Step, ends: &BTreeMap<WorkerId, &RingEnd>) -> Option<(WorkerId, Sum)> {
    let of_it = |other: &RingEnd| other.form.generation == end.form.generation && other.begun == Some(step);
    let members: Vec<(WorkerId, &RingEnd)> = ends
        .iter()
        .filter(|(_, other)| of_it(other))
        .map(|(&worker, other)| (worker, *other))
        .collect();
    if members.len() < end.form.world_size as usize {
        return None;
    }
    let mut visits: Vec<(ShardRange, &RingEnd)> = members
        .iter()
        .flat_map(|(_, member)| member.part(step).visits.iter().map(|visit| (visit.shards, *member)))
        .collect();
    visits.sort_by_key(|(shards, _)| *shards);
    let mut gradients = Vec::new();
    for (shards, member) in visits {
        let mut next = shards.start();
        while next < shards.end() {
            let piece = member.offered.iter().find(|piece| piece.shards.start() == next)?;
            gradients.extend(piece.gradients.iter().copied());
            next = piece.shards.end();
        }
    }
    let (worker, closer) = members.iter().find(|(_, member)| member.part(step).sum_from.is_none())?;
    let sum = Sum {
        comes: false,
        gradients,
        trailer: closer.closing,
    };
    Some((*worker, sum))
}
