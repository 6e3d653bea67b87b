//! The checkpoint actor that an agent runs beside its children.

use std::net::SocketAddr;

use ractor::ActorRef;
use sardana_net::trust::{Credentials, RotatingCredentials};

use super::AgentEvent;
use super::actor::{Message, State};
use super::away::Mode;
use super::limits::DEPOT_AGAIN;
use crate::depot::{self, Depot, DepotConfig, DepotStartError};

/// How a checkpoint actor's start ended.
pub(super) type Begun = Result<Depot, DepotStartError>;

impl State {
    /// Asks for the certificate of the checkpoint actor, if there is to be one.
    pub(super) fn want_depot(&mut self) {
        if self.config.checkpoint_dir.is_none() || self.mode >= Mode::Ending {
            return;
        }
        match self.certificates.ask_for_depot() {
            // It is said again on the next connection if there is none.
            Ok(message) => drop(self.reporting.say(message)),
            Err(reason) => self.tell(AgentEvent::NoDepot { reason }),
        }
    }

    /// Its certificate came.
    pub(super) fn depot_certified(&mut self, myself: &ActorRef<Message>, certificate: Vec<u8>) {
        match self.certificates.depot_certified(certificate) {
            Some(Ok(credentials)) => self.begin_depot(myself, credentials),
            Some(Err(reason)) => self.tell(AgentEvent::NoDepot { reason }),
            None => {}
        }
    }

    fn begin_depot(&self, myself: &ActorRef<Message>, credentials: Credentials) {
        let Some(folder) = self.config.checkpoint_dir.clone() else {
            return;
        };
        let config = DepotConfig {
            folder,
            credentials: RotatingCredentials::from(credentials),
            coordinator: self.config.coordinator.clone(),
            listen: SocketAddr::new(self.config.listen.ip(), 0),
            advertise: self.config.advertise,
            host: self.config.host.clone(),
        };
        let myself = myself.clone();
        tokio::spawn(async move {
            let begun = depot::start(config).await;
            // The agent is gone only when its job is over: the checkpoint actor ends with the message.
            let _ = myself.cast(Message::DepotBegun(Box::new(begun)));
        });
    }

    /// How its start went. If it could not start it is tried again: a disk may be free, or there, some day.
    pub(super) fn depot_begun(&mut self, myself: &ActorRef<Message>, begun: Begun) {
        match begun {
            Ok(depot) => {
                self.no_depot = None;
                self.depot = Some(depot);
            }
            Err(error) => {
                let reason = error.to_string();
                if self.no_depot.as_ref() != Some(&reason) {
                    self.no_depot = Some(reason.clone());
                    self.tell(AgentEvent::NoDepot { reason });
                }
                drop(myself.send_after(DEPOT_AGAIN, || Message::DepotAgain));
            }
        }
    }
}
