//! How a step's gradients are summed by owners: all ranks bring theirs to each of them, which sends all of them its chunks of the sum. Of what an owner has,
//! one chunk is played, so that ranks come to have the sum at different times.

use std::rc::Rc;

use sardana_protocol::lineage::Lineage;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Adding, DirectPart, HopEnd, Owner, Part};
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::World;
use super::process::{Links, RingEnd};
use super::ring::Pass;
use crate::simulation::calendar::Happening;
use crate::simulation::model::{Gradients, Sum};

/// What an owner has finished.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) step: Step,
    /// The owner's turn.
    pub(crate) turn: usize,
    pub(crate) gradients: Rc<[(u32, u64)]>,
    /// Of the first owner.
    pub(crate) trailer: Option<Trailer>,
}

impl World {
    /// An owner has finished its chunk, and sends it to all.
    pub(super) fn owner_finished(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        sums_to: &[HopEnd],
        finished: Finished,
    ) {
        let ring = self.processes.get(&worker).and_then(|process| process.ring.as_ref());
        let Some(ring) = ring else { return };
        let others: Vec<WorkerId> = sums_to.iter().filter_map(|&end| ring.member(end)).collect();
        for other in others {
            let told = Happening::ChunkCame {
                worker: other,
                generation,
                finished: finished.clone(),
            };
            self.carry(worker, other, told);
        }
        self.chunk_came(worker, generation, finished);
    }

    /// An owner's chunk of the sum comes to a rank.
    pub(super) fn chunk_came(&mut self, worker: WorkerId, generation: Generation, finished: Finished) {
        let ring = self.processes.get_mut(&worker).and_then(|process| process.ring.as_mut());
        let Some(ring) = ring.filter(|ring| ring.form.generation == generation && ring.links == Links::Made) else {
            return;
        };
        let step = finished.step;
        let Part::Direct(part) = ring.part(step) else {
            return self.senseless(worker, "owners are of a direct plan");
        };
        let owners = part.owners.len();
        ring.told.retain(|other| other.step == step);
        ring.told.push(finished);
        if ring.told.len() < owners {
            return;
        }
        let told = std::mem::take(&mut ring.told);
        let first = &told[0].gradients;
        if told.iter().any(|other| other.gradients != *first) {
            return self.senseless(worker, "all owners add the same gradients");
        }
        let Some(trailer) = told
            .iter()
            .find(|finished| finished.turn == 0)
            .and_then(|first| first.trailer)
        else {
            return self.senseless(worker, "the first owner closes");
        };
        let gradients = Rc::clone(first);
        self.summed(
            worker,
            generation,
            Sum {
                step,
                gradients,
                trailer,
                lineage: Lineage::default(),
            },
        );
    }
}

impl RingEnd {
    /// Brings other owners what this rank has, and adds up what all have brought to this one.
    pub(super) fn trade(&mut self, part: &DirectPart, step: Step) -> Vec<Pass> {
        let mut passes = self.bring(part, step);
        for (turn, owner) in part.owners.iter().enumerate() {
            match owner {
                Owner::Here(adding) => passes.extend(self.add_up(adding, turn, step)),
                Owner::There { .. } => {}
            }
        }
        passes
    }

    fn bring(&mut self, part: &DirectPart, step: Step) -> Vec<Pass> {
        if self.started >= Some(step) {
            return Vec::new();
        }
        self.started = Some(step);
        let mut gradients = Gradients::new();
        part.brings.iter().for_each(|&run| self.add(run, &mut gradients));
        let bring = |owner: &Owner| match owner {
            Owner::Here(_) => None,
            Owner::There { to, .. } => Some(Pass::On {
                to: self.member(*to),
                generation: self.form.generation,
                step,
                hop: to.hop,
                gradients: gradients.clone(),
            }),
        };
        part.owners.iter().filter_map(bring).collect()
    }

    /// Adds what all have brought, once all of it is here.
    fn add_up(&mut self, adding: &Adding, turn: usize, step: Step) -> Option<Pass> {
        let mut hops = adding.adds.iter().filter_map(|brought| brought.from).map(|end| end.hop);
        if self.added >= Some(step) || !hops.all(|hop| self.arrived.contains_key(&(step, hop))) {
            return None;
        }
        self.added = Some(step);
        let mut sum = Gradients::new();
        for brought in &adding.adds {
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
        Some(Pass::Finished {
            generation: self.form.generation,
            sums_to: adding.sums_to.clone(),
            finished: Finished {
                step,
                turn,
                gradients: Rc::from(sum),
                trailer: (turn == 0).then(|| self.close()),
            },
        })
    }
}
