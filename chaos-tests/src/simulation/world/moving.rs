//! What a worker moves of a state while it fetches, copies, reads or loads one: it tells of that with its heartbeats.

use std::time::Duration;

use sardana_protocol::member::{Event, Work};
use sardana_protocol::words::WorkerId;

use super::World;
use super::process::{Data, Process};
use crate::simulation::network::Node;

/// A training thread loads so many bytes a second, unless it is slow.
const LOADS: u64 = 512 << 20;

/// A process that stood still counts no more than this when it wakes.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Bytes that a process has moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    bytes: u64,
    counted: Duration,
    /// When it last moved some.
    pub(crate) at: Duration,
}

impl World {
    /// Counts what a worker has moved since this was last counted, and tells its machine.
    pub(super) fn count_moved(&mut self, worker: WorkerId) {
        let (now, rate) = (self.now(), self.flow(worker));
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let moved = &mut process.moved;
        let took = now.saturating_sub(moved.counted).min(AT_ONCE);
        moved.counted = now;
        if rate > 0 {
            moved.at = now;
            moved.bytes += rate * u64::try_from(took.as_millis()).unwrap_or(0) / 1_000;
        }
        let bytes = moved.bytes;
        self.member(worker, Event::Moved { bytes }, Data::None);
    }

    /// How many bytes of a state a worker moves in a second at the moment.
    fn flow(&self, worker: WorkerId) -> u64 {
        let Some(process) = self.processes.get(&worker) else {
            return 0;
        };
        if process.working.is_some_and(|work| matches!(work, Work::Load { .. })) && !process.hung {
            return LOADS / u64::from(process.slow);
        }
        let comes = self.fetches(worker, process) || self.reads(worker, process) || process.joining.copies();
        if comes { self.swarm.rate } else { 0 }
    }

    fn fetches(&self, worker: WorkerId, process: &Process) -> bool {
        process.fetching.is_some_and(|wanted| {
            let donor = self.answers(worker, wanted.donor.worker);
            donor.is_some_and(|donor| !donor.owes_forever(&wanted))
        })
    }

    fn reads(&self, worker: WorkerId, process: &Process) -> bool {
        let Some(restore) = process.restoring.as_ref().map(|restoring| &restoring.restore) else {
            return false;
        };
        let mut depots = restore.depots.iter();
        let mut members = restore.members.iter().filter(|peer| peer.member.worker != worker);
        depots.any(|one| self.open_depot(worker, one.depot).is_some())
            || members.any(|one| {
                let other = one.member.worker;
                self.processes.contains_key(&other) && self.reaches(Node::Worker(worker), Node::Worker(other))
            })
    }

    /// Since when a worker that comes to a state has moved nothing of it; none if it does not come to one.
    pub(super) fn loads_since(&self, process: &Process) -> Option<Duration> {
        let loads = process.working.is_some_and(|work| matches!(work, Work::Load { .. }));
        let fetches = process.fetching.is_some() || process.restoring.is_some();
        (loads || fetches).then_some(process.moved.at)
    }
}
