//! Depots and their connections with the coordinator: in order, and once, or the connection breaks.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use sardana_protocol::checkpoint::{Condition, DepotId, ManifestKey};
use sardana_protocol::limits::{GREETING_DEADLINE, RETRY_EVERY};
use sardana_protocol::membership::{Contents, DepotEvent, Event};
use sardana_protocol::messages::{DepotMessage, DepotOrder};
use sardana_protocol::words::Incarnation;

use super::World;
use super::process::Control;
use super::stores::{Depot, Kept};
use crate::simulation::calendar::{Happening, Party};
use crate::simulation::network::Node;

/// So many checkpoints are told of in one message.
const HEADS: usize = 2;

/// The connection of a depot, as the coordinator sees it.
pub(crate) struct DepotSession {
    pub(super) place: usize,
    pub(super) number: u64,
    /// When the last message over it arrives.
    downstream: Duration,
}

/// What happens at a depot, or on its connection.
#[derive(Debug, Clone)]
pub(crate) enum AtDepot {
    /// It looks for the coordinator.
    Dial,
    /// Its hello reaches the coordinator.
    Hello { session: u64 },
    /// The coordinator's answer to it.
    Greeting { session: u64, life: Incarnation },
    /// No greeting has come.
    Unanswered { session: u64 },
    /// The coordinator notices that a session is over.
    Lost { session: u64 },
    /// The depot notices that a session is over.
    Cut { session: u64 },
    /// An order reaches it.
    Told { session: u64, order: Box<Ordered> },
    /// Its message reaches the coordinator.
    Heard { session: u64, message: Box<DepotMessage> },
    /// It is not done yet with what it fetches, unless it has crashed since.
    Fetching {
        boot: u64,
        until: Duration,
        order: Box<Ordered>,
    },
    /// What it was ordered is durable, if it has not crashed since.
    Done { boot: u64, order: Box<Ordered> },
}

impl AtDepot {
    /// The party whose process must run for it to happen.
    pub(crate) fn party(&self) -> Party {
        let of_coordinator = matches!(self, Self::Hello { .. } | Self::Lost { .. } | Self::Heard { .. });
        if of_coordinator { Party::Coordinator } else { Party::World }
    }
}

/// What a depot is told.
#[derive(Debug, Clone)]
pub(crate) enum Ordered {
    /// To keep a manifest of these contents.
    Commit(Rc<Contents>),
    Other(DepotOrder),
}

impl World {
    /// Something happens at a depot at this time.
    pub(super) fn depot_at(&mut self, at: Duration, place: usize, what: AtDepot) {
        self.calendar.at(at, Happening::Depot { place, what });
    }

    /// The same, after some time.
    pub(crate) fn depot_after(&mut self, delay: Duration, place: usize, what: AtDepot) {
        self.calendar.after(delay, Happening::Depot { place, what });
    }

    pub(super) fn at_depot(&mut self, place: usize, what: AtDepot) {
        match what {
            AtDepot::Dial => self.depot_dials(place),
            AtDepot::Hello { session } => self.depot_hello(place, session),
            AtDepot::Greeting { session, life } => self.depot_greeted(place, session, life),
            AtDepot::Unanswered { session } => self.depot_unanswered(place, session),
            AtDepot::Lost { session } => self.depot_lost(place, session),
            AtDepot::Cut { session } => self.depot_cut(place, session),
            AtDepot::Told { session, order } => self.depot_told(place, session, *order),
            AtDepot::Heard { session, message } => self.depot_heard(place, session, *message),
            AtDepot::Fetching { boot, until, order } => self.depot_fetching(place, boot, until, order),
            AtDepot::Done { boot, order } => self.depot_done(place, boot, *order),
        }
    }

    pub(super) fn set_up_depots(&mut self) {
        for (place, &host) in self.swarm.depots.clone().iter().enumerate() {
            let id = DepotId::new(self.dice.bits());
            self.depots.push(Depot::new(id, host));
            let delay = self.within(Duration::from_secs(3));
            self.depot_after(delay, place, AtDepot::Dial);
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
            self.depot_after(Duration::ZERO, place, AtDepot::Dial);
        }
    }

    pub(super) fn depot_dials(&mut self, place: usize) {
        let (up, control) = (self.depots[place].up, self.depots[place].control);
        if !up || control != Control::Dialing || self.done.is_some() {
            return;
        }
        if !self.reaches(Node::Depot(place), Node::Coordinator) || !self.coordinator_listens() {
            let pause = RETRY_EVERY + self.within(RETRY_EVERY);
            return self.depot_after(pause, place, AtDepot::Dial);
        }
        self.serial += 1;
        let session = self.serial;
        let delay = self.network.stream_delay(&mut self.dice);
        let depot = &mut self.depots[place];
        depot.control = Control::Greeting(session);
        self.depot_after(delay, place, AtDepot::Hello { session });
        self.depot_after(GREETING_DEADLINE, place, AtDepot::Unanswered { session });
    }

    pub(super) fn depot_unanswered(&mut self, place: usize, session: u64) {
        if self.depots[place].control == Control::Greeting(session) {
            self.depot_dials_again(place);
        }
    }

    pub(super) fn depot_dials_again(&mut self, place: usize) {
        let depot = &mut self.depots[place];
        depot.control = Control::Dialing;
        depot.admits.clear();
        depot.peers.clear();
        self.depot_after(RETRY_EVERY, place, AtDepot::Dial);
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
        let opened = DepotSession {
            place,
            number: session,
            downstream: at,
        };
        self.coordinator.depots.insert(depot, opened);
        self.depot_at(at, place, AtDepot::Greeting { session, life });
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
            return self.depot_after(RETRY_EVERY, place, AtDepot::Lost { session });
        }
        depot.control = Control::Joined(session);
        depot.upstream = now;
        depot.served = depot.served.max(life);
        self.tell_heads(place);
    }

    /// A depot tells all that it keeps.
    pub(crate) fn tell_heads(&mut self, place: usize) {
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
            let part = DepotMessage::Holds {
                heads,
                is_last: false,
                unreadable: Vec::new(),
            };
            self.depot_says(place, part);
        }
        let last = DepotMessage::Holds {
            heads,
            is_last: true,
            unreadable: self.depots[place].unreadable.iter().copied().collect(),
        };
        self.depot_says(place, last);
    }

    /// Tells all again if something has changed in what a depot has of its checkpoints.
    pub(super) fn tell_conditions(&mut self, place: usize) {
        let depot = &self.depots[place];
        let changed = |kept: &Kept| kept.head.condition != depot.condition(&kept.contents);
        if depot.manifests.values().any(changed) {
            self.tell_heads(place);
        }
    }

    pub(crate) fn depot_says(&mut self, place: usize, message: DepotMessage) {
        let message = match &mut self.liars {
            Some(liars) => liars.depot_says(self.depots[place].id, message, &mut self.dice),
            None => message,
        };
        self.coverage.depot_said(&message);
        let now = self.now();
        let Control::Joined(session) = self.depots[place].control else {
            return;
        };
        let cut = self.cut_until(Node::Depot(place), Node::Coordinator);
        let delay = self.network.stream_delay(&mut self.dice);
        let depot = &mut self.depots[place];
        depot.upstream = depot.upstream.max(cut.unwrap_or(now) + delay);
        let (at, message) = (depot.upstream, Box::new(message));
        self.depot_at(at, place, AtDepot::Heard { session, message });
    }

    pub(super) fn depot_heard(&mut self, place: usize, session: u64, message: DepotMessage) {
        let sessions = self.coordinator.depots.iter();
        let mut of_it = sessions.filter(|(_, one)| (one.place, one.number) == (place, session));
        if let Some((&depot, _)) = of_it.next() {
            let event = DepotEvent::Said(Box::new(message));
            self.decide(Event::Depot { depot, event });
        }
    }

    /// The coordinator's machine has an order for a depot.
    pub(super) fn order_depot(&mut self, depot: DepotId, order: DepotOrder) {
        self.coverage.depot_ordered(&order);
        if let Some(liars) = &mut self.liars {
            liars.hear(&order);
        }
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
        self.depot_at(at, place, AtDepot::Told { session, order });
    }

    pub(super) fn depot_told(&mut self, place: usize, session: u64, order: Ordered) {
        if self.depots[place].control == Control::Joined(session) && self.depots[place].up {
            self.depot_obeys(place, order);
        }
    }
}
