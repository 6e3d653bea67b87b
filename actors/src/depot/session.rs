//! The depot's control connection: dials the coordinator wherever it may be, and carries messages until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use sardana_net::control::carry;
use sardana_net::dialler::{Dialler, NotWelcomed, Welcomed, joined};
use sardana_net::quic::close;
use sardana_protocol::messages::{DepotHello, DepotMessage, DepotOrder, Hello};
use sardana_protocol::words::{Incarnation, Step};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::actor::Message;
use super::keeper::Keeper;
use super::limits::{RECONNECT_FIRST, RECONNECT_MOST, REFUSED_EVERY};

/// What connections are made from.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) dialler: Dialler,
    pub(super) host: String,
    /// Where workers and other depots reach this one.
    pub(super) address: SocketAddr,
    pub(super) keeper: Arc<Keeper>,
}

impl Link {
    /// Connects, again and again, until the job is over or the actor ends.
    pub(super) async fn keep(self, depot: ActorRef<Message>) {
        let mut pause = RECONNECT_FIRST;
        loop {
            let (address, mut least) = (self.dialler.search().here(), Duration::ZERO);
            let why = match self.dialler.dial(|| Hello::Depot(self.hello()), joined).await {
                Ok(welcomed) => self.serve(welcomed, &depot, &mut pause).await,
                // The actor is gone only if it ends.
                Err(NotWelcomed::Over) => return drop(depot.cast(Message::JobOver)),
                Err(error) => {
                    if error.is_up_to_people() {
                        least = REFUSED_EVERY;
                    }
                    error.to_string()
                }
            };
            if depot.get_status() >= ractor::ActorStatus::Stopping {
                return;
            }
            self.keeper.speak_to(None);
            tracing::warn!(target: "sardana::event::control_lost", coordinator = %address, %why, "the coordinator is looked for");
            sleep(pause.max(least)).await;
            pause = longer(pause);
        }
    }

    /// One connection until its end, and why it ended. If its coordinator was served, the next pause is short again.
    async fn serve(
        &self,
        welcomed: Welcomed<(Incarnation, Step)>,
        depot: &ActorRef<Message>,
        pause: &mut Duration,
    ) -> String {
        let Welcomed {
            endpoint,
            connection,
            streams,
            greeting: (incarnation, _),
        } = welcomed;
        let leave = || close(&endpoint, "the checkpoint actor leaves this connection");
        if let Err(why) = self.keeper.serve(incarnation).await {
            self.dialler.search().look_elsewhere();
            leave().await;
            return why;
        }
        *pause = RECONNECT_FIRST;
        let (queue, outgoing) = mpsc::unbounded_channel::<DepotMessage>();
        self.keeper.speak_to(Some(queue));
        tracing::info!(target: "sardana::event::joined", depot = %self.keeper.own, coordinator = %connection.remote_address());
        let keeper = Arc::clone(&self.keeper);
        let telling = tokio::spawn(async move { keeper.tell_until_told().await });
        let ordered = |order: DepotOrder, _| depot.cast(Message::Ordered { incarnation, order }).is_ok();
        let why = carry(&connection, streams, outgoing, ordered, |_| {}).await;
        telling.abort();
        leave().await;
        why
    }

    fn hello(&self) -> DepotHello {
        DepotHello {
            job: self.dialler.rotating().job(),
            depot: self.keeper.own,
            host: self.host.clone(),
            address: self.address,
            incarnation: self.keeper.highest(),
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(RECONNECT_MOST)
}
