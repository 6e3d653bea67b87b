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
    pub(crate) stop: bool,
    pub(crate) delivered: Option<Step>,
}

impl RingEnd {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            begun: None,
            offered: Vec::new(),
            stop: false,
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
    pub(crate) gradients: Vec<(u32, u64)>,
    pub(crate) trailer: Trailer,
}

/// The sums that rings have finished, and whom each has reached.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    finished: BTreeMap<(Generation, Step), (Sum, BTreeSet<Rank>)>,
}

impl Sums {
    /// The sum that `worker` can receive now, if any.
    pub(crate) fn next(&mut self, worker: WorkerId, ends: &BTreeMap<WorkerId, &RingEnd>) -> Option<(Generation, Step, Sum)> {
        let end = ends.get(&worker)?;
        let step = end.begun.filter(|&step| end.delivered != Some(step))?;
        let key = (end.form.generation, step);
        let (sum, reached) = match self.finished.entry(key) {
            Entry::Occupied(finished) => finished.into_mut(),
            Entry::Vacant(missing) => missing.insert((close(end, step, ends)?, BTreeSet::new())),
        };
        let path = path(end.visits(step));
        let place = path.iter().position(|&rank| rank == end.form.rank)?;
        if place > 0 && !reached.contains(&path[place - 1]) {
            return None;
        }
        reached.insert(end.form.rank);
        Some((key.0, step, sum.clone()))
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
    let trailer = if closer.stop { Trailer::Stop } else { Trailer::Continue };
    Some(Sum { gradients, trailer })
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
