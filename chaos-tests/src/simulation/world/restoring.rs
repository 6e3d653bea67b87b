//! Workers read a checkpoint that a generation starts from.

use std::time::Duration;

use sardana_protocol::member::Event;
use sardana_protocol::messages::Restore;
use sardana_protocol::words::{Generation, Rank, WorkerId};

use super::World;
use super::process::Data;
use super::saving::{AGAIN, OfCheckpoint, PATIENCE, of};
use crate::simulation::model::{PIECES, mix};
use crate::simulation::network::Node;

/// What a worker reads.
pub(crate) struct Restoring {
    serial: u64,
    since: Duration,
    generation: Generation,
    pub(super) restore: Restore,
}

impl World {
    pub(super) fn restore(&mut self, worker: WorkerId, generation: Generation, restore: Restore) {
        self.serial += 1;
        let (serial, since) = (self.serial, self.now());
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        process.restoring = Some(Restoring {
            serial,
            since,
            generation,
            restore,
        });
        let delay = self.swarm.transfer + self.network.stream_delay(&mut self.dice) * 2;
        self.calendar.after(delay, of(worker, serial, OfCheckpoint::Restored));
    }

    pub(super) fn restored(&mut self, worker: WorkerId, serial: u64) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let Some(restoring) = process.restoring.take_if(|one| one.serial == serial) else {
            return;
        };
        let Restoring { generation, restore, .. } = &restoring;
        let (generation, step) = (*generation, restore.key.step);
        let loaded = self
            .read(worker, restore)
            .or_else(|reason| self.borrow(worker, restore).ok_or(reason));
        let waits = now.saturating_sub(restoring.since) < PATIENCE + self.swarm.transfer;
        match loaded {
            Ok(state) => self.leave_for(worker, Event::Fetched { generation, step }, Data::State(state)),
            Err(_) if waits => {
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.restoring = Some(restoring);
                }
                self.calendar.after(AGAIN, of(worker, serial, OfCheckpoint::Restored));
            }
            Err(reason) => {
                let reason = reason.to_owned();
                self.leave_for(worker, Event::NotRestored { generation, reason }, Data::None);
            }
        }
    }

    /// The same for a worker that does not read itself: from all workers that do, each of which gives it a share.
    fn borrow(&mut self, worker: WorkerId, restore: &Restore) -> Option<u64> {
        let member = |rank: &Rank| restore.member(*rank).map(|member| member.worker);
        let readers: Vec<WorkerId> = restore.readers.iter().filter_map(member).collect();
        let gives = |&reader: &WorkerId| {
            self.processes.contains_key(&reader) && self.reaches(Node::Worker(reader), Node::Worker(worker))
        };
        if readers.contains(&worker) || !readers.iter().all(gives) {
            return None;
        }
        let read: Option<Vec<u64>> = readers.into_iter().map(|reader| self.read(reader, restore).ok()).collect();
        read?.first().copied()
    }

    /// The state that a checkpoint has in it.
    fn read(&mut self, worker: WorkerId, restore: &Restore) -> Result<u64, &'static str> {
        let asked = restore.depots.iter().filter_map(|one| self.open_depot(worker, one.depot));
        let places: Vec<usize> = asked.collect();
        let mut kept = places
            .iter()
            .filter_map(|&place| self.depots[place].manifests.get(&restore.key));
        let contents = kept.next().map(|kept| std::rc::Rc::clone(&kept.contents));
        let contents = contents.ok_or("no depot that answers has its manifest")?;
        let mut states = Vec::new();
        for piece in contents.description.iter().chain(&contents.pieces) {
            let mut found = false;
            for &place in &places {
                let depot = &mut self.depots[place];
                // A worker that reads a rotten piece notices.
                if depot.rotten.remove(piece) {
                    depot.durable.remove(piece);
                    self.tell_conditions(place);
                }
                found |= self.depots[place].durable.contains(piece);
            }
            if !found {
                return Err("a piece is missing");
            }
            states.extend(self.vault.get(piece).copied());
        }
        let state = put_together(&states);
        // A manifest that names what lying workers have said they wrote.
        if self.liars.is_some() && self.law.computes_with(restore.key.step, state).is_err() {
            return Err("its pieces make no state of the job");
        }
        Ok(state)
    }
}

/// The state that these pieces make; some other, if they do not belong together.
fn put_together(pieces: &[(u64, u64)]) -> u64 {
    let told = |number: &u64| !number.is_multiple_of(3) && *number < PIECES;
    let states: Vec<u64> = pieces
        .iter()
        .filter(|(_, number)| told(number))
        .map(|(state, _)| *state)
        .collect();
    let numbers = pieces.iter().map(|(_, number)| *number).filter(|number| *number < PIECES);
    let first = states.first().copied().unwrap_or(0);
    let same = numbers.eq(0..PIECES) && states.iter().all(|state| *state == first);
    if same { first } else { mix(first, 1) }
}
