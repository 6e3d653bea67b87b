//! Time goes on: the next thing happens, to a party whose process runs, or waits until it does.

use std::time::Duration;

use super::World;
use crate::simulation::calendar::{Happening, Party};

/// The time of a cluster counts while it has so many workers.
const ENOUGH: usize = 3;

impl World {
    /// One thing happens. False if nothing is left to happen.
    pub(crate) fn happen(&mut self) -> bool {
        let Some((serial, what)) = self.calendar.next() else {
            return false;
        };
        let now = self.now();
        let frozen = match what.party() {
            Party::World => None,
            Party::Coordinator => self.coordinator.frozen_until,
            Party::Worker(worker) => match self.processes.get(&worker) {
                Some(process) => process.frozen_until,
                None => return true,
            },
        };
        if let Some(thaw) = frozen.filter(|thaw| *thaw > now) {
            self.calendar.enter(thaw, serial, what);
            return true;
        }
        self.count_time(now);
        self.story.hear(now, &what);
        self.act(what);
        if let Some(events) = self.second.counts(now) {
            let held = self.law.comes_to_rest(events, self.processes.len());
            self.require(held);
        }
        true
    }

    fn act(&mut self, what: Happening) {
        match what {
            Happening::Tick { life } => self.tick(life),
            Happening::ToCoordinator {
                worker,
                session,
                message,
            } => self.hear(worker, session, *message),
            Happening::ToWorker {
                worker,
                session,
                message,
            } => self.tell(worker, session, *message),
            Happening::Dial { worker } => self.dial(worker),
            Happening::Hello {
                worker,
                session,
                introduction,
            } => self.hello(worker, session, *introduction),
            Happening::Greeting {
                worker,
                session,
                incarnation,
                report_from,
            } => self.greeted(worker, session, incarnation, report_from),
            Happening::Unanswered { worker, session } => self.unanswered(worker, session),
            Happening::Kill { worker } => self.killed(worker),
            Happening::Exited { worker, how, tally } => self.exited(worker, how, tally),
            Happening::SessionLost { worker, session } => self.session_lost(worker, session),
            Happening::ControlLost { worker, session } => self.control_lost(worker, session),
            Happening::Beat { worker, heartbeat } => self.beat(worker, heartbeat),
            Happening::Worked { worker } => self.worked(worker),
            Happening::Link { worker, generation } => self.link(worker, generation),
            Happening::LinkBroken {
                worker,
                generation,
                peer,
            } => self.link_broken(worker, generation, peer),
            Happening::Visit {
                worker,
                generation,
                step,
                hop,
                gradients,
            } => self.visited(worker, generation, step, hop, gradients),
            Happening::Summed { worker, generation, sum } => self.summed(worker, generation, sum),
            Happening::ChunkCame {
                worker,
                generation,
                finished,
            } => self.chunk_came(worker, generation, finished),
            Happening::Mail { worker, mail } => self.member(worker, mail.event, mail.data),
            Happening::Fetched { worker, serial } => self.fetched(worker, serial),
            Happening::Transferred { worker, serial } => self.transferred(worker, serial),
            Happening::RoomMade { worker } => self.room_made(worker),
            Happening::Hashed { worker, snapshot } => self.hashed(worker, snapshot),
            Happening::Depot { place, what } => self.at_depot(place, what),
            Happening::Checkpoint { worker, serial, what } => self.of_checkpoint(worker, serial, what),
            Happening::Revive => self.begin_life(),
            Happening::Start => self.start(),
            Happening::Strike(fault) => self.strike(fault),
            Happening::Later(later) => self.later(later),
        }
    }

    /// Time counts while enough workers run.
    fn count_time(&mut self, now: Duration) {
        if self.processes.len() >= ENOUGH && self.done.is_none() {
            self.counts.cluster_time += now.saturating_sub(self.counted_to);
        }
        self.counted_to = now;
    }
}
