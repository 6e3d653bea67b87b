//! Depots and their connections with the coordinator: in order, and once, or the connection breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestKey, PieceHash, placement};
use sardana_protocol::membership::{Contents, DepotEvent, Event};
use sardana_protocol::messages::{DepotMessage, DepotOrder, Told};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Incarnation, WorkerId};

use super::World;
use super::process::Control;
use crate::simulation::calendar::Happening;
use crate::simulation::network::{Cut, IDLE, Node};

/// Between two attempts to find the coordinator, as in the shell.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// An attempt that nobody answers takes this long, as in the shell.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many checkpoints are told of in one message.
const HEADS: usize = 2;

/// A depot: its process, and its disk.
pub(crate) struct Depot {
    /// Its store's.
    pub(crate) id: DepotId,
    host: u32,
    pub(crate) up: bool,
    /// How often its process has started.
    pub(crate) boot: u64,
    /// Its disk takes no more.
    pub(crate) full: bool,
    control: Control,
    /// The highest incarnation of a coordinator that it has served.
    served: Incarnation,
    /// When the last message over its connection arrives.
    upstream: Duration,
    /// Who may put and read.
    pub(super) admits: BTreeSet<WorkerId>,
    /// Which other depots may read.
    pub(super) peers: BTreeSet<DepotId>,
    /// Pieces on its disk that are safe there.
    pub(super) durable: BTreeSet<PieceHash>,
    /// Those of them that cannot be read any more, and nobody knows.
    pub(super) rotten: BTreeSet<PieceHash>,
    pub(super) manifests: BTreeMap<ManifestKey, Kept>,
    /// Pieces that are kept although no manifest names them yet.
    pub(super) pins: BTreeMap<PieceHash, SnapshotId>,
}

/// A checkpoint on a depot's disk.
pub(crate) struct Kept {
    /// As it was told last.
    pub(super) head: Head,
    pub(super) contents: Rc<Contents>,
}

/// The connection of a depot, as the coordinator sees it.
pub(crate) struct DepotSession {
    pub(super) place: usize,
    pub(super) number: u64,
    /// When the last message over it arrives.
    downstream: Duration,
}

/// What a depot is told.
#[derive(Debug, Clone)]
pub(crate) enum Ordered {
    /// To keep a manifest of these contents.
    Commit(Rc<Contents>),
    Other(DepotOrder),
}

impl Depot {
    pub(super) fn new(id: DepotId, host: u32) -> Self {
        Self {
            id,
            host,
            up: true,
            boot: 0,
            full: false,
            control: Control::Dialing,
            served: Incarnation::ZERO,
            upstream: Duration::ZERO,
            admits: BTreeSet::new(),
            peers: BTreeSet::new(),
            durable: BTreeSet::new(),
            rotten: BTreeSet::new(),
            manifests: BTreeMap::new(),
            pins: BTreeMap::new(),
        }
    }

    /// Its process ends: what it had only in memory is gone.
    pub(crate) fn goes_down(&mut self) {
        self.up = false;
        self.boot += 1;
        self.control = Control::Dialing;
        self.admits.clear();
        self.peers.clear();
        self.pins.clear();
        self.sweep();
    }

    /// Its disk is another one.
    pub(crate) fn forgets(&mut self, id: DepotId) {
        self.id = id;
        self.durable.clear();
        self.rotten.clear();
        self.manifests.clear();
        self.served = Incarnation::ZERO;
    }

    /// Pieces of these contents that it should have.
    pub(super) fn own(&self, contents: &Contents) -> Vec<PieceHash> {
        let needs = contents.description.iter().chain(&contents.pieces).copied();
        needs
            .filter(|piece| placement::is_home(self.id, *piece, &contents.depots, contents.replicas))
            .collect()
    }

    pub(super) fn condition(&self, contents: &Contents) -> Condition {
        let whole = self.own(contents).iter().all(|piece| self.durable.contains(piece));
        if whole { Condition::Whole } else { Condition::Lacking }
    }

    /// Gives back the room of what nothing names.
    pub(super) fn sweep(&mut self) {
        let named: BTreeSet<PieceHash> = self
            .manifests
            .values()
            .flat_map(|kept| kept.contents.description.iter().chain(&kept.contents.pieces))
            .copied()
            .collect();
        let pins = &self.pins;
        let wanted = |piece: &PieceHash| named.contains(piece) || pins.contains_key(piece);
        self.durable.retain(wanted);
        self.rotten.retain(wanted);
    }
}

impl World {
    pub(super) fn set_up_depots(&mut self) {
        for (place, &host) in self.swarm.depots.clone().iter().enumerate() {
            let id = DepotId::new(self.dice.bits());
            self.depots.push(Depot::new(id, host));
            let delay = self.within(Duration::from_secs(3));
            self.calendar.after(delay, Happening::DepotDial { place });
        }
    }

    /// After faults have ended all depots are there, and have room.
    pub(super) fn heal_depots(&mut self) {
        for place in 0..self.depots.len() {
            self.depots[place].full = false;
            self.depot_is_back(place);
        }
    }

    /// A depot's process starts again.
    pub(crate) fn depot_is_back(&mut self, place: usize) {
        let depot = &mut self.depots[place];
        if !std::mem::replace(&mut depot.up, true) {
            self.calendar.after(Duration::ZERO, Happening::DepotDial { place });
        }
    }

    pub(super) fn depot_dials(&mut self, place: usize) {
        let now = self.now();
        let (up, control) = (self.depots[place].up, self.depots[place].control);
        if !up || control != Control::Dialing || self.done.is_some() {
            return;
        }
        let reachable = self.network.reaches(now, Node::Depot(place), Node::Coordinator);
        if !reachable || !self.coordinator_listens() {
            let pause = RETRY_EVERY + self.within(RETRY_EVERY);
            return self.calendar.after(pause, Happening::DepotDial { place });
        }
        self.serial += 1;
        let session = self.serial;
        let delay = self.network.stream_delay(&mut self.dice);
        let depot = &mut self.depots[place];
        depot.control = Control::Greeting(session);
        self.calendar.after(delay, Happening::DepotHello { place, session });
        self.calendar.after(PATIENCE, Happening::DepotUnanswered { place, session });
    }

    pub(super) fn depot_unanswered(&mut self, place: usize, session: u64) {
        if self.depots[place].control == Control::Greeting(session) {
            self.depot_dials_again(place);
        }
    }

    fn depot_dials_again(&mut self, place: usize) {
        let depot = &mut self.depots[place];
        depot.control = Control::Dialing;
        depot.admits.clear();
        depot.peers.clear();
        self.calendar.after(RETRY_EVERY, Happening::DepotDial { place });
    }

    pub(super) fn depot_hello(&mut self, place: usize, session: u64) {
        let life = self.coordinator.incarnation;
        let depot = &self.depots[place];
        let current = depot.control == Control::Greeting(session) && depot.up;
        if self.coordinator.machine.is_none() || !current || depot.served > life {
            return;
        }
        let (depot, host) = (depot.id, format!("host {}", depot.host));
        let at = self.now() + self.network.stream_delay(&mut self.dice);
        let number = session;
        let downstream = at;
        let opened = DepotSession {
            place,
            number,
            downstream,
        };
        self.coordinator.depots.insert(depot, opened);
        self.calendar.at(at, Happening::DepotGreeting { place, session, life });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
        let event = DepotEvent::Arrived {
            host,
            certified: depot.get(),
            address,
        };
        self.decide(Event::Depot { depot, event });
    }

    pub(super) fn depot_greeted(&mut self, place: usize, session: u64, life: Incarnation) {
        let now = self.now();
        let depot = &mut self.depots[place];
        if depot.control != Control::Greeting(session) || !depot.up {
            return self.calendar.after(RETRY_EVERY, Happening::DepotLost { place, session });
        }
        depot.control = Control::Joined(session);
        depot.upstream = now;
        depot.served = depot.served.max(life);
        self.tell_heads(place);
    }

    /// A depot tells all that it keeps.
    fn tell_heads(&mut self, place: usize) {
        let depot = &mut self.depots[place];
        let conditions: Vec<(ManifestKey, Condition)> = depot
            .manifests
            .iter()
            .map(|(&key, kept)| (key, depot.condition(&kept.contents)))
            .collect();
        let mut heads = Vec::new();
        for (key, condition) in conditions.into_iter().rev() {
            if let Some(kept) = depot.manifests.get_mut(&key) {
                kept.head.condition = condition;
                heads.push(kept.head.clone());
            }
        }
        while heads.len() > HEADS {
            let rest = heads.split_off(HEADS);
            let heads = std::mem::replace(&mut heads, rest);
            let told = Told::More;
            self.depot_says(place, DepotMessage::Holds { heads, told });
        }
        let told = Told::All;
        self.depot_says(place, DepotMessage::Holds { heads, told });
    }

    /// Tells what has changed in what a depot has of its checkpoints.
    pub(super) fn tell_conditions(&mut self, place: usize) {
        let depot = &self.depots[place];
        let changed: Vec<(ManifestKey, Condition)> = depot
            .manifests
            .iter()
            .map(|(&key, kept)| (key, kept.head.condition, depot.condition(&kept.contents)))
            .filter(|(_, told, condition)| told != condition)
            .map(|(key, _, condition)| (key, condition))
            .collect();
        let mut heads = Vec::new();
        for (key, condition) in changed {
            if let Some(kept) = self.depots[place].manifests.get_mut(&key) {
                kept.head.condition = condition;
                heads.push(kept.head.clone());
            }
        }
        if !heads.is_empty() {
            let told = Told::All;
            self.depot_says(place, DepotMessage::Holds { heads, told });
        }
    }

    pub(super) fn depot_says(&mut self, place: usize, message: DepotMessage) {
        self.coverage.depot_said(&message);
        let now = self.now();
        let Control::Joined(session) = self.depots[place].control else {
            return;
        };
        let cut = self.network.cut_until(now, Node::Depot(place), Node::Coordinator);
        let delay = self.network.stream_delay(&mut self.dice);
        let depot = &mut self.depots[place];
        depot.upstream = depot.upstream.max(cut.unwrap_or(now) + delay);
        let message = Box::new(message);
        let said = Happening::FromDepot { place, session, message };
        self.calendar.at(depot.upstream, said);
    }

    pub(super) fn depot_heard(&mut self, place: usize, session: u64, message: DepotMessage) {
        let sessions = self.coordinator.depots.iter();
        let mut of_it = sessions.filter(|(_, one)| (one.place, one.number) == (place, session));
        if let Some((&depot, _)) = of_it.next() {
            let event = DepotEvent::Said(Box::new(message));
            self.decide(Event::Depot { depot, event });
        }
    }

    /// The coordinator notices that a session is over.
    pub(super) fn depot_lost(&mut self, place: usize, session: u64) {
        let sessions = self.coordinator.depots.iter();
        let mut of_it = sessions.filter(|(_, one)| (one.place, one.number) == (place, session));
        let Some((&depot, _)) = of_it.next() else { return };
        self.coordinator.depots.remove(&depot);
        let why = "the connection broke".to_owned();
        let event = DepotEvent::Lost { why };
        self.decide(Event::Depot { depot, event });
        let cut = self.network.cut_until(self.now(), Node::Coordinator, Node::Depot(place));
        let delay = match cut {
            Some(_) => IDLE,
            None => self.network.delay(&mut self.dice),
        };
        self.calendar.after(delay, Happening::DepotCut { place, session });
    }

    /// A depot notices it.
    pub(super) fn depot_cut(&mut self, place: usize, session: u64) {
        let control = self.depots[place].control;
        if control == Control::Joined(session) || control == Control::Greeting(session) {
            self.depot_dials_again(place);
            self.session_ends(place, session);
        }
    }

    /// The coordinator hears soon that a depot has given up a session.
    pub(crate) fn session_ends(&mut self, place: usize, session: u64) {
        if self.network.reaches(self.now(), Node::Depot(place), Node::Coordinator) {
            let delay = self.network.delay(&mut self.dice);
            self.calendar.after(delay, Happening::DepotLost { place, session });
        }
    }

    /// The session of a depot, as it sees it.
    pub(crate) fn depot_session(&self, place: usize) -> Option<u64> {
        match self.depots[place].control {
            Control::Joined(session) | Control::Greeting(session) => Some(session),
            Control::Dialing => None,
        }
    }

    /// The coordinator is gone. `told`: whether its host says so.
    pub(crate) fn depots_lose_coordinator(&mut self, told: bool) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            let quick = self.within(Duration::from_millis(200));
            let noticed = if told { quick } else { IDLE - 10 * quick };
            self.calendar.after(noticed, Happening::DepotCut { place, session });
        }
    }

    /// The coordinator stands still for so long that its connections break.
    pub(crate) fn depots_hear_nothing_until(&mut self, thaw: Duration) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            self.calendar.after(IDLE, Happening::DepotCut { place, session });
            self.calendar.at(thaw, Happening::DepotLost { place, session });
        }
    }

    /// Connections of depots across a cut that lasts too long break.
    pub(crate) fn cut_depots_off(&mut self, cut: &Cut) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            let up = cut.stops(Node::Depot(place), Node::Coordinator);
            let down = cut.stops(Node::Coordinator, Node::Depot(place));
            let (heard, hears) = match (up, down) {
                (false, false) => continue,
                (true, true) => (IDLE, IDLE),
                (true, false) => (IDLE, 2 * IDLE),
                (false, true) => (2 * IDLE, IDLE),
            };
            self.calendar.after(heard, Happening::DepotLost { place, session });
            self.calendar.after(hears, Happening::DepotCut { place, session });
        }
    }

    /// The coordinator's machine has an order for a depot.
    pub(super) fn order_depot(&mut self, depot: DepotId, order: DepotOrder) {
        self.coverage.depot_ordered(&order);
        if let DepotOrder::Delete { key } = &order {
            let held = self.law.deletes(*key);
            self.require(held);
        }
        self.send_to_depot(depot, Ordered::Other(order));
    }

    /// The coordinator's machine wants a manifest kept.
    pub(super) fn order_commit(&mut self, to: &[DepotId], contents: Contents) {
        let held = self.law.commits(&contents).and_then(|()| self.is_durable(&contents));
        self.require(held);
        let contents = Rc::new(contents);
        for &depot in to {
            self.send_to_depot(depot, Ordered::Commit(Rc::clone(&contents)));
        }
    }

    fn send_to_depot(&mut self, depot: DepotId, order: Ordered) {
        let now = self.now();
        self.story.tell(now, || format!("coordinator to {depot}: {order:?}"));
        let delay = self.network.stream_delay(&mut self.dice);
        let Some(session) = self.coordinator.depots.get_mut(&depot) else {
            return;
        };
        let cut = self.network.cut_until(now, Node::Coordinator, Node::Depot(session.place));
        session.downstream = session.downstream.max(cut.unwrap_or(now) + delay);
        let (at, place, session) = (session.downstream, session.place, session.number);
        let order = Box::new(order);
        self.calendar.at(at, Happening::ToDepot { place, session, order });
    }

    pub(super) fn depot_told(&mut self, place: usize, session: u64, order: Ordered) {
        if self.depots[place].control == Control::Joined(session) && self.depots[place].up {
            self.depot_obeys(place, order);
        }
    }
}
