//! A group's links, with what every frame of one operation has in common. Knows frames, not what is reduced.

use sardana_protocol::words::{Generation, Rank, Step};

use super::call::{CALL_BYTES, Call};
use super::error::GroupError;
use crate::links::frame::{FrameHeader, FrameKind, PlanSlot};
use crate::links::{LinkError, LinkReceiver, LinkSender, Payload};
use crate::runs::Runs;

/// A rank's links: two lanes that lead from each rank to the next, and from the last to the first.
#[derive(Debug)]
pub struct GroupLinks {
    /// What is not finished yet: [`PlanSlot::First`] in its frames.
    pub running: LaneLinks,
    /// What is: [`PlanSlot::Steady`] in its frames.
    pub finished: LaneLinks,
}

/// The two ends of one lane at one rank.
#[derive(Debug)]
pub struct LaneLinks {
    /// From the rank before.
    pub from: LinkReceiver,
    /// To the rank after.
    pub to: LinkSender,
}

/// Both lanes at one rank.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) running: Lane,
    pub(super) finished: Lane,
}

/// One lane at one rank.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) from: Incoming,
    pub(super) to: Outgoing,
}

#[derive(Debug)]
pub(super) struct Incoming {
    slot: PlanSlot,
    peer: Rank,
    link: LinkReceiver,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    slot: PlanSlot,
    peer: Rank,
    link: LinkSender,
}

/// What all frames of one operation have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) generation: Generation,
    pub(super) number: u64,
    pub(super) call: Call,
}

/// One frame of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// Its number among those of its kind.
    pub(super) index: u32,
    pub(super) bytes: usize,
}

impl Frame {
    const CALL: Self = Self {
        kind: FrameKind::Call,
        index: 0,
        bytes: CALL_BYTES,
    };
    const AGREED: Self = Self {
        kind: FrameKind::Agreed,
        index: 0,
        bytes: 0,
    };
}

impl Lanes {
    pub(super) fn new(rank: u32, world_size: u32, links: GroupLinks) -> Self {
        let (before, after) = ((rank + world_size - 1) % world_size, (rank + 1) % world_size);
        let lane = |slot, LaneLinks { from, to }| Lane {
            from: Incoming {
                slot,
                peer: Rank::new(before),
                link: from,
            },
            to: Outgoing {
                slot,
                peer: Rank::new(after),
                link: to,
            },
        };
        Self {
            running: lane(PlanSlot::First, links.running),
            finished: lane(PlanSlot::Steady, links.finished),
        }
    }

    /// What was sent last is not a torn end.
    pub(super) fn finish(&mut self) {
        self.running.to.link.finish();
        self.finished.to.link.finish();
    }

    /// Waits until the next rank's transport has everything, or is gone.
    pub(super) async fn delivered(&mut self) {
        self.running.to.link.delivered().await;
        self.finished.to.link.delivered().await;
    }
}

impl Stamp {
    fn header(&self, slot: PlanSlot, frame: Frame) -> FrameHeader {
        FrameHeader {
            generation: self.generation,
            step: Step::new(self.number),
            plan: slot,
            hop: 0,
            kind: frame.kind,
            chunk: frame.index,
            payload_bytes: u32::try_from(frame.bytes).expect("a frame has at most CHUNK_BYTES"),
        }
    }

    fn broke(&self, peer: Rank) -> impl FnOnce(LinkError) -> GroupError + use<> {
        let Self {
            generation,
            number,
            call,
        } = *self;
        move |source| GroupError::Link {
            generation,
            number,
            call,
            peer,
            source,
        }
    }
}

impl Outgoing {
    pub(super) async fn send(&mut self, stamp: Stamp, frame: Frame, fill: impl FnOnce(&mut [u8])) -> Result<(), GroupError> {
        let header = stamp.header(self.slot, frame);
        self.link.send(&header, fill).await.map_err(stamp.broke(self.peer))
    }

    pub(super) async fn send_call(&mut self, stamp: Stamp) -> Result<(), GroupError> {
        let call = stamp.call.encode();
        self.send(stamp, Frame::CALL, |payload| payload.copy_from_slice(&call)).await
    }

    pub(super) async fn send_agreed(&mut self, stamp: Stamp) -> Result<(), GroupError> {
        self.send(stamp, Frame::AGREED, |_| ()).await
    }
}

impl Incoming {
    pub(super) async fn receive(&mut self, stamp: Stamp, frame: Frame) -> Result<Payload<'_>, GroupError> {
        let header = stamp.header(self.slot, frame);
        self.link.receive(&header).await.map_err(stamp.broke(self.peer))
    }

    /// Compares what the rank before calls with this rank's call.
    pub(super) async fn receive_call(&mut self, stamp: Stamp) -> Result<(), GroupError> {
        let Stamp {
            generation,
            number,
            call: ours,
        } = stamp;
        let peer = self.peer;
        let mut call = [0; CALL_BYTES];
        self.receive(stamp, Frame::CALL).await?.copy_to(&mut call);
        match Call::decode(&call) {
            Some(theirs) if theirs == ours => Ok(()),
            Some(theirs) => Err(GroupError::Mismatch {
                generation,
                number,
                peer,
                ours,
                theirs,
            }),
            None => Err(GroupError::Unknown {
                generation,
                number,
                peer,
            }),
        }
    }

    pub(super) async fn receive_agreed(&mut self, stamp: Stamp) -> Result<(), GroupError> {
        self.receive(stamp, Frame::AGREED).await.map(|_| ())
    }
}
