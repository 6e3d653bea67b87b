//! One generation's ring, from its `Form` or `Prepare` to its end: makes the links, then sums step after step.

use ractor::ActorRef;
use sardana_collectives::ring::{self, CompletedSum, RingConfig, RingError, RingInput, SummationConfig};
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::member::Member;
use sardana_protocol::messages::Form;
use sardana_protocol::words::{Step, WorkerId};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::actor::Message;
use super::driver::StepDriver;
use crate::fault::{self, Point};
use crate::panicked::or_tell;
use crate::peers::{LinkingError, Peers};

/// When a ring begins to sum.
pub(super) enum Start {
    /// As soon as its links are made, at the step of its order.
    AtOnce,
    /// Once a trailer switches to it, at the step that comes here. Never, if this ends without one.
    AtSwitch(oneshot::Receiver<Step>),
}

/// What a ring is made from.
pub(super) struct Ring {
    pub(super) form: Form,
    pub(super) order: Order,
    pub(super) compression: Compression,
    pub(super) summation: Option<SummationConfig>,
    /// K.
    pub(super) shards: u32,
    pub(super) start: Start,
    pub(super) inbox: mpsc::UnboundedReceiver<RingInput>,
    pub(super) driver: Arc<StepDriver>,
    pub(super) peers: Arc<Peers>,
    pub(super) worker: ActorRef<Message>,
}

impl Ring {
    /// Runs until a link breaks or the machine aborts it, by dropping this future.
    pub(super) async fn run(self) {
        let generation = self.form.generation;
        let worker = self.worker.clone();
        let panicked = {
            let worker = worker.clone();
            move || {
                let reason =
                    format!("generation {generation}: its ring panicked; its message is on standard error: report it");
                let _ = worker.cast(Message::Failed { reason });
            }
        };
        let messages = match or_tell(self.sum(), panicked).await {
            Ok(()) => return,
            Err(Broken::By(peers)) => peers
                .into_iter()
                .map(|peer| Message::LinkBroken { generation, peer })
                .collect(),
            Err(Broken::Senseless(reason)) => vec![Message::Failed {
                reason: format!("generation {generation}: {reason}"),
            }],
        };
        for message in messages {
            // The worker is gone only when the process ends.
            let _ = worker.cast(message);
        }
    }

    async fn sum(self) -> Result<(), Broken> {
        let Self {
            form,
            order,
            compression,
            summation,
            shards,
            start,
            inbox,
            driver,
            peers,
            worker,
        } = self;
        let (made, at) = match start {
            Start::AtOnce => {
                fault::reached(Point::Form, form.step);
                (Point::Linked, form.step)
            }
            Start::AtSwitch(_) => (Point::Prepared, driver.read(Member::step)),
        };
        let links = peers.link(&form).await.map_err(|errors| {
            for error in &errors {
                tracing::info!(generation = %form.generation, rank = %form.rank, %error, "a link could not be made");
            }
            Broken::By(errors.iter().map(LinkingError::peer).collect())
        })?;
        fault::reached(made, at);
        let ready = Message::LinksReady {
            generation: form.generation,
        };
        if worker.cast(ready).is_err() {
            return Ok(());
        }
        let step = match start {
            Start::AtOnce => form.step,
            Start::AtSwitch(begin) => {
                // What was prepared and does not come.
                let Ok(step) = begin.await else { return Ok(()) };
                fault::seated(form.rank);
                fault::reached(Point::Switched, step);
                step
            }
        };
        // Alone there is no peer to pass a sum to: the step driver adds up by itself.
        if form.world_size == 1 {
            return Ok(());
        }
        let config = RingConfig {
            generation: form.generation,
            rank: form.rank,
            world_size: form.world_size,
            order,
            compression,
            summation,
            shards,
            step,
            first: form.first.clone(),
            steady: form.steady.clone(),
            layout: Arc::clone(driver.layout()),
            probe: fault::COMPILED_IN.then(|| Arc::new(fault::RingFaults) as _),
        };
        let summed = {
            let driver = Arc::clone(&driver);
            move |sum: CompletedSum| {
                fault::reached(Point::BeforeApply, sum.step);
                driver.summed(sum);
            }
        };
        let waited_for = links.share_memory();
        let ring = driver.helps(ring::run(config, links, inbox, summed).in_current_span(), waited_for);
        ring.await.map_err(|error| broken(&form, &error))
    }
}

enum Broken {
    /// These neighbours are gone, or cannot be reached.
    By(Vec<WorkerId>),
    /// The orders make no sense, or a gradient did not come from this worker's device; no neighbour is to blame.
    Senseless(String),
}

fn broken(form: &Form, error: &RingError) -> Broken {
    match error {
        RingError::Link { peer, .. } => {
            tracing::info!(generation = %form.generation, rank = %form.rank, %error, "a link broke");
            form.peer(*peer)
                .map_or_else(|| Broken::Senseless(error.to_string()), |peer| Broken::By(vec![peer.worker]))
        }
        RingError::LinkMissing { .. }
        | RingError::Part { .. }
        | RingError::Exact(_)
        | RingError::Lowering { .. }
        | RingError::Begin { .. }
        | RingError::BufferLength { .. }
        | RingError::Piece { .. } => Broken::Senseless(error.to_string()),
    }
}
