//! What the coordinator knows of agents and their children.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::messages::AgentHello;
use sardana_protocol::status::AgentStatus;
use sardana_protocol::words::WorkerId;

use super::words::plain;
use crate::operator::limits::{COMING, HOST_BYTES, MAX_AGENTS, MAX_CHILDREN};

/// The agents that are connected, by the id in their certificate.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Agents(BTreeMap<u64, Known>);

#[derive(Debug)]
struct Known {
    host: String,
    address: SocketAddr,
    children: BTreeMap<WorkerId, Option<u32>>,
    /// When each child was ordered that has not been started yet.
    coming: VecDeque<Duration>,
    /// Why it leaves, if it does.
    leaving: Option<String>,
}

impl Known {
    fn forget_overdue(&mut self, now: Duration) {
        self.coming.retain(|ordered| now.saturating_sub(*ordered) < COMING);
    }
}

impl Agents {
    pub(in crate::coordinator) fn came(&mut self, agent: u64, hello: AgentHello, address: SocketAddr) {
        let known = Known {
            host: plain(&hello.host, HOST_BYTES),
            address,
            children: hello
                .children
                .into_iter()
                .take(MAX_CHILDREN)
                .map(|child| (child, None))
                .collect(),
            coming: VecDeque::new(),
            leaving: None,
        };
        self.0.insert(agent, known);
    }

    pub(in crate::coordinator) fn gone(&mut self, agent: u64) {
        self.0.remove(&agent);
    }

    pub(in crate::coordinator) fn started(&mut self, agent: u64, worker: WorkerId, pid: u32) {
        let Some(known) = self.0.get_mut(&agent) else { return };
        known.coming.pop_front();
        if known.children.len() < MAX_CHILDREN || known.children.contains_key(&worker) {
            known.children.insert(worker, Some(pid));
        }
    }

    /// A child has ended; `restarting` says whether another child comes.
    pub(in crate::coordinator) fn exited(&mut self, agent: u64, worker: WorkerId, restarting: bool, now: Duration) {
        let Some(known) = self.0.get_mut(&agent) else { return };
        known.children.remove(&worker);
        if restarting && known.coming.len() < MAX_CHILDREN {
            known.coming.push_back(now);
        }
    }

    /// A worker has left the job; its process is about to end, and none comes in its place.
    pub(super) fn left(&mut self, worker: WorkerId) {
        for known in self.0.values_mut() {
            known.children.remove(&worker);
        }
    }

    /// The agent was told to start so many more.
    pub(super) fn ordered(&mut self, agent: u64, workers: u32, now: Duration) {
        if let Some(known) = self.0.get_mut(&agent) {
            known.coming.extend((0..workers).map(|_| now));
        }
    }

    /// The agent leaves. Returns its children.
    pub(in crate::coordinator) fn leaves(&mut self, agent: u64, reason: &str) -> Vec<WorkerId> {
        let Some(known) = self.0.get_mut(&agent) else {
            return Vec::new();
        };
        known.leaving = Some(format!("its agent on {} leaves: {}", known.host, plain(reason, HOST_BYTES)));
        known.children.keys().copied().collect()
    }

    /// The agent stays after all. False if it had not said that it leaves.
    pub(super) fn stays(&mut self, agent: u64) -> bool {
        let known = self.0.get_mut(&agent);
        known.is_some_and(|known| known.leaving.take().is_some())
    }

    /// Why the agent of `worker` leaves, if it does.
    pub(in crate::coordinator) fn leaving(&self, worker: WorkerId) -> Option<String> {
        self.of(worker).and_then(|(_, known)| known.leaving.clone())
    }

    /// The agent whose child `worker` is.
    pub(super) fn parent(&self, worker: WorkerId) -> Option<u64> {
        self.of(worker).map(|(agent, _)| agent)
    }

    /// Where `worker` runs, as its agent calls it.
    pub(super) fn host(&self, worker: WorkerId) -> Option<&str> {
        self.of(worker).map(|(_, known)| known.host.as_str())
    }

    /// What people call the host of `agent`.
    pub(in crate::coordinator) fn host_of(&self, agent: u64) -> &str {
        self.0.get(&agent).map_or("an unknown host", |known| known.host.as_str())
    }

    /// The children of agents at `address`.
    pub(super) fn at(&self, address: SocketAddr) -> Vec<WorkerId> {
        let there = self.0.values().filter(|known| known.address == address);
        there.flat_map(|known| known.children.keys().copied()).collect()
    }

    fn of(&self, worker: WorkerId) -> Option<(u64, &Known)> {
        let mut known = self.0.iter();
        known.find_map(|(agent, known)| known.children.contains_key(&worker).then_some((*agent, known)))
    }

    /// How many children are to come: ordered or running, and not among the workers that `connected` knows.
    pub(super) fn coming(&mut self, connected: impl Fn(WorkerId) -> bool, now: Duration) -> u32 {
        let mut coming = 0;
        for known in self.0.values_mut() {
            known.forget_overdue(now);
            let starting = known.children.keys().filter(|worker| !connected(**worker)).count();
            coming += known.coming.len() + starting;
        }
        u32::try_from(coming).unwrap_or(u32::MAX)
    }

    /// Spreads `workers` new ones over the agents that stay, each to the one with the fewest children. Empty if there is none.
    pub(super) fn spread(&self, workers: u32) -> BTreeMap<u64, u32> {
        let mut load: BTreeMap<u64, usize> = self
            .0
            .iter()
            .filter(|(_, known)| known.leaving.is_none())
            .map(|(agent, known)| (*agent, known.children.len() + known.coming.len()))
            .collect();
        let mut orders = BTreeMap::new();
        for _ in 0..workers {
            let Some((&agent, load)) = load.iter_mut().min_by_key(|(_, load)| **load) else {
                break;
            };
            *load += 1;
            *orders.entry(agent).or_insert(0) += 1;
        }
        orders
    }

    /// As an operator sees them: no more children in all than there may be workers.
    pub(super) fn status(&self) -> Vec<AgentStatus> {
        let mut room = MAX_WORKERS as usize;
        let agents = self.0.values().take(MAX_AGENTS).map(|known| {
            let shown: Vec<_> = known
                .children
                .iter()
                .take(room)
                .map(|(worker, pid)| (*worker, *pid))
                .collect();
            room -= shown.len();
            AgentStatus {
                host: known.host.clone(),
                address: known.address,
                children: shown,
            }
        });
        agents.collect()
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::JobId;

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn agents(children: &[&[u64]]) -> Agents {
        let mut agents = Agents::default();
        for (agent, children) in (1..).zip(children) {
            let hello = AgentHello {
                job: JobId::new([1; 16]),
                host: format!("host{agent}"),
                children: children.iter().copied().map(WorkerId::new).collect(),
            };
            agents.came(agent, hello, SocketAddr::from(([127, 0, 0, 1], 4_000)));
        }
        agents
    }

    #[test]
    fn new_workers_go_where_the_fewest_are() {
        let mut agents = agents(&[&[1, 2, 3], &[4]]);
        assert_eq!(agents.spread(1), [(2, 1)].into());
        assert_eq!(agents.spread(4), [(1, 1), (2, 3)].into());
        agents.ordered(2, 2, NOW);
        assert_eq!(agents.spread(2), [(1, 1), (2, 1)].into());
        agents.leaves(2, "SIGTERM");
        assert_eq!(agents.spread(2), [(1, 2)].into(), "one that leaves gets none");
        assert!(agents.stays(2) && !agents.stays(2) && !agents.stays(9));
        assert_eq!(agents.spread(2), [(1, 1), (2, 1)].into(), "it stays after all");
        assert!(Agents::default().spread(3).is_empty());
    }

    #[test]
    fn what_was_ordered_counts_until_it_starts_or_never_comes() {
        let mut agents = agents(&[&[1]]);
        let connected = |worker: WorkerId| worker == WorkerId::new(1);
        agents.ordered(1, 2, NOW);
        assert_eq!(agents.coming(connected, NOW), 2);
        agents.started(1, WorkerId::new(2), 77);
        assert_eq!(agents.coming(connected, NOW), 2, "started, and not connected yet");
        assert_eq!(agents.coming(|_| true, NOW), 1);
        assert_eq!(agents.coming(|_| true, NOW + COMING), 0);
        agents.exited(1, WorkerId::new(2), true, NOW);
        assert_eq!(agents.coming(connected, NOW), 1, "a successor");
        assert_eq!(agents.status()[0].children, [(WorkerId::new(1), None)]);
    }
}
