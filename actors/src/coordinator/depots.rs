//! What depots tell the coordinator, and what it orders them. Part of its actor.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sardana_net::environment::Environment;
use sardana_net::log::refused;
use sardana_net::wire::framed;
use sardana_net::wire::limits::CONTROL_FRAME_BYTES;
use sardana_protocol::admission::can_be;
use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, Part};
use sardana_protocol::limits::MAX_DEPOTS;
use sardana_protocol::membership::{Contents, DepotEvent, Event, Membership};
use sardana_protocol::messages::{DepotHello, DepotMessage, DepotOrder, Greeting};
use sardana_storage::manifest;
use tokio::sync::{oneshot, watch};

use super::actor::{Life, State};
use super::faults;
use super::operating::plain;
use super::outlet::Outlet;
use super::session::SessionId;
use crate::operator::limits::HOST_BYTES;

/// Bytes of a manifest in one order: several fit into a frame.
const PART_BYTES: usize = CONTROL_FRAME_BYTES / 4;

/// Most that is kept of what depots say before the first worker has said which job it is.
const EARLY: usize = 4 * MAX_DEPOTS;

/// What the actor keeps of depots.
#[derive(Debug, Default)]
pub(super) struct DepotSeats {
    seated: BTreeMap<DepotId, Seated>,
    /// What they have said before the job was known.
    early: Vec<(DepotId, DepotEvent)>,
    /// Whether they stay when the job is over: a process still reads from them.
    held: bool,
}

/// A depot that is connected.
#[derive(Debug)]
struct Seated {
    outlet: Outlet<DepotOrder>,
    /// What its host is called.
    host: String,
}

impl Seated {
    /// Why `host` is not taken for where this depot is now: its folder is there twice. A depot that was moved or started again is welcome;
    /// if started again, at once, since the system has ended the process before.
    fn is_also_on(&self, depot: DepotId, host: &str) -> Option<String> {
        let connection = &self.outlet.connection;
        (self.host != host && connection.close_reason().is_none()).then(|| {
            format!(
                "checkpoint actor {depot} is on host {} ({}) already, and expected on one only: the folder on host {host} is a copy of that \
                 one, or it was moved; give the one on {host} an empty folder (what it should have is fetched from the others), or end the \
                 one on {}",
                self.host,
                connection.remote_address().ip(),
                self.host
            )
        })
    }
}

impl State {
    /// Where the connected depots are reached.
    pub(super) fn depot_addresses(&self) -> Vec<DepotAddress> {
        let machine = self.job.as_ref().map(|(_, membership)| membership);
        machine.map(Membership::depot_addresses).unwrap_or_default()
    }

    /// Lets them stay when the job is over, or no longer.
    pub(super) fn hold_depots(&mut self, held: bool) {
        self.depots.held = held;
        if self.life == Life::Over {
            self.end_depots();
        }
    }

    /// The job is over.
    pub(super) fn end_depots(&self) {
        if !self.depots.held {
            for depot in self.depots.seated.values() {
                depot.outlet.say(DepotOrder::JobOver);
            }
        }
    }

    pub(super) fn depot_hello(
        &mut self,
        certified: u64,
        hello: DepotHello,
        outlet: Outlet<DepotOrder>,
        reply: oneshot::Sender<Greeting>,
    ) {
        let own = self.config.incarnation;
        if let Err(refusal) = can_be(own, hello.incarnation) {
            let reason = refusal.to_string();
            refused!(depot = %hello.depot, %reason, "a checkpoint actor was refused");
            // If it cannot be sent, the session is gone.
            let _ = reply.send(Greeting::Refused { reason });
            return;
        }
        if self.life == Life::Fenced || hello.incarnation > own {
            // If it cannot be sent, the session is gone.
            let _ = reply.send(Greeting::Fenced);
            if self.life != Life::Fenced {
                self.fenced(own, hello.incarnation);
            }
            return;
        }
        if self.life == Life::Over {
            let _ = reply.send(Greeting::Over);
            return;
        }
        if !self.depots.seated.contains_key(&hello.depot) && self.depots.seated.len() >= MAX_DEPOTS {
            let reason = format!("a job has at most {MAX_DEPOTS} checkpoint actors: stop another one first");
            let _ = reply.send(Greeting::Refused { reason });
            return;
        }
        let host = plain(&hello.host, HOST_BYTES);
        let elsewhere = self.depots.seated.get(&hello.depot);
        if let Some(reason) = elsewhere.and_then(|seated| seated.is_also_on(hello.depot, &host)) {
            refused!(depot = %hello.depot, %reason, "a checkpoint actor was refused");
            let _ = reply.send(Greeting::Refused { reason });
            return;
        }
        let greeting = Greeting::Joined {
            incarnation: own,
            report_from: self.next_report(),
        };
        if reply.send(greeting).is_err() {
            return;
        }
        self.certifying.has_depot(hello.depot, certified);
        if let Some(Seated { outlet: before, .. }) = self.depots.seated.insert(hello.depot, Seated { outlet, host }) {
            before
                .connection
                .close(0_u32.into(), b"its process has made a later connection");
            self.received += before.received();
        }
        let (host, address) = (plain(&hello.host, HOST_BYTES), hello.address);
        let arrived = DepotEvent::Arrived {
            host,
            certified,
            address,
        };
        self.depot_event(hello.depot, arrived);
    }

    pub(super) fn depot_said(&mut self, depot: DepotId, message: DepotMessage) {
        if !self.depots.seated.contains_key(&depot) {
            return;
        }
        if let DepotMessage::Renew { request } = &message {
            if let Some(renewed) = self.certifying.renewed_depot(depot, request) {
                self.order_depot(depot, renewed);
            }
            return;
        }
        self.depot_event(depot, DepotEvent::Said(Box::new(message)));
    }

    pub(super) fn depot_lost(&mut self, depot: DepotId, session: SessionId, why: String) {
        if self
            .depots
            .seated
            .get(&depot)
            .is_none_or(|seated| seated.outlet.session() != session)
        {
            return;
        }
        if let Some(Seated { outlet: before, .. }) = self.depots.seated.remove(&depot) {
            self.received += before.received();
        }
        self.depot_event(depot, DepotEvent::Lost { why });
    }

    /// Tells the machine; if there is none yet, once there is.
    fn depot_event(&mut self, depot: DepotId, event: DepotEvent) {
        if self.job.is_some() {
            return self.decide(Event::Depot { depot, event });
        }
        if matches!(event, DepotEvent::Arrived { .. } | DepotEvent::Lost { .. }) {
            self.depots.early.retain(|(one, _)| *one != depot);
        }
        if self.depots.early.len() < EARLY {
            self.depots.early.push((depot, event));
        } else if let Some(Seated { outlet, .. }) = self.depots.seated.remove(&depot) {
            // It tells everything again when it comes back.
            outlet.connection.close(0_u32.into(), b"the job has not begun");
        }
    }

    /// What depots have said before the job was known.
    pub(super) fn catch_up_on_depots(&mut self) {
        for (depot, event) in std::mem::take(&mut self.depots.early) {
            self.decide(Event::Depot { depot, event });
        }
    }

    pub(super) fn order_depot(&self, depot: DepotId, order: DepotOrder) {
        if let Some(seated) = self.depots.seated.get(&depot) {
            // A session that is over has said so.
            seated.outlet.say(order);
        }
    }

    /// Has a manifest made of these contents, and gives it to depots in its turn: it may be long, so it is made once, and aside.
    pub(super) fn commit(&self, to: &[DepotId], contents: Contents) {
        let Some((identity, _)) = &self.job else { return };
        let snapshot = contents.snapshot;
        faults::before_commit(snapshot);
        let manifest = Manifest {
            run: self.config.registrar.job(),
            snapshot,
            identity: identity.clone(),
            description: contents.description,
            pieces: contents.pieces,
            bytes: contents.bytes,
            replicas: contents.replicas,
            depots: contents.depots,
            placing: contents.placing,
        };
        let depots = to.iter().filter_map(|depot| self.depots.seated.get(depot));
        order_commit(&self.environment, depots.map(|seated| &seated.outlet), manifest);
    }
}

/// Has the order to commit a manifest made, once for all these depots and beside the thread that the actor is on; each gets it in its turn.
fn order_commit<'a>(environment: &Environment, to: impl Iterator<Item = &'a Outlet<DepotOrder>>, manifest: Manifest) {
    let (made, frames) = watch::channel(None);
    for outlet in to {
        // A session that is over has said so.
        outlet.say_frames(frames.clone());
    }
    let (environment, snapshot) = (environment.clone(), manifest.snapshot);
    tokio::spawn(async move {
        match environment.blocking(move || frames_of(&manifest)).await {
            Some(Ok(frames)) => drop(made.send_replace(Some(frames))),
            Some(Err(error)) => tracing::error!(%snapshot, %error, "a checkpoint cannot be described"),
            // The process ends.
            None => {}
        }
    });
}

/// The order to commit a manifest, which is the same for all depots, as frames.
fn frames_of(manifest: &Manifest) -> Result<Arc<[Bytes]>, String> {
    let bytes = manifest::encode(manifest).map_err(|error| error.to_string())?;
    let of = bytes.len() as u64;
    let starts = (0..).step_by(PART_BYTES);
    let frame = |(start, chunk): (u64, &[u8])| {
        let order = DepotOrder::Commit {
            snapshot: manifest.snapshot,
            depots: manifest.depots.clone(),
            placing: manifest.placing,
            part: Part { start, of },
            bytes: chunk.to_vec(),
        };
        framed(&order, CONTROL_FRAME_BYTES).map(Bytes::from)
    };
    let frames: Result<Arc<[Bytes]>, _> = starts.zip(bytes.chunks(PART_BYTES)).map(frame).collect();
    frames.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use quinn::{Connection, Endpoint};
    use sardana_net::control::{Item, Later};
    use sardana_net::quic::limits::{CONNECT_DEADLINE, HANDSHAKE_DEADLINE};
    use sardana_net::quic::{Door, Purpose, accept, bind_client, bind_server, connect};
    use sardana_net::trust::{Authority, Role};
    use sardana_protocol::samples;
    use tokio::task::{spawn_blocking, yield_now};

    use super::*;
    use crate::testing::raw::JOB;
    use crate::testing::{LOOPBACK, soon};

    /// A connection of a coordinator with a depot, and the endpoints that it lasts as long as.
    async fn connected() -> (Connection, [Endpoint; 2]) {
        let authority = Authority::new(JOB).unwrap();
        let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
        let listening = bind_server(&coordinator, Purpose::Control, LOOPBACK).unwrap();
        let address = listening.local_addr().unwrap();
        let depot = authority.issue(Role::Checkpoint, 1).unwrap();
        let dialling = bind_client(&depot, Purpose::Control, address).unwrap();
        let door = Door::new(listening.clone());
        let (dialled, accepted) =
            tokio::join!(connect(&dialling, address, coordinator.identity(), CONNECT_DEADLINE), async {
                accept(door.next().await.unwrap(), &coordinator, HANDSHAKE_DEADLINE).await
            });
        dialled.unwrap();
        (accepted.unwrap().0, [listening, dialling])
    }

    #[test]
    fn a_manifest_is_encoded_once_for_all_depots_and_beside_the_actor() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (connection, _endpoints) = connected().await;
            // From here on what is to be computed beside this thread has to wait.
            let (go, told) = std::sync::mpsc::channel::<()>();
            let busy = spawn_blocking(move || told.recv());
            let (outlets, mut said): (Vec<_>, Vec<_>) = (0..3).map(|_| Outlet::new(connection.clone(), 4)).unzip();
            order_commit(&Environment::Host, outlets.iter(), samples::manifest(JOB));
            let frames = |said: &mut tokio::sync::mpsc::Receiver<Item<DepotOrder>>| match said.try_recv() {
                Ok(Item::Frames(frames)) => frames,
                other => panic!("expected frames that are yet to be made, found {other:?}"),
            };
            let mut frames: Vec<Later<[Bytes]>> = said.iter_mut().map(frames).collect();
            for _ in 0..100 {
                yield_now().await;
            }
            assert!(
                frames.iter().all(|frames| frames.borrow().is_none()),
                "made on the actor's thread"
            );
            go.send(()).unwrap();
            busy.await.unwrap().unwrap();
            let mut made = Vec::new();
            for frames in &mut frames {
                let frames = soon(frames.wait_for(Option::is_some)).await;
                made.push(frames.unwrap().clone().unwrap());
            }
            assert!(
                !made[0].is_empty() && made.iter().all(|one| Arc::ptr_eq(one, &made[0])),
                "made once for each"
            );
        });
    }
}
