//! Workers and hosts that fail again and again stop the others less and less often.
//!
//! ```text
//!  a member's connection breaks, and it comes back       a member is left out as silent, hanging or out of reach
//!    3 times: as ever                                      twice: newcomers from its address are taken in as ever
//!    then: dismissed, if the others train without it       then: after 1 s, 2 s, 4 s, … 5 min
//! ```
//! Ten minutes without trouble are forgiven. A worker without which the others cannot train is not kept waiting. What an agent sees end
//! or stand still is not counted here: people and supervisors do that to one process, and say nothing of its host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{Arrival, Loss, Membership, Record, WorkerEvent};
use crate::limits::{COOL, COOL_MOST, FLAPS, FORGIVEN, HOST_FAILURES};
use crate::messages::CoordinatorMessage;
use crate::words::WorkerId;

/// Workers and hosts that have failed lately.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Members whose control connections broke.
    workers: BTreeMap<WorkerId, Trouble>,
    /// Where members ran that were left out.
    hosts: BTreeMap<IpAddr, Trouble>,
}

/// How often, and when last.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    times: u32,
    last: Duration,
}

impl Trouble {
    fn is_forgiven(self, now: Duration) -> bool {
        now.saturating_sub(self.last) >= FORGIVEN
    }

    /// How long newcomers wait from the last time on.
    fn cool(self) -> Duration {
        match self.times.saturating_sub(HOST_FAILURES).checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => (COOL * 2_u32.pow(doublings.min(16))).min(COOL_MOST),
        }
    }
}

fn again<K: Ord>(troubles: &mut BTreeMap<K, Trouble>, who: K, now: Duration) {
    troubles.retain(|_, trouble| !trouble.is_forgiven(now));
    let trouble = troubles.entry(who).or_insert(Trouble { times: 0, last: now });
    *trouble = Trouble {
        times: trouble.times.saturating_add(1),
        last: now,
    };
}

impl Failures {
    /// Whether newcomers of any host may have to wait.
    pub(super) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }
}

impl Membership {
    /// A member is lost: the others halt for that, or have halted already.
    pub(super) fn remember_failure(&mut self, worker: WorkerId, record: &Record, cause: &Loss) {
        let now = self.now;
        match cause {
            Loss::ConnectionLost { .. } => again(&mut self.faults.failures.workers, worker, now),
            Loss::Silent { .. } | Loss::Stalled { .. } | Loss::Unreachable => {
                again(&mut self.faults.failures.hosts, record.address.ip(), now);
            }
            Loss::Exited { .. } | Loss::Stopped { .. } | Loss::Failed { .. } | Loss::Senseless(_) => {}
        }
    }

    /// Sends away a worker that comes back once too often. Not if it may have what the others lack.
    pub(super) fn is_dismissed_for_flapping(&mut self, arrival: &Arrival) -> bool {
        let worker = arrival.worker;
        let trouble = self.faults.failures.workers.get(&worker);
        let times = trouble
            .filter(|trouble| !trouble.is_forgiven(self.now))
            .map_or(0, |trouble| trouble.times);
        let needed =
            !self.is_formed() || self.is_member(worker) || arrival.introduction.standing.step > self.training.reached;
        if times <= FLAPS || needed {
            return false;
        }
        let reason = format!(
            "the connection of worker {worker} broke {times} times within {} minutes of each other, and each time all others halted; \
             look for the cause, then let it join anew with a new id",
            FORGIVEN.as_secs() / 60
        );
        self.send(worker, CoordinatorMessage::Dismiss { reason });
        true
    }

    /// How long a newcomer with this record waits still.
    pub(super) fn cools_for(&self, record: &Record) -> Duration {
        let trouble = self.faults.failures.hosts.get(&record.address.ip());
        let over = trouble.map_or(Duration::ZERO, |trouble| trouble.last + trouble.cool());
        over.saturating_sub(self.now)
    }

    /// Tells people why a newcomer is not taken in yet.
    pub(super) fn tell_if_cooling(&mut self, worker: WorkerId) {
        let record = self.members.get(&worker).filter(|record| record.joins());
        let wait = record.map_or(Duration::ZERO, |record| self.cools_for(record));
        if wait > Duration::ZERO {
            self.tell(WorkerEvent::CoolsDown { worker, wait });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let cool = |times| {
            Trouble {
                times,
                last: Duration::ZERO,
            }
            .cool()
            .as_secs()
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 9].map(cool), [0, 0, 0, 1, 2, 4, 64]);
        assert_eq!(cool(u32::MAX), COOL_MOST.as_secs());
    }

    #[test]
    fn what_was_long_ago_is_forgiven_and_takes_no_memory() {
        let mut troubles = BTreeMap::new();
        for round in 0..4 {
            again(&mut troubles, 1, FORGIVEN / 2 * round);
        }
        assert_eq!(troubles[&1].times, 4);
        again(&mut troubles, 2, FORGIVEN * 3);
        assert_eq!(troubles.keys().collect::<Vec<_>>(), [&2]);
    }
}
