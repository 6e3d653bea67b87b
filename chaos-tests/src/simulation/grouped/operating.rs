//! Links of simulated groups, and the operations that pass them.

use std::collections::BTreeSet;
use std::time::Duration;

use sardana_protocol::member::GroupEvent;
use sardana_protocol::words::{Generation, WorkerId};

use super::process::{Group, Process};
use super::world::{Happening, World};

/// How long a link may take, before it counts as one that cannot be made.
const LINK: Duration = Duration::from_secs(5);

impl World {
    pub(super) fn link(&mut self, worker: WorkerId, generation: Generation, since: Duration) {
        let Some(seat) = self.processes.get(&worker).and_then(|process| process.seat_of(generation)) else {
            return;
        };
        if seat.group != Group::Linking {
            return;
        }
        let cannot = |&peer: &WorkerId| self.apart.contains(&(worker.min(peer), worker.max(peer)));
        let comes = |&peer: &WorkerId| self.processes.get(&peer).is_some_and(|one| one.seat_of(generation).is_some());
        let missing: Vec<WorkerId> = seat.peers().into_iter().filter(|peer| cannot(peer) || !comes(peer)).collect();
        if missing.is_empty() {
            if let Some(seat) = self.processes.get_mut(&worker).and_then(|one| one.in_generation(generation)) {
                seat.group = Group::Works;
            }
            self.handle(worker, GroupEvent::LinksReady { generation });
            return self.after(Duration::from_millis(1), Happening::Call { worker, generation });
        }
        if self.now().saturating_sub(since) < LINK {
            let again = Duration::from_millis(20);
            let link = Happening::Link {
                worker,
                generation,
                since,
            };
            return self.after(again, link);
        }
        for peer in missing {
            self.handle(worker, GroupEvent::LinkBroken { generation, peer });
        }
    }

    pub(super) fn call(&mut self, worker: WorkerId, generation: Generation) {
        let seat = self
            .processes
            .get_mut(&worker)
            .and_then(|process| process.in_generation(generation));
        let Some(seat) = seat.filter(|seat| seat.group == Group::Works) else {
            return;
        };
        seat.calls = true;
        let (number, world_size) = (seat.ended, seat.form.world_size as usize);
        let calls = |process: &&Process| {
            process
                .seat_of(generation)
                .is_some_and(|seat| seat.calls && seat.ended == number)
        };
        if self.processes.values().filter(calls).count() < world_size {
            return;
        }
        let called: BTreeSet<WorkerId> = self
            .processes
            .iter()
            .filter(|(_, one)| calls(one))
            .map(|(&id, _)| id)
            .collect();
        let held = self.oracle.operates(generation, &called);
        self.held(held);
        for worker in called {
            let wait = self.delay();
            let result = Happening::Result {
                worker,
                generation,
                number,
            };
            self.after(wait, result);
        }
    }

    pub(super) fn result(&mut self, worker: WorkerId, generation: Generation, number: u64) {
        let seat = self
            .processes
            .get_mut(&worker)
            .and_then(|process| process.in_generation(generation));
        let Some(seat) = seat.filter(|seat| seat.group == Group::Works && seat.ended == number) else {
            return;
        };
        (seat.ended, seat.calls) = (number + 1, false);
        self.counts.operations += 1;
        if self.closes(generation, number) {
            return self.closed(worker, generation);
        }
        let computes = self.between(200, 4_000);
        self.after(computes, Happening::Call { worker, generation });
    }

    /// A program whose operation fails gives the generation up, and so breaks the links with its neighbours.
    pub(super) fn breaks(&mut self, worker: WorkerId, generation: Generation) {
        let seat = self
            .processes
            .get_mut(&worker)
            .and_then(|process| process.in_generation(generation));
        let Some(seat) = seat.filter(|seat| seat.group == Group::Works) else {
            return;
        };
        seat.group = Group::Over;
        let peers = seat.peers();
        self.counts.failed += 1;
        self.handle(worker, GroupEvent::GivenUp { generation });
        for worker in peers {
            let noticed = self.delay();
            self.after(noticed, Happening::Breaks { worker, generation });
        }
    }
}
