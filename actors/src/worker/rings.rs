//! The rings of a worker: the present one, the one that is prepared to follow it, and the one before, which may still pass its last
//! sum on. Takes no decision.

use std::sync::Arc;

use ractor::ActorRef;
use sardana_collectives::ring::{RingInput, SummationConfig, SummationNote};
use sardana_collectives::summation::Summation;
use sardana_protocol::job::{Compression, JobSpec, Order};
use sardana_protocol::messages::Form;
use sardana_protocol::words::{Generation, Step};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tracing::Instrument;

use super::actor::Message;
use super::driver::StepDriver;
use super::ring::{Ring, Start};
use crate::peers::{PeerGroup, Peers};

/// What the rings are made from, and those that there are.
pub(super) struct Rings {
    order: Order,
    compression: Compression,
    summation: Option<SummationConfig>,
    shards: u32,
    driver: Arc<StepDriver>,
    peers: Arc<Peers>,
    present: Option<JoinHandle<()>>,
    past: Option<AbortHandle>,
    prepared: Option<Prepared>,
}

struct Prepared {
    generation: Generation,
    begin: oneshot::Sender<Step>,
    task: JoinHandle<()>,
}

impl Rings {
    pub(super) fn new(job: &JobSpec, driver: Arc<StepDriver>, peers: Arc<Peers>) -> Self {
        Self {
            order: job.order,
            compression: job.compression,
            summation: None,
            shards: job.shards,
            driver,
            peers,
            present: None,
            past: None,
            prepared: None,
        }
    }

    /// The same, which sum by another means than links where all members can.
    pub(super) fn by(mut self, summation: Option<Arc<dyn Summation>>) -> Self {
        // What becomes of it is in the log, within the span of the generation.
        let note = |note: &SummationNote| match note {
            SummationNote::Begun(_) => tracing::info!("{note}"),
            SummationNote::NotBegun { .. } | SummationNote::GivenUp { .. } => tracing::warn!("{note}"),
        };
        self.summation = summation.map(|summation| SummationConfig::new(summation, note));
        self
    }

    /// Makes the links of a generation and runs its ring. All others end.
    pub(super) fn connect(&mut self, worker: &ActorRef<Message>, form: Form, inbox: mpsc::UnboundedReceiver<RingInput>) {
        self.end();
        self.peers.name(PeerGroup::Prepared, []);
        self.peers
            .name(PeerGroup::Present, form.peers.iter().map(|peer| peer.member.worker));
        self.peers.part(&self.peers.parted());
        self.peers.fence(form.generation);
        self.present = Some(self.spawn(worker, form, Start::AtOnce, inbox));
    }

    /// Makes the links of a generation to come. Nothing of the present one is touched.
    pub(super) fn prepare(&mut self, worker: &ActorRef<Message>, form: Form, inbox: mpsc::UnboundedReceiver<RingInput>) {
        self.unprepare();
        self.peers
            .name(PeerGroup::Prepared, form.peers.iter().map(|peer| peer.member.worker));
        let (begin, begins) = oneshot::channel();
        let generation = form.generation;
        let task = self.spawn(worker, form, Start::AtSwitch(begins), inbox);
        self.prepared = Some(Prepared { generation, begin, task });
    }

    pub(super) fn unprepare(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            prepared.task.abort();
        }
        self.peers.name(PeerGroup::Prepared, []);
    }

    /// The prepared ring begins at `step`. The ring before it may still have to pass its last sum on, also to workers that leave: it ends
    /// by itself, and only then are their connections closed.
    pub(super) fn switch(&mut self, generation: Generation, step: Step) {
        if let Some(past) = self.past.take() {
            past.abort();
        }
        let old = self.present.take();
        match self.prepared.take() {
            Some(prepared) if prepared.generation == generation => {
                // A ring that could not be linked has said so, and another generation comes.
                let _ = prepared.begin.send(step);
                self.present = Some(prepared.task);
                self.peers.switch_names();
            }
            // A worker that goes on alone has nothing to prepare.
            other => {
                self.prepared = other;
                self.unprepare();
                self.peers.name(PeerGroup::Present, []);
            }
        }
        self.peers.fence(generation);
        let parted = self.peers.parted();
        let Some(old) = old else {
            return self.peers.part(&parted);
        };
        self.past = Some(old.abort_handle());
        let peers = Arc::clone(&self.peers);
        tokio::spawn(async move {
            // Ended or aborted, it needs no peer any more.
            let _ = old.await;
            peers.part(&parted);
        });
    }

    /// Gives up the present ring, and the one before it.
    pub(super) fn abort(&mut self) {
        self.peers.end_lending();
        if let Some(past) = self.past.take() {
            past.abort();
        }
        if let Some(present) = self.present.take() {
            present.abort();
        }
        self.peers.name(PeerGroup::Present, []);
    }

    /// Gives up all of them.
    pub(super) fn end(&mut self) {
        self.abort();
        self.unprepare();
    }

    /// The present ring, to wait until it has ended by itself.
    pub(super) fn leave(&mut self) -> Option<JoinHandle<()>> {
        self.present.take()
    }

    fn spawn(
        &self,
        worker: &ActorRef<Message>,
        form: Form,
        start: Start,
        inbox: mpsc::UnboundedReceiver<RingInput>,
    ) -> JoinHandle<()> {
        let ring = Ring {
            form,
            order: self.order,
            compression: self.compression,
            summation: self.summation.clone(),
            shards: self.shards,
            start,
            inbox,
            driver: Arc::clone(&self.driver),
            peers: Arc::clone(&self.peers),
            worker: worker.clone(),
        };
        let (generation, rank) = (ring.form.generation, ring.form.rank);
        tokio::spawn(ring.run().instrument(tracing::error_span!("generation", %generation, %rank)))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.end();
    }
}
