//! Makes the links of a generation that end at this worker, and takes in those that others make.

use std::sync::Arc;

use quinn::{Connection, RecvStream};
use sardana_collectives::links::{LinkReceiver, LinkSender};
use sardana_collectives::ring::{PlanLinks, RingLinks};
use sardana_net::log::{bounded, refused};
use sardana_net::quic::ConnectError;
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::limits::LINK_DEADLINE;
use sardana_protocol::messages::{Form, MemberAddress};
use sardana_protocol::plan::HopEnd;
use sardana_protocol::words::{JobId, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Peers;
use super::limits::{DOUBT_AFTER, FAILURES_TOGETHER, STREAM_HELLO_BYTES, STREAM_HELLO_DEADLINE};
use super::meters::Metered;
use super::near::Carries;
use super::table::{Arrival, LinkKey, Slot};

/// First message on a link's stream, from the worker that will send on it. Nothing comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkHello {
    pub(super) job: JobId,
    pub(super) key: LinkKey,
    pub(super) from: WorkerId,
}

/// Why a generation's links could not be made. The coordinator is told which peer it concerns, and forms anew.
#[derive(Debug, thiserror::Error)]
pub enum LinkingError {
    /// No connection to the peer.
    #[error("no link with worker {peer}: {source}")]
    Connect {
        /// The peer.
        peer: WorkerId,
        /// Why.
        #[source]
        source: ConnectError,
    },
    /// The stream could not be opened or its first message not be sent.
    #[error("no link with worker {peer}: {source}")]
    Stream {
        /// The peer.
        peer: WorkerId,
        /// Why.
        #[source]
        source: FrameError,
    },
    /// The peer did not make its link in time.
    #[error("worker {peer} made no link within {LINK_DEADLINE:?}")]
    TooSlow {
        /// The peer.
        peer: WorkerId,
    },
    /// The generation is over already.
    #[error("the generation of the link with worker {peer} is over")]
    Over {
        /// The peer.
        peer: WorkerId,
    },
    /// The task that makes the link panicked. Report it.
    #[error("the task that makes the link with worker {peer} panicked; its message is on standard error: report it")]
    Panicked {
        /// The peer.
        peer: WorkerId,
    },
}

impl LinkingError {
    /// The worker that the link would have led to.
    #[must_use]
    pub const fn peer(&self) -> WorkerId {
        match self {
            Self::Connect { peer, .. }
            | Self::Stream { peer, .. }
            | Self::TooSlow { peer }
            | Self::Over { peer }
            | Self::Panicked { peer } => *peer,
        }
    }
}

/// Leaves a connection in doubt if a link over it is waited for in vain, be it that the wait is given up because of the other end's.
struct Doubt {
    peer: Arc<super::Slot>,
    since: Instant,
    waiting: bool,
}

impl Doubt {
    fn new(peer: Arc<super::Slot>) -> Self {
        Self {
            peer,
            since: Instant::now(),
            waiting: true,
        }
    }

    fn dispelled(mut self) {
        self.waiting = false;
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if self.waiting && self.since.elapsed() >= DOUBT_AFTER {
            self.peer.doubt();
        }
    }
}

/// One end of one link.
enum End {
    Sender(LinkKey, WorkerId, LinkSender),
    Receiver(LinkKey, WorkerId, LinkReceiver),
}

/// Links that are being made.
type Making = JoinSet<Result<End, LinkingError>>;

impl Peers {
    /// Makes all links of the generation that end here, for its first and its steady plan.
    ///
    /// # Errors
    /// The links that could not be made, as far as that shows soon after the first; the others are reset.
    ///
    /// # Panics
    /// When making a link does.
    pub async fn link(self: &Arc<Self>, form: &Form) -> Result<RingLinks, Vec<LinkingError>> {
        // Peers that have to dial this worker need not wait behind strangers.
        self.door.know(form.peers.iter().map(|peer| peer.member.address));
        let mut making = JoinSet::new();
        for (slot, part) in [(Slot::First, &form.first), (Slot::Steady, &form.steady)] {
            let (onwards, backwards) = part.ends();
            let generation = form.generation;
            let known = |end: HopEnd| {
                let hop = end.hop;
                let key = LinkKey { generation, slot, hop };
                Some((key, form.peer(end.peer)?))
            };
            for (key, peer) in onwards.into_iter().filter_map(known) {
                self.make_sender(key, peer, &mut making);
            }
            for (key, peer) in backwards.into_iter().filter_map(known) {
                self.make_receiver(key, peer, &mut making);
            }
        }
        let mut links = RingLinks {
            first: PlanLinks::default(),
            steady: PlanLinks::default(),
        };
        let mut metered = Vec::new();
        while let Some(end) = making.join_next().await {
            match end.expect("making a link does not panic and is not cancelled") {
                Ok(End::Sender(key, peer, sender)) => {
                    metered.push(Metered::sender(peer, &sender));
                    of(&mut links, key.slot).outgoing.insert(key.hop, sender);
                }
                Ok(End::Receiver(key, peer, receiver)) => {
                    metered.push(Metered::receiver(peer, &receiver));
                    of(&mut links, key.slot).incoming.insert(key.hop, receiver);
                }
                Err(first) => return Err(failures(first, making).await),
            }
        }
        self.meters.made(form.generation, metered);
        Ok(links)
    }

    fn make_sender(self: &Arc<Self>, key: LinkKey, peer: MemberAddress, making: &mut Making) {
        let peers = Arc::clone(self);
        making.spawn(async move {
            let deadline = timeout(LINK_DEADLINE, peers.open(key, peer)).await;
            let sender = deadline.unwrap_or(Err(LinkingError::TooSlow { peer: peer.worker }))?;
            Ok(End::Sender(key, peer.worker, sender))
        });
    }

    fn make_receiver(self: &Arc<Self>, key: LinkKey, peer: MemberAddress, making: &mut Making) {
        let peers = Arc::clone(self);
        // Expected before anything is awaited, so that none is parked that is known.
        let coming = self.table.expect(key, peer.worker);
        let doubt = Doubt::new(self.slot(peer.worker));
        making.spawn(async move {
            // The worker that dials does so for the links in both directions.
            let (connected, link) = (peers.connection(peer), timeout(LINK_DEADLINE, coming));
            let dial = async {
                connected.await.map_err(|source| LinkingError::Connect {
                    peer: peer.worker,
                    source,
                })
            };
            tokio::pin!(dial);
            let link = tokio::select! {
                biased;
                link = link => link,
                failed = async { match dial.await { Ok(_) => std::future::pending().await, Err(error) => error } } => {
                    return Err(failed);
                }
            };
            if matches!(link, Ok(Ok(_))) {
                doubt.dispelled();
            }
            match link {
                Ok(Ok(link)) => Ok(End::Receiver(key, peer.worker, link)),
                Ok(Err(_)) => Err(LinkingError::Over { peer: peer.worker }),
                Err(_) => Err(LinkingError::TooSlow { peer: peer.worker }),
            }
        });
    }

    async fn open(self: &Arc<Self>, key: LinkKey, peer: MemberAddress) -> Result<LinkSender, LinkingError> {
        let worker = peer.worker;
        let connection = self
            .connection(peer)
            .await
            .map_err(|source| LinkingError::Connect { peer: worker, source })?;
        let place = (worker, peer.address.port());
        if let Some(sender) = self.open_near(Carries::Link(key), place, &connection).await {
            return Ok(sender);
        }
        let stream = |source| LinkingError::Stream { peer: worker, source };
        let mut sender = connection
            .open_uni()
            .await
            .map_err(|error| stream(FrameError::Connection(error)))?;
        let hello = LinkHello {
            job: self.credentials.job(),
            key,
            from: self.own,
        };
        write_frame(&mut sender, &hello, STREAM_HELLO_BYTES).await.map_err(stream)?;
        Ok(LinkSender::quic(sender))
    }

    /// Takes in the links that `peer` makes, until its connection breaks.
    pub(super) async fn serve_links(self: Arc<Self>, peer: WorkerId, connection: Connection) {
        while let Ok(stream) = connection.accept_uni().await {
            let peers = Arc::clone(&self);
            tokio::spawn(async move { peers.take_in(peer, stream).await });
        }
        // A worker that this one has dialled, such as a donor, may never have been named here.
        self.forget(peer);
    }

    async fn take_in(&self, peer: WorkerId, mut stream: RecvStream) {
        let hello = timeout(
            STREAM_HELLO_DEADLINE,
            read_frame::<LinkHello>(&mut stream, STREAM_HELLO_BYTES),
        )
        .await;
        let hello = match hello {
            Ok(Ok(Some(hello))) => hello,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "a link's first message could not be read"),
            Err(_) => return bounded!(warn, %peer, "a link's first message did not come in time"),
        };
        if hello.job != self.credentials.job() || hello.from != peer {
            refused!(%peer, claimed = %hello.from, "a link with a false name");
            return;
        }
        self.arrived(hello.key, peer, LinkReceiver::quic(stream));
    }

    /// A link that `peer` has made is here.
    pub(super) fn arrived(&self, key: LinkKey, peer: WorkerId, link: LinkReceiver) {
        match self.table.arrive(key, peer, link) {
            Arrival::Taken | Arrival::Parked => {}
            refused @ (Arrival::Old | Arrival::WrongSender | Arrival::TooFarAhead | Arrival::TooMany) => {
                tracing::debug!(%peer, generation = %key.generation, ?refused, "a link was refused");
            }
        }
    }
}

/// The first link that could not be made, and those that cannot be made either, one for each peer: the number of peers that this worker has
/// no link with tells which worker is at fault.
async fn failures(first: LinkingError, mut making: Making) -> Vec<LinkingError> {
    let mut failures = vec![first];
    let all = async {
        while let Some(end) = making.join_next().await {
            let failed = end.ok().and_then(Result::err);
            let news = failed.filter(|error| failures.iter().all(|known| known.peer() != error.peer()));
            failures.extend(news);
        }
    };
    // A peer that made a link while this end waits for others has it reset: nothing is lost.
    let _ = timeout(FAILURES_TOGETHER, all).await;
    failures
}

fn of(links: &mut RingLinks, slot: Slot) -> &mut PlanLinks {
    match slot {
        Slot::First => &mut links.first,
        Slot::Steady => &mut links.steady,
    }
}
