//! What depots do with their disks: pieces and manifests that are safe only later, room that is given back, and what is true of them.

use std::rc::Rc;
use std::time::Duration;

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestId, ManifestKey, PieceHash, Placing};
use sardana_protocol::limits::{DEPOTS_PATIENCE, FETCH_TOLD_EVERY};
use sardana_protocol::membership::Contents;
use sardana_protocol::messages::{DepotMessage, DepotOrder};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::JobId;

use super::depots::{AtDepot, Ordered};
use super::stores::{Depot, Kept};
use super::{BUILD, TASK, World};
use crate::simulation::faults::Struck;
use crate::simulation::invariants::Held;
use crate::simulation::model::{PIECES, mix, piece};
use crate::simulation::network::Node;

impl World {
    pub(super) fn depot_obeys(&mut self, place: usize, order: Ordered) {
        let depot = &mut self.depots[place];
        match order {
            Ordered::Other(DepotOrder::Serve { workers, depots }) => {
                depot.admits = workers.into_iter().collect();
                depot.peers = depots.into_iter().map(DepotId::new).collect();
            }
            Ordered::Other(DepotOrder::Release { snapshot }) => {
                depot.pins.retain(|_, pin| *pin > snapshot);
                depot.sweep();
            }
            Ordered::Other(DepotOrder::Fetch { key, .. }) => {
                let (boot, whole) = (depot.boot, depot.has_whole(key));
                // What is there already is not moved.
                let moves = if whole { Duration::ZERO } else { self.swarm.transfer };
                let until = self.now() + moves + self.within(self.swarm.sync);
                self.depot_fetches(place, boot, until, Box::new(order));
            }
            Ordered::Commit(_) | Ordered::Other(DepotOrder::Delete { .. }) => {
                let boot = depot.boot;
                let sync = self.within(self.swarm.sync);
                let order = Box::new(order);
                self.depot_after(sync, place, AtDepot::Done { boot, order });
            }
            Ordered::Other(DepotOrder::Commit { .. } | DepotOrder::Renewed { .. } | DepotOrder::JobOver) => {}
        }
    }

    /// A depot fetches until then, and says from time to time that it is not done yet.
    fn depot_fetches(&mut self, place: usize, boot: u64, until: Duration, order: Box<Ordered>) {
        if until <= self.now() + FETCH_TOLD_EVERY {
            return self.depot_at(until, place, AtDepot::Done { boot, order });
        }
        self.depot_after(FETCH_TOLD_EVERY, place, AtDepot::Fetching { boot, until, order });
    }

    pub(super) fn depot_fetching(&mut self, place: usize, boot: u64, until: Duration, order: Box<Ordered>) {
        if self.depots[place].boot != boot {
            return;
        }
        if let Ordered::Other(DepotOrder::Fetch { snapshot, placing, .. }) = *order {
            self.depot_says(place, DepotMessage::Fetching { snapshot, placing });
        }
        self.depot_fetches(place, boot, until, order);
    }

    pub(super) fn depot_done(&mut self, place: usize, boot: u64, order: Ordered) {
        let depot = &mut self.depots[place];
        if depot.boot != boot {
            return;
        }
        if let Ordered::Commit(contents) = order {
            self.keep_manifest(place, contents);
        } else if let Ordered::Other(DepotOrder::Delete { key }) = order {
            depot.manifests.remove(&key);
            depot.unreadable.remove(&key);
            depot.buried.insert(key);
            depot.sweep();
            self.law.deleted(depot.id, key);
            self.depot_says(place, DepotMessage::Deleted { key });
        } else if let Ordered::Other(DepotOrder::Fetch {
            snapshot,
            key,
            depots,
            placing,
        }) = order
        {
            let depots = depots.iter().map(|one| one.depot).collect();
            if !self.fetch_checkpoint(place, key, depots, placing) {
                self.depot_refuses(place, snapshot, placing, "not all of it can be read, or there is no room");
            }
        }
    }

    /// A depot fetches from the others what it lacks of a checkpoint that is placed anew. False if it cannot.
    fn fetch_checkpoint(&mut self, place: usize, key: ManifestKey, depots: Vec<DepotId>, placing: Placing) -> bool {
        let own = self.depots[place].id;
        let answers = |(other, depot): &(usize, &Depot)| {
            let reached = self.reaches(Node::Depot(place), Node::Depot(*other));
            *other == place || (depot.up && reached && depots.contains(&depot.id) && depot.peers.contains(&own))
        };
        let others: Vec<&Depot> = self
            .depots
            .iter()
            .enumerate()
            .filter(answers)
            .map(|(_, depot)| depot)
            .collect();
        let kept = others.iter().find_map(|depot| depot.manifests.get(&key));
        let found = kept.map(|kept| {
            let mut contents = Contents::clone(&kept.contents);
            contents.depots.clone_from(&depots);
            contents.placing = placing;
            let readable = |piece: &PieceHash| others.iter().any(|depot| depot.has(piece));
            let pieces = self.depots[place].own(&contents);
            (pieces.iter().all(readable), pieces, Rc::new(contents))
        });
        let depot = &mut self.depots[place];
        match found {
            Some((true, pieces, contents)) if !depot.full => {
                for piece in &pieces {
                    depot.rotten.remove(piece);
                }
                depot.durable.extend(pieces);
                self.counts.manifests_replicated += 1;
                self.keep_manifest(place, contents);
                true
            }
            Some(_) | None => false,
        }
    }

    fn depot_refuses(&mut self, place: usize, snapshot: SnapshotId, placing: Placing, reason: &str) {
        let refused = DepotMessage::Refused {
            snapshot,
            placing,
            reason: reason.to_owned(),
        };
        self.depot_says(place, refused);
    }

    fn keep_manifest(&mut self, place: usize, contents: Rc<Contents>) {
        let depot = &mut self.depots[place];
        let (snapshot, head) = (contents.snapshot, head_of(&contents));
        let reason = if depot.full {
            Some("its disk is full")
        } else if depot.condition(&contents) == Condition::Lacking {
            Some("pieces are missing")
        } else if depot.buried.contains(&head.key) {
            Some("it was deleted")
        } else {
            None
        };
        if let Some(reason) = reason {
            return self.depot_refuses(place, snapshot, contents.placing, reason);
        }
        depot.unreadable.remove(&head.key);
        self.law.keeps_manifest(depot.id, head.key, &contents);
        let kept = Kept {
            head: head.clone(),
            contents,
        };
        depot.manifests.insert(head.key, kept);
        self.depot_says(place, DepotMessage::Committed { snapshot, head });
    }

    /// Before a manifest is made: all that it names is where it should be, as far as no depot has lost it since (CKPT-1).
    pub(super) fn is_durable(&mut self, contents: &Contents) -> Held {
        let undisturbed = |place: usize, depot: &Depot| {
            let session = self.coordinator.depots.get(&depot.id);
            let same = session.is_some_and(|session| Some(session.number) == self.depot_session(place));
            depot.up && same && !self.law.has_rotted(depot.id)
        };
        let depots = self.depots.iter().enumerate();
        let missing = depots
            .filter(|(place, depot)| contents.depots.contains(&depot.id) && undisturbed(*place, depot))
            .find(|(_, depot)| depot.condition(contents) == Condition::Lacking)
            .map(|(_, depot)| depot.id);
        self.law.all_durable_first(contents.snapshot, missing)
    }

    /// A checkpoint is told to be committed: it can be loaded from what is on the disks, as far as they were not lost since.
    pub(super) fn pieces_are_kept(&mut self, key: ManifestKey) -> Held {
        let rotted = self.depots.iter().any(|depot| self.law.has_rotted(depot.id));
        if rotted {
            self.law
                .excuse("a piece has rotted on a disk with a checkpoint that is told of");
        }
        let missing = self
            .depots
            .iter()
            .filter(|depot| self.law.should_keep(depot.id, key) && !self.law.has_rotted(depot.id))
            .find(|depot| {
                let kept = depot.manifests.get(&key);
                kept.is_none_or(|kept| depot.condition(&kept.contents) == Condition::Lacking)
            })
            .map(|depot| depot.id);
        self.law.is_kept(key, missing)
    }

    /// Whether the job can be resumed from nothing any more: no checkpoint of it can be read, wherever one looks.
    pub(super) fn nothing_to_resume_from(&self) -> bool {
        !self.depots.is_empty() && self.readable().next().is_none()
    }

    /// Whether the coordinator was told of a checkpoint of this job that can be read, wherever one looks.
    pub(super) fn knows_what_to_resume_from(&self) -> bool {
        self.depots.is_empty() || self.readable().any(|key| self.law.is_told_of(key))
    }

    /// The coordinator waits for depots with a checkpoint, and there is none.
    pub(crate) fn waits_in_vain(&self) -> bool {
        let long = |since| self.now().saturating_sub(since) >= 4 * DEPOTS_PATIENCE;
        self.in_want.is_some_and(long) && self.nothing_to_resume_from()
    }

    /// A depot finds a checkpoint of another job, or of another build, on its disk.
    pub(crate) fn adopt_foreign(&mut self, place: usize) -> Struck {
        let depot = &self.depots[place];
        let (&newest, kept) = depot.manifests.iter().next_back()?;
        let last = self.coordinator.config.steps;
        if kept.head.task != TASK || kept.head.build != BUILD || newest.step >= last {
            return None;
        }
        let state = mix(newest.step.get(), 77);
        let mut contents = Contents::clone(&kept.contents);
        contents.snapshot.step = newest.step.next();
        contents.pieces = (0..PIECES).map(|number| piece(state, number)).collect();
        (contents.depots, contents.replicas) = (vec![depot.id], 1);
        let mut head = head_of(&contents);
        match self.dice.below(2) {
            0 => head.task.settings = BUILD,
            _ => head.build = TASK.settings,
        }
        for number in 0..PIECES {
            self.vault.insert(piece(state, number), (state, number));
        }
        let depot = &mut self.depots[place];
        let contents = Rc::new(contents);
        depot.durable.extend(contents.pieces.iter().chain(&contents.description));
        depot.manifests.insert(head.key, Kept { head, contents });
        Some(())
    }

    /// The job's checkpoints that can be read from all disks together.
    fn readable(&self) -> impl Iterator<Item = ManifestKey> + '_ {
        let kept = self.depots.iter().flat_map(|depot| &depot.manifests);
        let own = kept.filter(|(_, kept)| (kept.head.task, kept.head.build) == (TASK, BUILD));
        let whole = |contents: &Contents| {
            let mut needs = contents.description.iter().chain(&contents.pieces);
            needs.all(|piece| self.depots.iter().any(|depot| depot.has(piece)))
        };
        own.filter(move |(_, kept)| whole(&kept.contents)).map(|(key, _)| *key)
    }
}

/// The checkpoint that these contents make, as depots tell of it.
pub(super) fn head_of(contents: &Contents) -> Head {
    let id = ManifestId::of(format!("{contents:?}").as_bytes());
    let step = contents.snapshot.step;
    Head {
        key: ManifestKey { step, id },
        run: JobId::new([0; 16]),
        snapshot: contents.snapshot,
        task: TASK,
        build: BUILD,
        replicas: contents.replicas,
        depots: contents.depots.clone(),
        placing: contents.placing,
        condition: Condition::Whole,
    }
}
