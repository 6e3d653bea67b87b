//! What workers do for checkpoints: they write shares to depots.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_protocol::checkpoint::{DepotId, PieceHash, placement};
use sardana_protocol::member::{Event, SavedShare};
use sardana_protocol::messages::{Save, WorkerMessage};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::StateSize;
use sardana_protocol::words::WorkerId;

use super::World;
use super::process::Data;
use super::stores::Depot;
use crate::simulation::calendar::Happening;
use crate::simulation::model::{PIECE_BYTES, PIECES, description, mix, piece};
use crate::simulation::network::Node;

/// A depot that does not answer is given up after this.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Between two attempts.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// A worker that writes for longer says so this often.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// How far a worker's work for a checkpoint is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OfCheckpoint {
    /// It has written pieces to depots, if they are there.
    Written,
    /// They are durable, if no depot has crashed since.
    Synced,
    /// It is still writing.
    StillSaving,
    /// It has read a checkpoint, if all of it is there.
    Restored,
}

pub(super) fn of(worker: WorkerId, serial: u64, what: OfCheckpoint) -> Happening {
    Happening::Checkpoint { worker, serial, what }
}

/// What is written to each depot: what is in a piece, its number and its name.
type Load = BTreeMap<DepotId, Vec<(u64, u64, PieceHash)>>;

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
    /// The pieces are there, in these lives of the depots, and are being synced.
    Syncing(BTreeMap<DepotId, u64>),
    Done,
    Failed,
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
    pub(super) fn of_checkpoint(&mut self, worker: WorkerId, serial: u64, what: OfCheckpoint) {
        match what {
            OfCheckpoint::Written => self.written(worker, serial),
            OfCheckpoint::Synced => self.synced(worker, serial),
            OfCheckpoint::StillSaving => self.still_saving(worker, serial),
            OfCheckpoint::Restored => self.restored(worker, serial),
        }
    }

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
            if writing.stage == Stage::Done {
                self.say_saved(worker);
            }
            return;
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
            _ if !self.swarm.writes_stand => Duration::ZERO,
            0 => Duration::from_secs(60),
            1 => {
                self.calendar.after(SAY_EVERY, of(worker, serial, OfCheckpoint::StillSaving));
                Duration::from_secs(60)
            }
            _ => Duration::ZERO,
        };
        let writes = self.within(2 * self.swarm.transfer) + self.network.stream_delay(&mut self.dice);
        if stands == Duration::ZERO && writes > SAY_EVERY {
            self.calendar.after(SAY_EVERY, of(worker, serial, OfCheckpoint::StillSaving));
        }
        let delay = stands + writes;
        self.calendar.after(delay, of(worker, serial, OfCheckpoint::Written));
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
        self.calendar.after(SAY_EVERY, of(worker, serial, OfCheckpoint::StillSaving));
    }

    fn writing(&mut self, worker: WorkerId, serial: u64) -> Option<&mut Writing> {
        let writing = self.processes.get_mut(&worker)?.saves.writing.as_mut()?;
        (writing.serial == serial).then_some(writing)
    }

    /// What a worker writes, and to which depots.
    fn load(&self, worker: WorkerId) -> Option<(Save, Load)> {
        let saves = &self.processes.get(&worker)?.saves;
        let (pinned, writing) = (saves.pinned.as_ref()?, saves.writing.as_ref()?);
        let save = writing.save.clone();
        let depots: Vec<DepotId> = save.depots.iter().map(|one| one.depot).collect();
        let shares = save.shares.iter().filter_map(|&index| pinned.share(index));
        let pieces = shares.flat_map(|share| pinned.pieces(share));
        let pieces = pieces.map(|(number, piece)| (pinned.content(number), number, piece));
        let described = description().into_iter().map(|piece| (0, PIECES, piece));
        let mut load = Load::new();
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
    pub(super) fn open_depot(&self, worker: WorkerId, depot: DepotId) -> Option<usize> {
        let place = self.depots.iter().position(|one| one.id == depot)?;
        let one = &self.depots[place];
        let reached = self.reaches(Node::Worker(worker), Node::Depot(place));
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
                    return self.calendar.after(AGAIN, of(worker, serial, OfCheckpoint::Written));
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
        self.calendar.after(sync, of(worker, serial, OfCheckpoint::Synced));
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
                state: StateSize {
                    pieces: PIECES,
                    bytes: PIECES * PIECE_BYTES,
                },
                pieces: pieces.into_iter().map(|(_, piece)| piece).collect(),
            }
        };
        let all: Vec<SavedShare> = save.shares.iter().map(saved).collect();
        for saved in all {
            self.leave_for(worker, Event::Saved(Box::new(saved)), Data::None);
        }
    }
}
