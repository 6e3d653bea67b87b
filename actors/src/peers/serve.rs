//! What this worker hands to others: a share of a snapshot or of a checkpoint, the sum of a step, or its whole state. Never on the training
//! thread: bytes are hashed beside the network's thread, and not copied but for what is lent of a checkpoint while it is still read, and a sum of which other
//! workers have parts.

use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use sardana_net::log::{bounded, refused};
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::limits::NAMING_DEADLINE;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::snapshot::Share;
use sardana_protocol::words::{Generation, Step, WorkerId};
use sardana_storage::manifest;
use tokio::time::timeout;

use super::fetch::{Answer, Answered, Asking, Request, When};
use super::limits::{NEAR_LEAST_BYTES, STREAM_HELLO_BYTES, STREAM_HELLO_DEADLINE, TRANSFER_PRIORITY};
use super::load::{self, Ticket};
use super::near::Carries;
use super::{OutgoingShare, OutgoingSum, Peers};
use crate::fault::{self, Point};

/// The code of a stream that was given up.
const GIVEN_UP: u32 = 1;

/// What is sent after an answer.
struct Load {
    bytes: Bytes,
    /// Where a test may end the process before it is sent.
    point: Point,
    step: Step,
}

impl Peers {
    /// Serves what `peer` asks for, until its connection breaks.
    pub(super) async fn serve_fetches(self: Arc<Self>, peer: WorkerId, connection: Connection) {
        while let Ok((send, receive)) = connection.accept_bi().await {
            let (peers, connection) = (Arc::clone(&self), connection.clone());
            tokio::spawn(async move {
                if let Err(error) = peers.serve_fetch((peer, connection), send, receive).await {
                    bounded!(info, %peer, %error, "a transfer to another worker failed");
                }
            });
        }
    }

    async fn serve_fetch(
        &self,
        (peer, connection): (WorkerId, Connection),
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> Result<(), FrameError> {
        let asking = timeout(STREAM_HELLO_DEADLINE, read_frame::<Asking>(&mut receive, STREAM_HELLO_BYTES));
        let Ok(Some(Asking { request, ticket })) = asking.await.unwrap_or(Ok(None)) else {
            return Ok(());
        };
        // Its orders may have reached it before ours have reached us.
        if timeout(NAMING_DEADLINE, self.access.named(peer)).await.is_err() {
            refused!(%peer, asked = %request, "a worker asked for bytes, and is not named to this one");
            answer(&mut send, Answer::NotNamed, false).await?;
            return delivered(&mut send).await;
        }
        let given_up = send.stopped();
        let outcome = tokio::select! {
            biased;
            outcome = self.answer(request, ticket.map(|ticket| (ticket, peer, &connection)), &mut send) => outcome,
            _ = given_up => Ok(()),
            () = self.access.revoked(peer) => {
                refused!(at info, %peer, asked = %request, "a worker is no longer named: its transfer ends");
                Ok(())
            }
        };
        // Without this, quinn would end a stream that was given up as if all were well. It fails for a stream that has ended.
        let _ = send.reset(GIVEN_UP.into());
        outcome
    }

    /// What is large goes through memory, if the worker that asks has a ticket for that, and is on this host.
    async fn answer(
        &self,
        request: Request,
        near: Option<(Ticket, WorkerId, &Connection)>,
        send: &mut SendStream,
    ) -> Result<(), FrameError> {
        // Rings over the same connection go first. It fails only for a stream that has ended, and then all that follows does.
        let _ = send.set_priority(TRANSFER_PRIORITY);
        let (told, load) = match request {
            Request::Share { step, share } => self.loaded(self.share(step, share).await, step),
            Request::Lent { generation, step, share } => return self.give_lent(generation, (step, share), send).await,
            Request::LentManifest { generation, .. } => return self.give_manifest(generation, send).await,
            Request::Sum { sum: wanted, when } => match self.sum(wanted, when).await {
                Some(sum) => {
                    let (generation, trailer) = (sum.generation(), sum.trailer());
                    // What of it other workers have is copied for this.
                    let told = move || (sum.bytes(), sum.hash());
                    let Some((bytes, hash)) = self.environment.blocking(told).await else {
                        return Ok(());
                    };
                    let told = Answer::Sum {
                        bytes: bytes.len() as u64,
                        hash,
                        generation,
                        trailer,
                        keeper_at: self.keeper.step(),
                    };
                    let load = Load {
                        bytes,
                        point: Point::ServingSum,
                        step: wanted.step,
                    };
                    (told, Some(load))
                }
                None => (self.not_here(), None),
            },
        };
        let large = near.filter(|_| load.as_ref().is_some_and(|load| load.bytes.len() >= NEAR_LEAST_BYTES));
        let link = match large {
            Some((ticket, peer, connection)) => {
                let place = (peer, connection.remote_address().port());
                let link = self.open_near(Carries::Load(ticket), place, connection).await;
                link.map(|link| (peer, link))
            }
            None => None,
        };
        answer(send, told, link.is_some()).await?;
        if let Some(Load { bytes, point, step }) = load {
            fault::reached(point, step);
            match link {
                Some((peer, link)) => {
                    if let Err(error) = load::send(link, &bytes).await {
                        let reason = load::said(&error);
                        bounded!(info, %peer, %step, reason, "a transfer through memory broke off");
                        return Ok(());
                    }
                }
                None => send.write_chunk(bytes).await?,
            }
        }
        delivered(send).await
    }

    /// Gives the share of a checkpoint that this worker reads, as it comes.
    async fn give_lent(
        &self,
        generation: Generation,
        (step, share): (Step, Share),
        send: &mut SendStream,
    ) -> Result<(), FrameError> {
        let Some((bytes, hash)) = self.lent(generation, share).await else {
            answer(send, self.not_here(), false).await?;
            return delivered(send).await;
        };
        answer(send, Answer::Share { bytes, hash }, false).await?;
        fault::reached(Point::ServingShare, step);
        if self.send_lent((generation, step), send).await? {
            return delivered(send).await;
        }
        Ok(())
    }

    /// Gives the manifest of the checkpoint that this worker reads.
    async fn give_manifest(&self, generation: Generation, send: &mut SendStream) -> Result<(), FrameError> {
        let Some(manifest) = self.lent_manifest(generation).await else {
            answer(send, self.not_here(), false).await?;
            return delivered(send).await;
        };
        // It was decoded from these bytes.
        let Some(Ok(encoded)) = self.environment.blocking(move || manifest::encode(&manifest)).await else {
            return Ok(());
        };
        let bytes = encoded.len() as u64;
        answer(send, Answer::Manifest { bytes }, false).await?;
        send.write_chunk(encoded.into()).await?;
        delivered(send).await
    }

    /// The answer for a share, with what follows it.
    fn loaded(&self, held: Option<OutgoingShare>, step: Step) -> (Answer, Option<Load>) {
        let Some(held) = held else {
            return (self.not_here(), None);
        };
        let answer = Answer::Share {
            bytes: held.bytes.len() as u64,
            hash: held.hash,
        };
        let load = Load {
            bytes: held.bytes,
            point: Point::ServingShare,
            step,
        };
        (answer, Some(load))
    }

    /// A share of the snapshot that is held; or else, if it is all of it, the state at `step` as soon as the training thread is free.
    async fn share(&self, step: Step, share: Share) -> Option<OutgoingShare> {
        if let Some(held) = self.keeper.share_of(step, share) {
            return Some(held);
        }
        if share != Share::WHOLE {
            return None;
        }
        let bytes = self.keeper.state_at(step).await?;
        let (pieces, keeper) = (Arc::clone(&self.pieces), Arc::clone(&self.keeper));
        let hash = move || {
            let hash = keeper.hash(&pieces, share, &bytes);
            OutgoingShare { bytes, hash }
        };
        self.environment.blocking(hash).await
    }

    async fn sum(&self, wanted: WantedSum, when: When) -> Option<Box<dyn OutgoingSum>> {
        match when {
            When::Now => self.keeper.sum_of(wanted),
            When::Soon => self.keeper.coming_sum(wanted).await,
        }
    }

    fn not_here(&self) -> Answer {
        Answer::NotHere {
            stands_at: self.keeper.step(),
        }
    }
}

async fn answer(send: &mut SendStream, answer: Answer, in_memory: bool) -> Result<(), FrameError> {
    write_frame(send, &Answered { answer, in_memory }, STREAM_HELLO_BYTES).await
}

/// Ends the stream, and waits until the other end has all of it, or wants no more.
async fn delivered(send: &mut SendStream) -> Result<(), FrameError> {
    // Finishing fails only if the other end has given up.
    let _ = send.finish();
    let _ = send.stopped().await;
    Ok(())
}
