//! Where members are, and whether those of one host share its memory: they say so, and are believed until their links show that they cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::formation::Formation;
use super::roster::Record;
use super::{Membership, Phase, WorkerEvent};
use crate::limits::FORGIVEN;
use crate::messages::{HostHash, LinkKind, LinkLine, LinkReport};
use crate::plan::Hosts;
use crate::words::{Generation, WorkerId};

impl Record {
    /// Which workers it can share memory with, as far as is known at this moment.
    fn shares_with(&self, now: Duration) -> Option<HostHash> {
        let shown = |since| now.saturating_sub(since) < FORGIVEN;
        self.host_hash.filter(|_| !self.cannot_share.is_some_and(shown))
    }
}

impl Membership {
    /// Where these workers are, as far as their addresses and hellos tell. None if links between workers that are here are doubted: where one
    /// rank adds for all, a worker that cannot be reached has one witness alone, where the sum runs from rank to rank it has two.
    pub(super) fn hosts_of(&self, workers: impl IntoIterator<Item = WorkerId>) -> Option<Hosts> {
        if self.doubts_links() {
            return None;
        }
        let workers = workers.into_iter();
        let records: Vec<&Record> = workers.filter_map(|worker| self.members.get(&worker)).collect();
        let addresses: BTreeSet<IpAddr> = records.iter().map(|record| record.address.ip()).collect();
        let hashes: BTreeSet<Option<HostHash>> = records.iter().map(|record| record.shares_with(self.now)).collect();
        Some(match addresses.len() {
            // Copies of one virtual machine say the same, but not at the same address.
            1 if hashes.len() == 1 && hashes.iter().all(Option::is_some) => Hosts::SharingMemory,
            1 => Hosts::Same,
            several if several == records.len() => Hosts::Apart,
            _ => Hosts::Mixed,
        })
    }

    /// Puts those of one host beside each other, so that the sum passes from host to host as seldom as it can. Hosts come in the order of their first
    /// workers, and the workers of each in the order that they have. Spares stay behind all others. Where links between workers that are here are doubted
    /// nothing changes: who is beside whom is chosen otherwise then. Nor does it in a group, whose program is promised that the ranks keep their order.
    pub(super) fn order_by_host<T>(&self, workers: &mut [T], address: impl Fn(&T) -> IpAddr) {
        let computing = workers.len().min(self.config.max as usize);
        let mut hosts = BTreeMap::new();
        for worker in &workers[..computing] {
            let next = hosts.len();
            hosts.entry(address(worker)).or_insert(next);
        }
        if hosts.len() > 1 && !self.is_group() && !self.doubts_links() {
            workers[..computing].sort_by_cached_key(|worker| hosts[&address(worker)]);
        }
    }

    /// A worker tells what its links are made of. If that shows that it cannot share memory, though it has said so, no generation begins
    /// whose plan counts on it.
    pub(super) fn links_told(&mut self, worker: WorkerId, report: LinkReport) {
        let cannot = self.cannot_share(worker, &report);
        let generation = report.generation;
        let Some(record) = self.members.get_mut(&worker) else {
            return;
        };
        record.links.told(report, self.now);
        if cannot {
            let is_news = record.shares_with(self.now).is_some();
            record.cannot_share = Some(self.now);
            if is_news {
                self.tell(WorkerEvent::SharesNoMemory { worker });
            }
            self.begin_no_more(generation);
        }
    }

    /// Whether links between this worker and those that say they share memory with it are made of QUIC: all on which it sends, or those
    /// with two others. One alone may have taken too long.
    fn cannot_share(&self, worker: WorkerId, report: &LinkReport) -> bool {
        let place = |worker| {
            let record = self.members.get(&worker)?;
            Some((record.address.ip(), record.host_hash?))
        };
        let Some(own) = place(worker) else { return false };
        let near = || report.lines.iter().filter(|line| place(line.peer) == Some(own));
        let sends_through_memory = |line: &LinkLine| line.kind == LinkKind::SharedMemory && line.outgoing.links > 0;
        match near().filter(|line| line.kind == LinkKind::Quic).count() {
            0 => false,
            1 => !near().any(sends_through_memory),
            _ => true,
        }
    }

    /// Over QUIC the links of such a generation may hold more than its workers have.
    fn begin_no_more(&mut self, generation: Generation) {
        if self.is_planned_with(generation, Formation::counts_on_memory) {
            self.unplan(generation);
        } else if generation == self.formed
            && matches!(self.phase, Phase::Forming { .. })
            && self.formation.as_ref().is_some_and(Formation::counts_on_memory)
        {
            self.disturb();
        }
    }
}
