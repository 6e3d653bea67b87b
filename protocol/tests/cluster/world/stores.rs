//! Depots, for runs that take checkpoints: each keeps all that it is given, and nothing is ever lost there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestId, ManifestKey, PieceHash};
use sardana_protocol::member::{self, SavedShare};
use sardana_protocol::membership::{Contents, DepotEvent, Event};
use sardana_protocol::messages::{DepotMessage, DepotOrder, Restore, Save, Told};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::{StateHash, StateSize, share_hash};
use sardana_protocol::words::{Generation, JobId, WorkerId};

use super::World;
use super::network::Mail;
use super::process::Data;

/// A state has so many pieces, of so many bytes each.
const STATE: StateSize = StateSize { pieces: 5, bytes: 40 };
const PIECE_BYTES: u64 = STATE.bytes / STATE.pieces;

/// What all depots together keep.
#[derive(Default)]
pub(crate) struct Stores {
    depots: Vec<DepotId>,
    /// Whether what is there is the job's state at that step.
    kept: BTreeMap<ManifestKey, (Head, bool)>,
    /// How many manifests were made durable.
    pub(crate) committed: u32,
}

/// What a worker does for checkpoints.
#[derive(Default)]
pub(crate) struct Saves {
    order: Option<Save>,
    pinned: Option<(SnapshotId, Vec<Share>, u64)>,
    restoring: Option<(Generation, Box<Restore>)>,
}

fn pieces_of(state: u64, share: Share) -> Vec<PieceHash> {
    let (start, end) = share.pieces(STATE.pieces);
    (start..end)
        .map(|number| PieceHash::of(&[state.to_le_bytes(), number.to_le_bytes()].concat()))
        .collect()
}

/// The hash of a share of a state.
pub(super) fn hash_of_share(state: u64, share: Share) -> StateHash {
    let pieces = pieces_of(state, share);
    share_hash(PIECE_BYTES * pieces.len() as u64, &pieces)
}

impl Saves {
    /// Writes what its machine orders; `held` is what it holds of a snapshot.
    pub(crate) fn save(&mut self, save: Save, held: Option<(SnapshotId, Vec<Share>, u64)>) {
        if self.pinned.as_ref().is_none_or(|(pinned, ..)| *pinned != save.snapshot) {
            self.pinned = held.filter(|(held, ..)| *held == save.snapshot);
        }
        self.order = Some(save);
    }

    pub(crate) fn restore(&mut self, generation: Generation, restore: Box<Restore>) {
        self.restoring = Some((generation, restore));
    }

    pub(crate) fn end(&mut self) {
        (self.order, self.pinned) = (None, None);
    }

    /// The next share that is written, if one was ordered.
    fn write(&mut self) -> Option<member::Event> {
        let (snapshot, attempt, share) = {
            let save = self.order.as_mut()?;
            (save.snapshot, save.attempt, save.shares.pop()?)
        };
        let held = self.pinned.as_ref().filter(|(held, ..)| *held == snapshot);
        let held = held.and_then(|(_, shares, state)| Some((*shares.iter().find(|one| one.index == share)?, *state)));
        Some(match held {
            Some((share, state)) => {
                let pieces = pieces_of(state, share);
                member::Event::Saved(Box::new(SavedShare {
                    snapshot,
                    attempt,
                    share: share.index,
                    bytes: PIECE_BYTES * pieces.len() as u64,
                    description: vec![PieceHash::of(b"names")],
                    state: STATE,
                    pieces,
                }))
            }
            None => member::Event::NotSaved {
                snapshot,
                attempt,
                depot: None,
                reason: "it is let go".to_owned(),
            },
        })
    }
}

impl World {
    /// So many depots come.
    pub(super) fn open_depots(&mut self, count: u64) {
        self.stores.depots = (1..=count).map(DepotId::new).collect();
        self.depots_say_hello();
    }

    /// Also to a coordinator's next life.
    pub(super) fn depots_say_hello(&mut self) {
        for depot in self.stores.depots.clone() {
            self.depot_comes(depot);
        }
    }

    pub(super) fn depot_comes(&mut self, depot: DepotId) {
        let arrived = DepotEvent::Arrived {
            host: depot.to_string(),
            certified: depot.get(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        };
        self.coordinate(Event::Depot { depot, event: arrived });
        let heads = self.stores.kept.values().map(|(head, _)| head.clone()).collect();
        let holds = DepotMessage::Holds {
            heads,
            told: Told::All,
            unreadable: Vec::new(),
        };
        let holds = self.as_told(depot, holds);
        self.coordinate(Event::Depot {
            depot,
            event: DepotEvent::Said(Box::new(holds)),
        });
    }

    /// What a depot says, or what it says in place of it if it lies.
    fn as_told(&mut self, depot: DepotId, said: DepotMessage) -> DepotMessage {
        match &mut self.liars {
            Some(liars) => liars.depot_says(depot, said, &mut self.dice),
            None => said,
        }
    }

    fn depot_says(&mut self, depot: DepotId, said: DepotMessage) {
        let said = self.as_told(depot, said);
        self.mail.push(Mail::OfDepot(depot, said));
    }

    /// From now on one of three depots lies, and the agent of one worker.
    pub(crate) fn others_lie(&mut self) {
        self.open_depots(3);
        let depot = DepotId::new(1 + self.dice.below(3));
        let child = WorkerId::new(1 + self.dice.below(self.next_worker - 1));
        if let Some(liars) = &mut self.liars {
            liars.others(depot, child, &self.config);
        }
    }

    /// The depot that lies says something that it was not asked for, and the agent.
    pub(super) fn others_invent(&mut self) {
        let Some(liars) = &mut self.liars else { return };
        if let Some((depot, said)) = liars.depot_invents(&mut self.dice) {
            self.mail.push(Mail::OfDepot(depot, said));
        }
        let came = liars.depot_comes(&mut self.dice);
        // Those that are on their way, and one that never was.
        let here = self.processes.keys().filter(|worker| !self.coordinator.knows(**worker));
        let absent: Vec<WorkerId> = here.copied().chain([WorkerId::new(1 << 20)]).collect();
        let said = liars.agent_invents(&absent, &mut self.dice);
        if let Some(depot) = came {
            self.depot_comes(depot);
        }
        if let Some(event) = said {
            self.coordinate(event);
        }
    }

    pub(super) fn obey_at_depot(&mut self, depot: DepotId, order: DepotOrder) {
        match order {
            DepotOrder::Delete { key } => {
                self.stores.kept.remove(&key);
                self.depot_says(depot, DepotMessage::Deleted { key });
            }
            DepotOrder::Serve { .. }
            | DepotOrder::Commit { .. }
            | DepotOrder::Release { .. }
            | DepotOrder::Fetch { .. }
            | DepotOrder::Renewed { .. }
            | DepotOrder::JobOver => {}
        }
    }

    /// A manifest is made. However its writers lie, it names as many pieces as the state has: another could be loaded by no worker.
    pub(super) fn commit(&mut self, to: &[DepotId], contents: Contents) {
        let (pieces, bytes) = (contents.pieces.len() as u64, contents.bytes);
        let seed = self.law.seed;
        assert_eq!(
            (pieces, bytes),
            (STATE.pieces, STATE.bytes),
            "CKPT-2: {contents:?}, seed {seed}"
        );
        let step = contents.snapshot.step;
        let sound = contents.pieces == pieces_of(self.law.state_at(step), Share::WHOLE);
        let key = ManifestKey {
            step,
            id: ManifestId::of(format!("{contents:?}").as_bytes()),
        };
        let head = Head {
            key,
            run: JobId::new([1; 16]),
            snapshot: contents.snapshot,
            task: self.config.task,
            build: self.config.build,
            replicas: contents.replicas,
            depots: contents.depots,
            placing: contents.placing,
            condition: Condition::Whole,
        };
        self.stores.kept.insert(key, (head.clone(), sound));
        self.stores.committed += 1;
        for &depot in to {
            let (snapshot, head) = (contents.snapshot, head.clone());
            self.depot_says(depot, DepotMessage::Committed { snapshot, head });
        }
    }

    /// A worker writes a share, or loads a checkpoint.
    pub(super) fn save_or_restore(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        if let Some((generation, restore)) = process.saves.restoring.take() {
            let (key, step) = (restore.key, restore.key.step);
            let sound = self.stores.kept.get(&key).is_some_and(|(_, sound)| *sound);
            let (event, data) = if sound {
                (
                    member::Event::Fetched { generation, step },
                    Some(Data::State(self.law.state_at(step))),
                )
            } else {
                let reason = format!("{key} is not there");
                (member::Event::NotRestored { generation, reason }, None)
            };
            return self.member(worker, event, data);
        }
        if let Some(event) = process.saves.write() {
            self.member(worker, event, None);
        }
    }
}
