//! How a step's gradients are summed: the running sum goes from visit to visit, the finished one back along the ranks; or as owners do it, or all ranks in a circle.

use std::rc::Rc;

use sardana_protocol::lineage::Lineage;
use sardana_protocol::member::Event;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{HopEnd, HopId, OrderedPart, Part};
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::World;
use super::direct::Finished;
use super::process::{Data, Links, RingEnd};
use crate::simulation::calendar::Happening;
use crate::simulation::model::{Gradients, Sum};
use crate::simulation::network::Node;

/// What a rank does with gradients and their sums.
pub(super) enum Pass {
    On {
        to: Option<WorkerId>,
        generation: Generation,
        step: Step,
        hop: HopId,
        gradients: Gradients,
    },
    Closed {
        generation: Generation,
        step: Step,
        trailer: Trailer,
        gradients: Gradients,
    },
    Finished {
        generation: Generation,
        sums_to: Vec<HopEnd>,
        finished: Finished,
    },
}

impl World {
    /// Lets what is here go on from here, if all gradients are here.
    pub(super) fn push_ring(&mut self, worker: WorkerId) {
        for pass in self.passes(worker) {
            self.pass(worker, pass);
        }
    }

    fn pass(&mut self, worker: WorkerId, pass: Pass) {
        match pass {
            Pass::On {
                to: Some(to),
                generation,
                step,
                hop,
                gradients,
            } => {
                let visit = Happening::Visit {
                    worker: to,
                    generation,
                    step,
                    hop,
                    gradients,
                };
                self.carry(worker, to, visit);
            }
            Pass::On { to: None, .. } => {}
            Pass::Closed {
                generation,
                step,
                trailer,
                gradients,
            } => {
                let sum = Sum {
                    step,
                    gradients: Rc::from(gradients),
                    trailer,
                    lineage: Lineage::default(),
                };
                self.summed(worker, generation, sum);
            }
            Pass::Finished {
                generation,
                sums_to,
                finished,
            } => self.owner_finished(worker, generation, &sums_to, finished),
        }
    }

    fn passes(&mut self, worker: WorkerId) -> Vec<Pass> {
        let ring = self.processes.get_mut(&worker).and_then(|process| process.ring.as_mut());
        let ready = |ring: &&mut RingEnd| {
            let begun = ring.begun.filter(|_| ring.links == Links::Made);
            begun.is_some_and(|step| ring.is_ready_for(step))
        };
        let Some((ring, step)) = ring.filter(ready).and_then(|ring| ring.begun.map(|step| (ring, step))) else {
            return Vec::new();
        };
        match ring.part(step).clone() {
            Part::Ordered(part) => ring.visit(&part, step).into_iter().collect(),
            Part::Direct(part) => ring.trade(&part, step),
            Part::Ring(part) => ring.go_round(&part, step).into_iter().collect(),
        }
    }

    /// A link carries something, after a cut that is short.
    pub(super) fn carry(&mut self, from: WorkerId, to: WorkerId, what: Happening) {
        let delay = self.network.stream_delay(&mut self.dice);
        let cut = self.cut_until(Node::Worker(from), Node::Worker(to));
        let at = cut.unwrap_or_else(|| self.now()) + delay;
        self.calendar.at(at, what);
    }

    /// The running sum comes to a rank.
    pub(super) fn visited(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        step: Step,
        hop: HopId,
        gradients: Gradients,
    ) {
        // A ring that is prepared takes in what comes before it begins.
        let ring = self.ring_of(worker, generation);
        let Some(ring) = ring.filter(|ring| ring.links != Links::Broken) else {
            return;
        };
        ring.arrived.insert((step, hop), gradients);
        self.push_ring(worker);
    }

    /// The finished sum comes to a rank on its way back.
    pub(super) fn summed(&mut self, worker: WorkerId, generation: Generation, sum: Sum) {
        let ring = self.processes.get(&worker).and_then(|process| process.ring.as_ref());
        let Some(ring) = ring.filter(|ring| ring.form.generation == generation && ring.links == Links::Made) else {
            return;
        };
        self.coverage.summed(ring.part(sum.step));
        let end = match ring.part(sum.step) {
            Part::Ordered(part) => part.sum_to,
            Part::Ring(part) => ring.passes_sum_to(part),
            // Each rank has its own from each owner.
            Part::Direct(_) => None,
        };
        let next = end.and_then(|end| ring.member(end));
        if let Some(next) = next
            && !self.is_lost_with(worker, sum.step)
        {
            let on = Happening::Summed {
                worker: next,
                generation,
                sum: sum.clone(),
            };
            self.carry(worker, next, on);
        }
        let event = Event::Summed {
            generation,
            step: sum.step,
            trailer: sum.trailer,
        };
        self.leave_for(worker, event, Data::Sum(sum));
    }
}

impl RingEnd {
    /// Lets the running sum go on, if it is here or begins here.
    fn visit(&mut self, part: &OrderedPart, step: Step) -> Option<Pass> {
        let waits = self.arrived.keys().find(|(arrived, _)| *arrived == step).copied();
        let (from, mut gradients) = match waits {
            Some(place) => (Some(place.1), self.arrived.remove(&place)?),
            None if part.visits.first()?.from.is_none() && self.started < Some(step) => {
                self.started = Some(step);
                (None, Gradients::new())
            }
            None => return None,
        };
        let mut visits = part.visits.iter();
        let visit = *visits.find(|visit| visit.from.map(|end| end.hop) == from)?;
        self.add(visit.shards, &mut gradients);
        match visit.to {
            Some(end) => Some(Pass::On {
                to: self.member(end),
                generation: self.form.generation,
                step,
                hop: end.hop,
                gradients,
            }),
            None => Some(Pass::Closed {
                generation: self.form.generation,
                step,
                trailer: self.close(),
                gradients,
            }),
        }
    }

    /// The trailer of a sum that this rank closes now.
    pub(super) fn close(&mut self) -> Trailer {
        let trailer = self.closing;
        self.closing = trailer.after_closing();
        trailer
    }
}
