//! One step on its way through the ring: what every frame of it has in common, and links that say where they lead.

use sardana_protocol::messages::{LinkKind, Trailer};
use sardana_protocol::plan::{HopEnd, HopId};
use sardana_protocol::words::{Rank, Step};
use smallvec::SmallVec;

use super::inbox::Piece;
use super::{PlanLinks, RingConfig, RingError, RingPoint};
use crate::compression::Half;
use crate::gradient::ResidentError;
use crate::layout::Layout;
use crate::links::frame::{FrameHeader, FrameKind, PlanSlot, TRAILER_BYTES, decode_trailer, encode_trailer};
use crate::links::{LinkError, LinkReceiver, LinkSender, Payload, Received};
use crate::pages::InPlace;
use crate::reduce;
use crate::runs::Runs;
use crate::stores::Destination;

/// The step under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage<'a> {
    pub(super) config: &'a RingConfig,
    pub(super) step: Step,
}

/// Where a link leads.
#[derive(Clone, Copy, Debug)]
struct Way {
    slot: PlanSlot,
    hop: HopId,
    peer: Rank,
}

/// A link from this rank.
#[derive(Debug)]
pub(super) struct Outgoing {
    way: Way,
    pub(super) link: LinkSender,
}

/// A link to this rank.
#[derive(Debug)]
pub(super) struct Incoming {
    way: Way,
    link: LinkReceiver,
}

/// A frame's payload with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) kind: FrameKind,
    pub(super) index: u32,
    /// A rank without shards has nothing to say of it but that it is at this step.
    empty: bool,
    /// As what its f32 travel; none if as they are.
    half: Option<Half>,
}

impl Chunk {
    /// A chunk of the sum over some shards.
    pub(super) const fn running(index: u32) -> Self {
        Self {
            kind: FrameKind::Running,
            index,
            empty: false,
            half: None,
        }
    }

    /// In place of a chunk of the sum over no shards.
    pub(super) const fn nothing(index: u32) -> Self {
        Self {
            empty: true,
            ..Self::running(index)
        }
    }

    /// A chunk of the sum over all shards.
    pub(super) const fn sum(index: u32) -> Self {
        Self {
            kind: FrameKind::Sum,
            ..Self::running(index)
        }
    }

    /// The same, whose f32 travel as such halves.
    pub(super) const fn compressed(self, half: Option<Half>) -> Self {
        Self { half, ..self }
    }
}

/// What is added to make a chunk: in memory of this rank's own, or as a link has it.
#[derive(Debug)]
pub(super) enum Term<'a> {
    Own(&'a [u8]),
    Received(Payload<'a>),
}

/// A few without an allocation, since each chunk has its own.
pub(super) type Terms<'a> = SmallVec<[Term<'a>; 16]>;

/// What this rank's own gradients hold in chunk `index`, as soon as all of it is there.
pub(super) async fn own_terms<'a>(
    passage: Passage<'_>,
    own: &'a [Piece],
    index: u32,
) -> Result<SmallVec<[&'a [u8]; 16]>, RingError> {
    let mut terms = SmallVec::new();
    for piece in own {
        terms.push(piece.gradient.chunk(index).await.map_err(passage.lacks())?);
    }
    Ok(terms)
}

/// What is added to make chunk `index`, as soon as all of it is there: the sum so far, and this rank's own gradients.
pub(super) async fn terms<'a>(
    passage: Passage<'_>,
    running: Option<Payload<'a>>,
    own: &'a [Piece],
    index: u32,
) -> Result<Terms<'a>, RingError> {
    let own = own_terms(passage, own, index).await?;
    let running = running.into_iter().map(Term::Received);
    Ok(running.chain(own.into_iter().map(Term::Own)).collect())
}

impl Runs for Term<'_> {
    fn left(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.left(),
            Self::Received(payload) => payload.left(),
        }
    }

    fn run(&mut self, most: usize, element: usize) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes.run(most, element),
            Self::Received(payload) => payload.run(most, element),
        }
    }
}

impl Passage<'_> {
    pub(super) fn layout(&self) -> &Layout {
        &self.config.layout
    }

    /// Writes the sum of these terms, which are what chunk `index` holds in each.
    pub(super) fn sum(&self, index: u32, out: &mut [u8], terms: &mut [impl Runs]) {
        reduce::sum_into(self.layout(), self.layout().chunk(index), out, terms);
    }

    /// The same, to where a finished sum goes.
    pub(super) fn finish(&self, index: u32, out: &mut Destination<'_>, terms: &mut [impl Runs]) {
        reduce::sum_to(self.layout(), self.layout().chunk(index), out, terms);
    }

    /// Adds a gradient's chunk `index` to what is there already, if there is something.
    pub(super) fn add(&self, index: u32, running: &mut Vec<u8>, mut gradient: impl Runs) {
        if running.is_empty() {
            running.resize(gradient.left(), 0);
            gradient.copy_to(running);
        } else {
            reduce::add(self.layout(), self.layout().chunk(index), running, gradient);
        }
    }

    fn header(&self, way: Way, chunk: Chunk) -> FrameHeader {
        let range = self.layout().chunk(chunk.index);
        let bytes = match chunk.half {
            _ if chunk.empty => 0,
            Some(half) => half.packed_bytes(self.layout(), range),
            None => range.len(),
        };
        FrameHeader {
            generation: self.config.generation,
            step: self.step,
            plan: way.slot,
            hop: way.hop,
            kind: chunk.kind,
            chunk: chunk.index,
            payload_bytes: u32::try_from(bytes).expect("a chunk has at most CHUNK_BYTES"),
        }
    }

    fn trailer_header(&self, way: Way) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Trailer,
            payload_bytes: TRAILER_BYTES,
            ..self.header(way, Chunk::sum(0))
        }
    }

    fn told_header(&self, way: Way, round: u32, bytes: usize) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Told,
            chunk: round,
            payload_bytes: u32::try_from(bytes).expect("MAX_AUXILIARY bounds what is told"),
            ..self.header(way, Chunk::nothing(0))
        }
    }

    /// This rank's own gradient did not come from where it lies.
    pub(super) fn lacks(&self) -> impl FnOnce(ResidentError) -> RingError + use<> {
        let (generation, step) = (self.config.generation, self.step);
        move |source| RingError::Lowering {
            generation,
            step,
            source,
        }
    }

    fn broke(&self, way: Way) -> impl FnOnce(LinkError) -> RingError + use<> {
        let (generation, step) = (self.config.generation, self.step);
        move |source| RingError::Link {
            generation,
            step,
            hop: way.hop,
            peer: way.peer,
            source,
        }
    }
}

impl Outgoing {
    /// Takes the link of a hop out of `links`.
    pub(super) fn take(slot: PlanSlot, end: HopEnd, links: &mut PlanLinks) -> Result<Self, RingError> {
        let HopEnd { hop, peer } = end;
        let link = links.outgoing.remove(&hop).ok_or(RingError::LinkMissing { hop, peer })?;
        Ok(Self {
            way: Way { slot, hop, peer },
            link,
        })
    }

    /// Whether the rank at the other end reads what it is shown [in turn](InPlace::in_turn) before it takes much more of that, so that such memory is soon free again. (What
    /// goes over a network is held until it has come, which may be many chunks later.)
    pub(super) const fn is_read_in_place(&self) -> bool {
        match self.link.kind() {
            LinkKind::SharedMemory => true,
            LinkKind::Quic | LinkKind::InProcess => false,
        }
    }

    /// Sends a chunk that `fill` writes.
    pub(super) async fn send(
        &mut self,
        passage: Passage<'_>,
        chunk: Chunk,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), RingError> {
        let header = passage.header(self.way, chunk);
        self.link.send(&header, fill).await.map_err(passage.broke(self.way))
    }

    /// Sends a chunk of a running sum that `fill` writes, and tells the probe.
    pub(super) async fn pass(
        &mut self,
        passage: Passage<'_>,
        chunk: Chunk,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), RingError> {
        let index = chunk.index;
        let Some(probe) = &passage.config.probe else {
            return self.send(passage, chunk, fill).await;
        };
        let step = passage.step;
        probe.reached(RingPoint::BeforePass { step, chunk: index });
        let halfway = || probe.reached(RingPoint::WhilePassing { step, chunk: index });
        let header = passage.header(self.way, chunk);
        self.link
            .send_in_halves(&header, fill, halfway)
            .await
            .map_err(passage.broke(self.way))?;
        probe.reached(RingPoint::AfterPass { step, chunk: index });
        Ok(())
    }

    /// Sends a chunk that another rank may read where it lies, or borrow there if it is lent.
    pub(super) async fn send_in_place(
        &mut self,
        passage: Passage<'_>,
        chunk: Chunk,
        bytes: InPlace<'_>,
    ) -> Result<(), RingError> {
        let header = passage.header(self.way, chunk);
        let sent = self.link.send_in_place(&header, bytes, None::<fn()>).await;
        sent.map_err(passage.broke(self.way))
    }

    /// Sends a chunk of a running sum that another rank may read where it lies, and tells the probe.
    pub(super) async fn pass_in_place(
        &mut self,
        passage: Passage<'_>,
        chunk: Chunk,
        bytes: InPlace<'_>,
    ) -> Result<(), RingError> {
        let index = chunk.index;
        let Some(probe) = &passage.config.probe else {
            return self.send_in_place(passage, chunk, bytes).await;
        };
        let step = passage.step;
        probe.reached(RingPoint::BeforePass { step, chunk: index });
        let halfway = || probe.reached(RingPoint::WhilePassing { step, chunk: index });
        let header = passage.header(self.way, chunk);
        let sent = self.link.send_in_place(&header, bytes, Some(halfway)).await;
        sent.map_err(passage.broke(self.way))?;
        probe.reached(RingPoint::AfterPass { step, chunk: index });
        Ok(())
    }

    /// Sends what a rank tells all others, which has come over `round` hops.
    pub(super) async fn tell(&mut self, passage: Passage<'_>, round: u32, words: &[u8]) -> Result<(), RingError> {
        let header = passage.told_header(self.way, round, words.len());
        let sent = self.link.send(&header, |payload| payload.copy_from_slice(words)).await;
        sent.map_err(passage.broke(self.way))
    }

    pub(super) async fn send_trailer(&mut self, passage: Passage<'_>, trailer: Trailer) -> Result<(), RingError> {
        let header = passage.trailer_header(self.way);
        self.link
            .send(&header, |payload| payload.copy_from_slice(&encode_trailer(trailer)))
            .await
            .map_err(passage.broke(self.way))
    }
}

impl Incoming {
    /// Takes the link of a hop out of `links`.
    pub(super) fn take(slot: PlanSlot, end: HopEnd, links: &mut PlanLinks) -> Result<Self, RingError> {
        let HopEnd { hop, peer } = end;
        let link = links.incoming.remove(&hop).ok_or(RingError::LinkMissing { hop, peer })?;
        Ok(Self {
            way: Way { slot, hop, peer },
            link,
        })
    }

    pub(super) async fn receive(&mut self, passage: Passage<'_>, chunk: Chunk) -> Result<Payload<'_>, RingError> {
        let header = passage.header(self.way, chunk);
        self.link.receive(&header).await.map_err(passage.broke(self.way))
    }

    /// Whether finished chunks stay where the other rank has them, as far as that goes.
    pub(super) const fn lends(&self) -> bool {
        match self.link.kind() {
            LinkKind::SharedMemory => true,
            LinkKind::Quic | LinkKind::InProcess => false,
        }
    }

    /// Receives a chunk, which may be borrowed if the other rank lends it.
    pub(super) async fn borrow(&mut self, passage: Passage<'_>, chunk: Chunk) -> Result<Received<'_>, RingError> {
        let header = passage.header(self.way, chunk);
        self.link.borrow(&header).await.map_err(passage.broke(self.way))
    }

    /// Receives what a rank tells all others, which has come over `round` hops before this one.
    pub(super) async fn hear(&mut self, passage: Passage<'_>, round: u32, bytes: usize) -> Result<Vec<u8>, RingError> {
        let header = passage.told_header(self.way, round, bytes);
        let mut payload = self.link.receive(&header).await.map_err(passage.broke(self.way))?;
        let mut words = vec![0; bytes];
        payload.copy_to(&mut words);
        Ok(words)
    }

    pub(super) async fn receive_trailer(&mut self, passage: Passage<'_>) -> Result<Trailer, RingError> {
        let header = passage.trailer_header(self.way);
        let mut payload = self.link.receive(&header).await.map_err(passage.broke(self.way))?;
        let mut trailer = [0; TRAILER_BYTES as usize];
        payload.copy_to(&mut trailer);
        decode_trailer(&trailer).map_err(passage.broke(self.way))
    }
}
