//! Connections between depots and the coordinator that break, and which end notices when.

use std::time::Duration;

use sardana_protocol::membership::{DepotEvent, Event};

use super::World;
use super::depots::AtDepot;
use crate::simulation::network::{Cut, IDLE, Node};

impl World {
    /// The coordinator notices that a session is over.
    pub(super) fn depot_lost(&mut self, place: usize, session: u64) {
        let sessions = self.coordinator.depots.iter();
        let mut of_it = sessions.filter(|(_, one)| (one.place, one.number) == (place, session));
        let Some((&depot, _)) = of_it.next() else { return };
        self.coordinator.depots.remove(&depot);
        let why = "the connection broke".to_owned();
        let event = DepotEvent::Lost { why };
        self.decide(Event::Depot { depot, event });
        let delay = self.is_noticed_after(Node::Coordinator, Node::Depot(place));
        self.depot_after(delay, place, AtDepot::Cut { session });
    }

    /// A depot notices that its session is over.
    pub(super) fn depot_cut(&mut self, place: usize, session: u64) {
        if self.depot_session(place) == Some(session) {
            self.depot_dials_again(place);
            self.session_ends(place, session);
        }
    }

    /// A depot closes its connection, and comes anew.
    pub(crate) fn depot_comes_anew(&mut self, place: usize) {
        if let Some(session) = self.depot_session(place) {
            self.depot_cut(place, session);
        }
    }

    /// The coordinator hears soon that a depot has given up a session.
    pub(crate) fn session_ends(&mut self, place: usize, session: u64) {
        if self.reaches(Node::Depot(place), Node::Coordinator) {
            let delay = self.network.delay(&mut self.dice);
            self.depot_after(delay, place, AtDepot::Lost { session });
        }
    }

    /// The session of a depot, as it sees it.
    pub(crate) fn depot_session(&self, place: usize) -> Option<u64> {
        self.depots[place].control.session()
    }

    /// The coordinator is gone. `told`: whether its host says so.
    pub(crate) fn depots_lose_coordinator(&mut self, told: bool) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            let quick = self.within(Duration::from_millis(200));
            let noticed = if told { quick } else { IDLE - 10 * quick };
            self.depot_after(noticed, place, AtDepot::Cut { session });
        }
    }

    /// The coordinator stands still for so long that its connections break.
    pub(crate) fn depots_hear_nothing_until(&mut self, thaw: Duration) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            self.depot_after(IDLE, place, AtDepot::Cut { session });
            self.depot_at(thaw, place, AtDepot::Lost { session });
        }
    }

    /// Connections of depots across a cut that lasts too long break.
    pub(crate) fn cut_depots_off(&mut self, cut: &Cut) {
        for place in 0..self.depots.len() {
            let Some(session) = self.depot_session(place) else { continue };
            if let Some((coordinator, depot)) = cut.gives_up(Node::Coordinator, Node::Depot(place)) {
                self.depot_after(coordinator, place, AtDepot::Lost { session });
                self.depot_after(depot, place, AtDepot::Cut { session });
            }
        }
    }
}
