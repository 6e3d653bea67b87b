//! The depot's actor: hands the coordinator's orders to what does them.

use std::sync::Arc;
use std::time::SystemTime;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_net::trust::Renewal;
use sardana_protocol::messages::{DepotMessage, DepotOrder};
use sardana_protocol::words::Incarnation;
use tokio::task::AbortHandle;
use tracing::{Instrument, Span};

use super::fetch::telling;
use super::keeper::{Keeper, Whole};
use super::limits::CERTIFICATE_EVERY;
use super::parts::Parts;
use super::session::Link;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By the coordinator of this incarnation.
    Ordered { incarnation: Incarnation, order: DepotOrder },
    /// By the clock: look after the certificate.
    LookAfterCertificate,
    /// By the coordinator's greeting: there is nothing to do.
    JobOver,
}

pub(super) struct Shell;

pub(super) struct State {
    /// What is logged says by it of which job and host it is.
    span: Span,
    keeper: Arc<Keeper>,
    renewal: Renewal,
    parts: Parts,
    /// End with the actor.
    tasks: [AbortHandle; 4],
}

impl Drop for State {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Actor for Shell {
    type Msg = Message;
    type State = State;
    type Arguments = Link;

    async fn pre_start(&self, myself: ActorRef<Message>, link: Link) -> Result<State, ActorProcessingErr> {
        let keeper = Arc::clone(&link.keeper);
        let renewal = Renewal::new(link.dialler.rotating().clone());
        // The interval ends with the actor.
        drop(myself.send_interval(CERTIFICATE_EVERY, || Message::LookAfterCertificate));
        let span = tracing::error_span!("depot", job = %link.dialler.rotating().job(), host = %link.host);
        let connecting = tokio::spawn(link.keep(myself).instrument(span.clone())).abort_handle();
        let collecting = tokio::spawn(Arc::clone(&keeper).collect_waste().instrument(span.clone())).abort_handle();
        let telling = tokio::spawn(Arc::clone(&keeper).tell_of_damage().instrument(span.clone())).abort_handle();
        let opening = tokio::spawn(Arc::clone(&keeper).keep_open().instrument(span.clone())).abort_handle();
        Ok(State {
            span,
            keeper,
            renewal,
            parts: Parts::default(),
            tasks: [connecting, collecting, telling, opening],
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _in = state.span.clone().entered();
        match message {
            Message::Ordered { incarnation, order } => state.ordered(&myself, incarnation, order),
            Message::LookAfterCertificate => {
                if state.keeper.is_heard()
                    && let Some(request) = state.renewal.request_due(SystemTime::now())
                {
                    state.keeper.say(DepotMessage::Renew { request });
                }
            }
            Message::JobOver => myself.stop(None),
        }
        Ok(())
    }
}

impl State {
    fn ordered(&mut self, myself: &ActorRef<Message>, incarnation: Incarnation, order: DepotOrder) {
        let keeper = Arc::clone(&self.keeper);
        match order {
            DepotOrder::Serve { workers, depots } => keeper.server.serve_only(workers, depots),
            DepotOrder::Commit {
                snapshot,
                depots,
                placing,
                part,
                bytes,
            } => {
                let bytes = match self.parts.add(snapshot, part, &bytes) {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => return,
                    Err(reason) => return keeper.refuse(snapshot, placing, reason),
                };
                let whole = Whole {
                    snapshot,
                    depots,
                    placing,
                    bytes,
                };
                tokio::spawn(async move {
                    let committing = keeper.commit(incarnation, whole);
                    let tell = || {
                        keeper.say(DepotMessage::Fetching { snapshot, placing });
                    };
                    if let Err(reason) = telling(tell, committing).await {
                        keeper.refuse(snapshot, placing, reason);
                    }
                });
            }
            DepotOrder::Release { snapshot } => keeper.release(snapshot),
            DepotOrder::Delete { key } => {
                tokio::spawn(async move { keeper.delete(incarnation, key).await });
            }
            DepotOrder::Fetch {
                snapshot,
                key,
                depots,
                placing,
            } => {
                tokio::spawn(async move {
                    let fetching = keeper.fetch(incarnation, snapshot, key, &depots, placing);
                    let tell = || {
                        keeper.say(DepotMessage::Fetching { snapshot, placing });
                    };
                    if let Err(reason) = telling(tell, fetching).await {
                        keeper.refuse(snapshot, placing, reason);
                    }
                    keeper.tell_of_healing().await;
                });
            }
            DepotOrder::Renewed { certificate } => match self.renewal.renewed(certificate, SystemTime::now()) {
                Ok(()) => tracing::debug!("the checkpoint actor's certificate is renewed"),
                Err(error) => {
                    tracing::warn!(%error, "the checkpoint actor's new certificate cannot be used; it is asked for again")
                }
            },
            DepotOrder::JobOver => {
                tracing::info!(target: "sardana::event::over", depot = %keeper.own, "the job is over: the checkpoint actor ends");
                myself.stop(None);
            }
        }
    }
}
