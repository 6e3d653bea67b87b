//! How a step's gradients are summed: the running sum goes from visit to visit, the finished one back along the ranks; or all leaves of a star
//! bring theirs to its hub, which sends all of them the sum.

use std::rc::Rc;

use sardana_protocol::member::Event;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{HopId, HubPart, LeafPart, OrderedPart, Part, StarPart};
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::World;
use super::process::{Data, Links, RingEnd};
use crate::simulation::calendar::Happening;
use crate::simulation::model::{Gradients, Sum};
use crate::simulation::network::Node;

/// What a rank does with the running sum.
enum Pass {
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
}

impl World {
    /// Lets the running sum go on from here, if it is here and all gradients are.
    pub(super) fn push_ring(&mut self, worker: WorkerId) {
        let Some(pass) = self.pass(worker) else { return };
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
                };
                self.summed(worker, generation, sum);
            }
        }
    }

    fn pass(&mut self, worker: WorkerId) -> Option<Pass> {
        let ring = self.processes.get_mut(&worker)?.ring.as_mut()?;
        let step = ring.begun.filter(|_| ring.links == Links::Made)?;
        if !ring.is_ready_for(step) {
            return None;
        }
        match ring.part(step).clone() {
            Part::Ordered(part) => ring.visit(&part, step),
            Part::Star(StarPart::Leaf(part)) => ring.bring(&part, step),
            Part::Star(StarPart::Hub(part)) => ring.add_up(&part, step),
            Part::Ring(_) => unreachable!("the job's order is exact, and members check their parts"),
        }
    }

    /// A link carries something, after a cut that is short.
    fn carry(&mut self, from: WorkerId, to: WorkerId, what: Happening) {
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
        let ends = match ring.part(sum.step) {
            Part::Ordered(part) => part.sum_to.as_slice(),
            Part::Star(StarPart::Hub(part)) => part.sums_to.as_slice(),
            Part::Star(StarPart::Leaf(_)) | Part::Ring(_) => &[],
        };
        let next: Vec<WorkerId> = ends.iter().filter_map(|&end| ring.member(end)).collect();
        let Sum {
            step,
            ref gradients,
            trailer,
        } = sum;
        for next in next {
            let on = Happening::Summed {
                worker: next,
                generation,
                step,
                trailer,
                gradients: Rc::clone(gradients),
            };
            self.carry(worker, next, on);
        }
        let event = Event::Summed {
            generation,
            step,
            trailer,
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
            None => Some(self.close(step, gradients)),
        }
    }

    /// Brings the hub what this rank has.
    fn bring(&mut self, part: &LeafPart, step: Step) -> Option<Pass> {
        if self.started >= Some(step) {
            return None;
        }
        self.started = Some(step);
        let mut gradients = Gradients::new();
        part.brings.iter().for_each(|&run| self.add(run, &mut gradients));
        Some(Pass::On {
            to: self.member(part.to),
            generation: self.form.generation,
            step,
            hop: part.to.hop,
            gradients,
        })
    }

    /// Adds what all have brought, once all of it is here.
    fn add_up(&mut self, part: &HubPart, step: Step) -> Option<Pass> {
        let mut hops = part.adds.iter().filter_map(|brought| brought.from).map(|end| end.hop);
        if self.started >= Some(step) || !hops.all(|hop| self.arrived.contains_key(&(step, hop))) {
            return None;
        }
        self.started = Some(step);
        let mut sum = Gradients::new();
        for brought in &part.adds {
            match brought.from {
                Some(end) => {
                    let waits = self.arrived.get_mut(&(step, end.hop))?;
                    let count = waits.len().min(brought.shards.len() as usize);
                    sum.extend(waits.drain(..count));
                }
                None => self.add(brought.shards, &mut sum),
            }
        }
        self.arrived.retain(|(arrived, _), _| *arrived > step);
        Some(self.close(step, sum))
    }

    fn close(&mut self, step: Step, gradients: Gradients) -> Pass {
        let trailer = self.closing;
        self.closing = trailer.after_closing();
        Pass::Closed {
            generation: self.form.generation,
            step,
            trailer,
            gradients,
        }
    }
}
