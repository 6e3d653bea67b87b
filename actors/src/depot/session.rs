//! The depot's control connection: dials the coordinator wherever it may be, and carries messages until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use sardana_net::control::{Next, Unmade, carry};
use sardana_net::enrol::{RenewError, renew_run_out};
use sardana_net::ground::Ground;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client_on, close, connect};
use sardana_net::trust::{PeerIdentity, Wallet};
use sardana_net::whereabouts::Search;
use sardana_net::wire::exchange;
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_protocol::messages::{DepotHello, DepotMessage, DepotOrder, Greeting, Hello};
use sardana_protocol::words::Incarnation;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::actor::Message;
use super::keeper::Keeper;
use super::limits::{RECONNECT_FIRST, RECONNECT_MOST, REFUSED_EVERY};

/// What connections are made from.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ground: Ground,
    pub(super) wallet: Wallet,
    pub(super) coordinator: Search,
    pub(super) host: String,
    /// Where workers and other depots reach this one.
    pub(super) address: SocketAddr,
    pub(super) keeper: Arc<Keeper>,
}

/// Why there is no connection, or none any more.
#[derive(Debug)]
enum Ended {
    /// Another try may fare better.
    Lost(String),
    /// Another try may fare better once the certificate is renewed.
    RunOut(String),
    /// Another try would end in the same way until people have done something.
    Hopeless(String),
    /// The job is over.
    Over,
    /// The depot ends.
    Here,
}

impl From<Unmade> for Ended {
    fn from(unmade: Unmade) -> Self {
        match unmade {
            Unmade::RunOut(why) => Self::RunOut(why),
            Unmade::Otherwise(why) => Self::Lost(why),
        }
    }
}

impl Link {
    /// Connects, again and again, until the job is over or the actor ends.
    pub(super) async fn keep(self, depot: ActorRef<Message>) {
        let mut pause = RECONNECT_FIRST;
        loop {
            let address = self.coordinator.here();
            let mut joined = false;
            let mut ended = self.connect(address, &depot, &mut joined).await;
            if let Ended::RunOut(_) = &ended {
                ended = match renew_run_out(&self.ground, &self.wallet, address).await {
                    Ok(()) => self.connect(address, &depot, &mut joined).await,
                    Err(error @ RenewError::Again { .. }) => Ended::Lost(error.to_string()),
                    Err(error @ RenewError::Refused { .. }) => Ended::Hopeless(error.to_string()),
                };
            }
            let mut least = Duration::ZERO;
            let why = match ended {
                Ended::Lost(why) | Ended::RunOut(why) => why,
                Ended::Hopeless(why) => {
                    least = REFUSED_EVERY;
                    why
                }
                // The actor is gone only if it ends.
                Ended::Over => return drop(depot.cast(Message::JobOver)),
                Ended::Here => return,
            };
            self.keeper.speak_to(None);
            if joined {
                pause = RECONNECT_FIRST;
            } else {
                self.coordinator.look_elsewhere();
            }
            tracing::warn!(target: "sardana::event::control_lost", coordinator = %address, %why, "the coordinator is looked for");
            sleep(pause.max(least)).await;
            pause = longer(pause);
        }
    }

    /// One connection from its beginning to its end.
    async fn connect(&self, address: SocketAddr, depot: &ActorRef<Message>, joined: &mut bool) -> Ended {
        let endpoint = match bind_client_on(&self.ground, &self.wallet, Purpose::Control, address) {
            Ok(endpoint) => endpoint,
            Err(error) => return Ended::Lost(error.to_string()),
        };
        let expected = PeerIdentity::coordinator(self.wallet.job());
        let ended = match connect(&endpoint, address, expected, CONNECT_DEADLINE).await {
            Ok(connection) => self.talk(&connection, depot, joined).await,
            Err(error) => Unmade::from(error).into(),
        };
        close(&endpoint, "the checkpoint actor leaves this connection").await;
        ended
    }

    async fn talk(&self, connection: &quinn::Connection, depot: &ActorRef<Message>, joined: &mut bool) -> Ended {
        let (mut send, mut receive) = match connection.open_bi().await {
            Ok(streams) => streams,
            Err(error) => return Unmade::from(error).into(),
        };
        let hello = Hello::Depot(self.hello());
        let streams = (&mut send, &mut receive);
        let greeting = exchange::<_, Greeting>(connection, streams, (&hello, HELLO_FRAME_BYTES), HELLO_FRAME_BYTES);
        let greeting = match timeout(CONNECT_DEADLINE, greeting).await {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => return Unmade::from(error).into(),
            Err(_) => return Ended::Lost(format!("it did not answer a hello within {CONNECT_DEADLINE:?}")),
        };
        let incarnation = match greeted(greeting) {
            Ok(incarnation) => incarnation,
            Err(ended) => return ended,
        };
        if let Err(why) = self.keeper.serve(incarnation).await {
            return Ended::Lost(why);
        }
        *joined = true;
        let (queue, outgoing) = mpsc::unbounded_channel::<DepotMessage>();
        self.keeper.speak_to(Some(queue));
        tracing::info!(target: "sardana::event::joined", depot = %self.keeper.own, coordinator = %connection.remote_address());
        let keeper = Arc::clone(&self.keeper);
        tokio::spawn(async move { keeper.tell_all().await });
        let ordered = |order: DepotOrder, _| match depot.cast(Message::Ordered { incarnation, order }) {
            Ok(()) => Next::Message,
            Err(_) => Next::Stop,
        };
        let why = carry(connection, (send, receive), outgoing, ordered, |_| {}).await;
        if depot.get_status() >= ractor::ActorStatus::Stopping {
            Ended::Here
        } else {
            Ended::Lost(why)
        }
    }

    fn hello(&self) -> DepotHello {
        DepotHello {
            job: self.wallet.job(),
            depot: self.keeper.own,
            host: self.host.clone(),
            address: self.address,
            incarnation: self.keeper.highest(),
        }
    }
}

/// The coordinator's incarnation, if it takes this depot in.
fn greeted(greeting: Option<Greeting>) -> Result<Incarnation, Ended> {
    let lost = |why: &str| Err(Ended::Lost(why.to_owned()));
    match greeting {
        Some(Greeting::Joined { incarnation, .. }) => Ok(incarnation),
        Some(Greeting::Over) => Err(Ended::Over),
        Some(Greeting::Refused { reason }) => Err(Ended::Lost(reason)),
        Some(Greeting::Fenced | Greeting::Leads { .. }) => lost("another coordinator leads the job"),
        Some(Greeting::Welcome) => lost("it took this checkpoint actor for something else"),
        None => lost("it closed without an answer"),
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(RECONNECT_MOST)
}
