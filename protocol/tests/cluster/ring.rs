//! What the ring does, seen from outside: it gives a member the sum once all members have offered their pieces, and passes it
//! from the closer to the others one by one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::messages::{Form, Trailer, Visit};
use sardana_protocol::words::{Generation, Rank, Step, WorkerId};

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

    fn visits(&self, step: Step) -> &[Visit] {
        if step == self.form.step {
            &self.form.first
        } else {
            &self.form.steady
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
        let path = path(end.visits(step));
        let member = |rank: Rank| end.form.members[rank.index()].worker;
        let mut closed_by = None;
        let (sum, reached) = match self.finished.entry(key) {
            Entry::Occupied(finished) => finished.into_mut(),
            Entry::Vacant(missing) => {
                let sum = close(end, step, ends)?;
                closed_by = Some(member(path[0]));
                missing.insert((sum, BTreeSet::new()))
            }
        };
        let place = path.iter().position(|&rank| rank == end.form.rank)?;
        let comes = place == 0 || (reached.contains(&path[place - 1]) && passes_on(member(path[place - 1]), key.0));
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

/// All gradients in visiting order, if every member has offered its own.
fn close(end: &RingEnd, step: Step, ends: &BTreeMap<WorkerId, &RingEnd>) -> Option<Sum> {
    let members: Vec<&RingEnd> = end
        .form
        .members
        .iter()
        .map(|member| {
            let other = ends.get(&member.worker)?;
            (other.form.generation == end.form.generation && other.begun == Some(step)).then_some(*other)
        })
        .collect::<Option<_>>()?;
    let mut gradients = Vec::new();
    for visit in end.visits(step) {
        let member = members[visit.rank.index()];
        let mut next = visit.shards.start();
        while next < visit.shards.end() {
            let piece = member.offered.iter().find(|piece| piece.shards.start() == next)?;
            gradients.extend(piece.gradients.iter().copied());
            next = piece.shards.end();
        }
    }
    let closer = members[path(end.visits(step))[0].index()];
    Some(Sum {
        comes: false,
        gradients,
        trailer: closer.closing,
    })
}

/// The order in which ranks receive the sum: the last visited first.
fn path(visits: &[Visit]) -> Vec<Rank> {
    let mut path = Vec::new();
    for visit in visits.iter().rev() {
        if !path.contains(&visit.rank) {
            path.push(visit.rank);
        }
    }
    path
}
