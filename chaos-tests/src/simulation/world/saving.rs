//! What workers do for checkpoints: they write shares to depots, and read a checkpoint that a generation starts from.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_protocol::checkpoint::{DepotId, PieceHash, placement};
use sardana_protocol::member::{Event, SavedShare};
use sardana_protocol::messages::{Restore, Save, WorkerMessage};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::words::{Generation, WorkerId};

use super::World;
use super::depots::Depot;
use super::process::Data;
use crate::simulation::calendar::Happening;
use crate::simulation::model::{PIECE_BYTES, PIECES, description, mix, piece};
use crate::simulation::network::Node;

/// A depot that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(500);

/// Who writes for longer says so this often.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What a worker keeps for the sake of a checkpoint, and what it writes.
#[derive(Default)]
pub(crate) struct Saves {
    pinned: Option<Pinned>,
    writing: Option<Writing>,
}

/// Shares of a snapshot that may not be let go.
struct Pinned {
    snapshot: SnapshotId,
    shares: Vec<Share>,
    state: u64,
    /// A piece of the copy that is not what it was.
    bad: Option<u64>,
}

struct Writing {
    save: Save,
    serial: u64,
    since: Duration,
    stage: Stage,
}

#[derive(Clone, PartialEq, Eq)]
enum Stage {
    /// Pieces are on their way to depots.
    Sending,
    /// They are there, in these lives of the depots, and are being synced.
    Syncing(BTreeMap<DepotId, u64>),
    Done,
    Failed,
}

/// What a worker reads.
pub(crate) struct Restoring {
    serial: u64,
    since: Duration,
    generation: Generation,
    restore: Restore,
}

impl Pinned {
    fn content(&self, number: u64) -> u64 {
        if self.bad == Some(number) {
            mix(self.state, 1)
        } else {
            self.state
        }
    }

    fn pieces(&self, share: Share) -> Vec<(u64, PieceHash)> {
        let (start, end) = share.pieces(PIECES);
        (start..end)
            .map(|number| (number, piece(self.content(number), number)))
            .collect()
    }

    fn share(&self, index: u32) -> Option<Share> {
        self.shares.iter().find(|share| share.index == index).copied()
    }
}

impl Saves {
    /// The copy goes bad: one of its pieces is not what was hashed.
    pub(crate) fn spoil(&mut self, number: u64) -> bool {
        let bad = self.pinned.as_mut().filter(|pinned| pinned.bad.is_none());
        bad.map(|pinned| pinned.bad = Some(number)).is_some()
    }
}

impl World {
    pub(super) fn save(&mut self, worker: WorkerId, save: Save) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let saves = &mut process.saves;
        if saves.pinned.as_ref().is_none_or(|pinned| pinned.snapshot != save.snapshot) {
            saves.pinned = process.keeping.shares_of(save.snapshot).map(|(shares, state)| Pinned {
                snapshot: save.snapshot,
                shares,
                state,
                bad: None,
            });
        }
        let pinned = saves.pinned.as_ref();
        let held = pinned.is_some_and(|pinned| save.shares.iter().all(|share| pinned.share(*share).is_some()));
        if !held {
            return self.not_saved(worker, &save, None, "its shares are let go already");
        }
        if let Some(writing) = &saves.writing
            && writing.save == save
            && writing.stage != Stage::Failed
        {
            return if writing.stage == Stage::Done {
                self.say_saved(worker)
            } else {
                ()
            };
        }
        self.serial += 1;
        let serial = self.serial;
        let since = self.calendar.now();
        let stage = Stage::Sending;
        saves.writing = Some(Writing {
            save,
            serial,
            since,
            stage,
        });
        // Now and then something stands still: with or without a word.
        let stands = match self.dice.below(48) {
            0 => Duration::from_secs(60),
            1 => {
                self.calendar.after(SAY_EVERY, Happening::StillSaving { worker, serial });
                Duration::from_secs(60)
            }
            _ => Duration::ZERO,
        };
        let delay = stands + self.within(2 * self.swarm.transfer) + self.network.stream_delay(&mut self.dice);
        self.calendar.after(delay, Happening::Written { worker, serial });
    }

    fn not_saved(&mut self, worker: WorkerId, save: &Save, depot: Option<DepotId>, reason: &str) {
        let (snapshot, attempt, reason) = (save.snapshot, save.attempt, reason.to_owned());
        let event = Event::NotSaved {
            snapshot,
            attempt,
            depot,
            reason,
        };
        self.leave_for(worker, event, Data::None);
    }

    pub(super) fn still_saving(&mut self, worker: WorkerId, serial: u64) {
        let Some(writing) = self.writing(worker, serial) else { return };
        if matches!(writing.stage, Stage::Done | Stage::Failed) {
            return;
        }
        let (snapshot, attempt) = (writing.save.snapshot, writing.save.attempt);
        self.send_up(worker, WorkerMessage::Saving { snapshot, attempt });
        self.calendar.after(SAY_EVERY, Happening::StillSaving { worker, serial });
    }

    fn writing(&mut self, worker: WorkerId, serial: u64) -> Option<&mut Writing> {
        let writing = self.processes.get_mut(&worker)?.saves.writing.as_mut()?;
        (writing.serial == serial).then_some(writing)
    }

    /// What a worker writes, and to which depots.
    fn load(&self, worker: WorkerId) -> Option<(Save, BTreeMap<DepotId, Vec<(u64, u64, PieceHash)>>)> {
        let saves = &self.processes.get(&worker)?.saves;
        let (pinned, writing) = (saves.pinned.as_ref()?, saves.writing.as_ref()?);
        let save = writing.save.clone();
        let depots: Vec<DepotId> = save.depots.iter().map(|one| one.depot).collect();
        let shares = save.shares.iter().filter_map(|&index| pinned.share(index));
        let pieces = shares.flat_map(|share| pinned.pieces(share));
        let pieces = pieces.map(|(number, piece)| (pinned.content(number), number, piece));
        let described = description().into_iter().map(|piece| (0, PIECES, piece));
        let mut load: BTreeMap<DepotId, Vec<_>> = BTreeMap::new();
        for one in pieces.chain(described) {
            for home in placement::homes(one.2, &depots, save.replicas) {
                load.entry(home).or_default().push(one);
            }
        }
        if save.shares.is_empty() {
            load.clear();
        }
        Some((save, load))
    }

    /// The depot of this id, if it is there and lets `worker` in.
    fn open_depot(&self, worker: WorkerId, depot: DepotId) -> Option<usize> {
        let place = self.depots.iter().position(|one| one.id == depot)?;
        let one = &self.depots[place];
        let reached = self.network.reaches(self.now(), Node::Worker(worker), Node::Depot(place));
        (one.up && reached && one.admits.contains(&worker)).then_some(place)
    }

    pub(super) fn written(&mut self, worker: WorkerId, serial: u64) {
        let now = self.now();
        let Some(since) = self.writing(worker, serial).map(|writing| writing.since) else {
            return;
        };
        let Some((save, load)) = self.load(worker) else { return };
        let mut boots = BTreeMap::new();
        for depot in load.keys() {
            let refused = match self.open_depot(worker, *depot) {
                Some(place) if self.depots[place].full => "its disk is full",
                Some(place) => {
                    boots.insert(*depot, self.depots[place].boot);
                    continue;
                }
                None if now.saturating_sub(since) < PATIENCE => {
                    return self.calendar.after(AGAIN, Happening::Written { worker, serial });
                }
                None => "it does not answer",
            };
            if let Some(writing) = self.writing(worker, serial) {
                writing.stage = Stage::Failed;
            }
            return self.not_saved(worker, &save, Some(*depot), refused);
        }
        if let Some(writing) = self.writing(worker, serial) {
            writing.stage = Stage::Syncing(boots);
        }
        let sync = self.within(self.swarm.sync);
        self.calendar.after(sync, Happening::Synced { worker, serial });
    }

    pub(super) fn synced(&mut self, worker: WorkerId, serial: u64) {
        let Some(Stage::Syncing(boots)) = self.writing(worker, serial).map(|writing| writing.stage.clone()) else {
            return;
        };
        let Some((save, load)) = self.load(worker) else { return };
        let mut failed = None;
        for (depot, pieces) in load {
            let same = |one: &Depot| one.id == depot && one.up && boots.get(&depot) == Some(&one.boot);
            let Some(place) = self.depots.iter().position(same) else {
                failed = Some(depot);
                continue;
            };
            for (content, number, piece) in pieces {
                self.vault.insert(piece, (content, number));
                let depot = &mut self.depots[place];
                depot.rotten.remove(&piece);
                depot.durable.insert(piece);
                depot.pins.insert(piece, save.snapshot);
            }
            self.tell_conditions(place);
        }
        let Some(writing) = self.writing(worker, serial) else { return };
        writing.stage = if failed.is_some() { Stage::Failed } else { Stage::Done };
        match failed {
            Some(_) => self.not_saved(worker, &save, failed, "its connection broke"),
            None => self.say_saved(worker),
        }
    }

    fn say_saved(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get(&worker) else { return };
        let (Some(pinned), Some(writing)) = (&process.saves.pinned, &process.saves.writing) else {
            return;
        };
        let save = writing.save.clone();
        let saved = |index: &u32| {
            let pieces = pinned.share(*index).map(|share| pinned.pieces(share)).unwrap_or_default();
            SavedShare {
                snapshot: save.snapshot,
                attempt: save.attempt,
                share: *index,
                bytes: PIECE_BYTES * pieces.len() as u64,
                description: description(),
                pieces: pieces.into_iter().map(|(_, piece)| piece).collect(),
            }
        };
        let all: Vec<SavedShare> = save.shares.iter().map(saved).collect();
        for saved in all {
            self.leave_for(worker, Event::Saved(Box::new(saved)), Data::None);
        }
    }

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
        self.calendar.after(delay, Happening::Restored { worker, serial });
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
        let loaded = self.read(worker, restore);
        let waits = now.saturating_sub(restoring.since) < PATIENCE + self.swarm.transfer;
        match loaded {
            Ok(state) => self.leave_for(worker, Event::Fetched { generation, step }, Data::State(state)),
            Err(_) if waits => {
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.restoring = Some(restoring);
                }
                self.calendar.after(AGAIN, Happening::Restored { worker, serial });
            }
            Err(reason) => {
                let reason = reason.to_owned();
                self.leave_for(worker, Event::NotRestored { generation, reason }, Data::None);
            }
        }
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
                // Who reads a rotten piece notices.
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
        Ok(put_together(&states))
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
