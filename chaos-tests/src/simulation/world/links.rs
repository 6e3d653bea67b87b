//! Links between workers: how they are made for a generation, and how they break.

use std::time::Duration;

use sardana_protocol::limits::LINK_DEADLINE;
use sardana_protocol::member::Event;
use sardana_protocol::messages::{Form, LinkKind, LinkLine, LinkReport, Passed, WorkerMessage};
use sardana_protocol::plan::Hosts;
use sardana_protocol::words::{Generation, WorkerId};

use super::World;
use super::process::{Data, Links, RingEnd};
use crate::simulation::calendar::Happening;
use crate::simulation::network::{IDLE, Node};

/// Between two looks at whether the others have made theirs.
const LOOK: Duration = Duration::from_millis(20);

/// Of so many workers that say they share memory one cannot.
const CANNOT_SHARE: u64 = 16;

impl World {
    pub(super) fn connect(&mut self, worker: WorkerId, form: Form) {
        let (now, generation) = (self.now(), form.generation);
        if let Some(process) = self.processes.get_mut(&worker) {
            process.ring = Some(RingEnd::new(form, now));
        }
        self.look_at_links(worker, generation);
    }

    pub(super) fn prepare(&mut self, worker: WorkerId, form: Form) {
        let (now, generation) = (self.now(), form.generation);
        if let Some(process) = self.processes.get_mut(&worker) {
            process.next = Some(RingEnd::new(form, now));
        }
        self.look_at_links(worker, generation);
    }

    fn look_at_links(&mut self, worker: WorkerId, generation: Generation) {
        // There and back, and a stream's first message.
        let delay = self.network.delay(&mut self.dice) * 2;
        self.calendar.after(delay, Happening::Link { worker, generation });
    }

    /// Looks whether all links of a generation are made.
    pub(super) fn link(&mut self, worker: WorkerId, generation: Generation) {
        let now = self.now();
        let ring = self.ring_of(worker, generation);
        let Some(ring) = ring.filter(|ring| ring.links == Links::Making) else {
            return;
        };
        let (since, peers) = (ring.since, ring.neighbours());
        let made = |peer: &WorkerId| {
            let there = self.processes.get(peer).is_some_and(|process| {
                process.is_linking(generation) && process.frozen_until.is_none_or(|thaw| thaw <= now)
            });
            there && self.network.links(now, Node::Worker(*peer), Node::Worker(worker))
        };
        let missing: Vec<WorkerId> = peers.iter().copied().filter(|peer| !made(peer)).collect();
        let links = match missing.first() {
            None => Links::Made,
            Some(_) if now.saturating_sub(since) >= LINK_DEADLINE => Links::Broken,
            Some(_) => {
                let again = LOOK + self.within(4 * LOOK);
                return self.calendar.after(again, Happening::Link { worker, generation });
            }
        };
        if let Some(ring) = self.ring_of(worker, generation) {
            ring.links = links;
        }
        if missing.is_empty() {
            self.tell_of_links(worker, generation, peers);
            self.leave_for(worker, Event::LinksReady { generation }, Data::None);
        }
        if links == Links::Broken {
            self.let_go_of_links(worker, generation);
        }
        for peer in missing {
            self.leave_for(worker, Event::LinkBroken { generation, peer }, Data::None);
        }
    }

    /// Where workers say that they share memory some find that they cannot.
    fn tell_of_links(&mut self, worker: WorkerId, generation: Generation, mut peers: Vec<WorkerId>) {
        if self.swarm.hosts != Hosts::SharingMemory {
            return;
        }
        let cannot = |worker: WorkerId| worker.get().is_multiple_of(CANNOT_SHARE);
        peers.sort_unstable();
        peers.dedup();
        let line = |peer| LinkLine {
            peer,
            kind: if cannot(worker) || cannot(peer) {
                LinkKind::Quic
            } else {
                LinkKind::SharedMemory
            },
            outgoing: Passed { links: 1, bytes: 0 },
            incoming: Passed { links: 1, bytes: 0 },
            path: None,
        };
        let report = LinkReport {
            generation,
            at: self.now(),
            lines: peers.into_iter().map(line).collect(),
            untold: 0,
        };
        self.send_up(worker, WorkerMessage::Links(report));
    }

    /// A worker that cannot make one link lets go of the others that it has made, as in the shell. A worker that still waits for others
    /// does not notice.
    fn let_go_of_links(&mut self, worker: WorkerId, generation: Generation) {
        let now = self.now();
        let ring = self.ring_of(worker, generation);
        for peer in ring.map_or_else(Vec::new, |ring| ring.neighbours()) {
            let other = self.ring_of(peer, generation);
            let made = other.is_some_and(|ring| ring.links == Links::Made);
            if made && self.network.links(now, Node::Worker(worker), Node::Worker(peer)) {
                let delay = self.network.delay(&mut self.dice);
                self.link_breaks(delay, generation, peer, worker);
            }
        }
    }

    /// A link has broken, as this worker sees it.
    pub(super) fn link_broken(&mut self, worker: WorkerId, generation: Generation, peer: WorkerId) {
        let ring = self.ring_of(worker, generation);
        let Some(ring) = ring.filter(|ring| ring.links != Links::Broken) else {
            return;
        };
        ring.links = Links::Broken;
        self.leave_for(worker, Event::LinkBroken { generation, peer }, Data::None);
    }

    /// `worker` has closed the links of its ring: the others see it at once, if they can.
    pub(super) fn reset_links(&mut self, worker: WorkerId, ring: Option<(Generation, Vec<WorkerId>)>) {
        self.break_links(worker, ring, Duration::ZERO);
    }

    /// `worker` does not answer any more: the others notice when its connections have been idle for too long.
    pub(crate) fn links_go_idle(&mut self, worker: WorkerId, ring: Option<(Generation, Vec<WorkerId>)>) {
        self.break_links(worker, ring, IDLE);
    }

    fn break_links(&mut self, worker: WorkerId, ring: Option<(Generation, Vec<WorkerId>)>, after: Duration) {
        let Some((generation, peers)) = ring else { return };
        for peer in peers {
            let passes = self.reaches(Node::Worker(worker), Node::Worker(peer));
            let after = if passes { after } else { IDLE };
            let delay = after + self.network.delay(&mut self.dice);
            self.link_breaks(delay, generation, peer, worker);
        }
    }

    /// After this a worker notices that its link to `peer` has broken.
    pub(crate) fn link_breaks(&mut self, delay: Duration, generation: Generation, worker: WorkerId, peer: WorkerId) {
        let broken = Happening::LinkBroken {
            worker,
            generation,
            peer,
        };
        self.calendar.after(delay, broken);
    }

    /// A worker's ring of this generation, present or to come.
    pub(super) fn ring_of(&mut self, worker: WorkerId, generation: Generation) -> Option<&mut RingEnd> {
        self.processes.get_mut(&worker)?.ring_of(generation)
    }
}
