//! How a step's gradients are summed: the running sum goes from visit to visit, the finished one back along the ranks.

use std::rc::Rc;

use sardana_protocol::member::Event;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::HopId;
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::World;
use super::process::{Data, Links};
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
        let first = ring.part(step).visits.first()?.from.is_none();
        let waits = ring.arrived.as_ref().is_some_and(|(arrived, ..)| *arrived == step);
        let begins = first && ring.started < Some(step);
        if !(waits || begins) || !ring.is_ready_for(step) {
            return None;
        }
        let (from, mut gradients) = if waits {
            let (_, hop, gradients) = ring.arrived.take()?;
            (Some(hop), gradients)
        } else {
            ring.started = Some(step);
            (None, Gradients::new())
        };
        let mut visits = ring.part(step).visits.iter();
        let visit = *visits.find(|visit| visit.from.map(|end| end.hop) == from)?;
        ring.add(visit.shards, &mut gradients);
        let generation = ring.form.generation;
        if let Some(next) = visit.to {
            return Some(Pass::On {
                to: ring.member(next),
                generation,
                step,
                hop: next.hop,
                gradients,
            });
        }
        let trailer = ring.closing;
        ring.closing = trailer.after_closing();
        Some(Pass::Closed {
            generation,
            step,
            trailer,
            gradients,
        })
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
        ring.arrived = Some((step, hop, gradients));
        self.push_ring(worker);
    }

    /// The finished sum comes to a rank on its way back.
    pub(super) fn summed(&mut self, worker: WorkerId, generation: Generation, sum: Sum) {
        let ring = self.processes.get(&worker).and_then(|process| process.ring.as_ref());
        let Some(ring) = ring.filter(|ring| ring.form.generation == generation && ring.links == Links::Made) else {
            return;
        };
        let next = ring.part(sum.step).sum_to.and_then(|end| ring.member(end));
        let Sum {
            step,
            ref gradients,
            trailer,
        } = sum;
        if let Some(next) = next {
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
