//! A link that is cut open: what the one rank sends comes here as bytes of a QUIC stream, and goes on to the other over whichever link that has.

use quinn::{RecvStream, SendStream, VarInt};
use sardana_collectives::links::LinkSender;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HEADER_BYTES, PlanSlot};
use sardana_protocol::words::{Generation, Incarnation, Step};
use tokio::sync::oneshot;

use crate::lies::{GARBAGE, Lie};

/// More frames than any link takes of which its receiver reads none.
const FLOOD: u32 = 100_000;

/// What goes on from here.
pub(crate) enum Onwards {
    /// Bytes, to a link over QUIC, and whether that has ended well.
    Stream(SendStream, bool),
    /// Frames, to a link in shared memory.
    Link(LinkSender),
}

impl Onwards {
    async fn frame(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<(), ()> {
        match self {
            Self::Stream(stream, _) => {
                stream.write_all(&header.encode()).await.map_err(drop)?;
                stream.write_all(payload).await.map_err(drop)
            }
            Self::Link(link) => {
                let sent = link.send(header, |out| out.copy_from_slice(payload));
                sent.await.map_err(drop)
            }
        }
    }

    /// Sends a frame to an end that may have gone meanwhile.
    pub(crate) async fn try_frame(&mut self, header: &FrameHeader, payload: &[u8]) {
        // What the end that is gone has said of it is looked at there.
        let _ = self.frame(header, payload).await;
    }

    pub(crate) async fn garbage(&mut self, frame: &FrameHeader) {
        match self {
            Self::Stream(stream, _) => {
                let _ = stream.write_all(&GARBAGE).await;
            }
            Self::Link(_) => {
                let other = FrameHeader {
                    generation: Generation::new(Incarnation::new(u64::MAX), u64::MAX),
                    step: Step::new(u64::MAX),
                    plan: PlanSlot::Steady,
                    hop: u16::MAX,
                    kind: FrameKind::Load,
                    chunk: u32::MAX,
                    payload_bytes: frame.payload_bytes,
                };
                self.try_frame(&other, &vec![0x5a; frame.payload_bytes as usize]).await;
            }
        }
    }

    /// Sends the frame, and chunks that no gradient has until the other end takes no more.
    pub(crate) async fn flood(&mut self, frame: &FrameHeader, payload: &[u8]) {
        self.try_frame(frame, payload).await;
        // The frame itself may come next as well: of two shards, each chunk is called the same.
        let more = FrameHeader {
            chunk: u32::MAX,
            ..*frame
        };
        for _ in 0..FLOOD {
            let sent = match self {
                Self::Stream(stream, _) => stream.write_all(&GARBAGE).await.map_err(drop),
                Self::Link(_) => self.frame(&more, payload).await,
            };
            if sent.is_err() {
                return;
            }
        }
        panic!("the link takes {FLOOD} frames that its receiver does not read");
    }

    pub(crate) fn finish(&mut self) {
        match self {
            Self::Stream(stream, finished) => *finished = stream.finish().is_ok(),
            Self::Link(link) => link.finish(),
        }
    }
}

impl Drop for Onwards {
    /// As a link of a rank that dies.
    fn drop(&mut self) {
        if let Self::Stream(stream, false) = self {
            // The other end may have stopped it.
            let _ = stream.reset(VarInt::from_u32(0));
        }
    }
}

/// Passes all on, and returns how many frames that were.
pub(crate) async fn pass(mut from: RecvStream, mut to: Onwards) -> u32 {
    let mut passed = 0;
    while let Some((header, payload)) = frame(&mut from).await {
        to.frame(&header, &payload).await.unwrap();
        passed += 1;
    }
    to.finish();
    passed
}

/// Passes so many frames on, then tells the lie. Returns in place of which frame it lied, or after which. The link to the liar stays until `over`.
pub(crate) async fn lie(
    mut from: RecvStream,
    to: Onwards,
    (at, lie): (u32, Lie),
    over: oneshot::Receiver<()>,
) -> FrameHeader {
    let mut link = Some(to);
    for _ in 0..at {
        let (header, payload) = frame(&mut from).await.unwrap();
        link.as_mut().unwrap().frame(&header, &payload).await.unwrap();
    }
    let (header, payload) = frame(&mut from).await.unwrap();
    lie.is_told(&mut link, &header, &payload).await;
    over.await.unwrap();
    header
}

/// Passes so many frames on, and nothing more. The ends come back, so that neither rank sees an end of its link.
pub(crate) async fn freeze(mut from: RecvStream, mut to: Onwards, at: u32) -> (RecvStream, Onwards) {
    for _ in 0..at {
        let (header, payload) = frame(&mut from).await.unwrap();
        to.frame(&header, &payload).await.unwrap();
    }
    (from, to)
}

/// The next frame, or none where the link has ended well.
async fn frame(from: &mut RecvStream) -> Option<(FrameHeader, Vec<u8>)> {
    let mut bytes = [0; HEADER_BYTES];
    match from.read_exact(&mut bytes).await {
        Ok(()) => {}
        Err(quinn::ReadExactError::FinishedEarly(0)) => return None,
        Err(error) => panic!("a frame is cut off: {error}"),
    }
    let header = decode(&bytes);
    assert_eq!(header.encode(), bytes, "the format is known");
    let mut payload = vec![0; header.payload_bytes as usize];
    from.read_exact(&mut payload).await.unwrap();
    Some((header, payload))
}

fn decode(bytes: &[u8; HEADER_BYTES]) -> FrameHeader {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    FrameHeader {
        generation: Generation::new(Incarnation::new(long(8)), long(16)),
        step: Step::new(long(24)),
        plan: if short(40) == 0 { PlanSlot::First } else { PlanSlot::Steady },
        hop: short(42),
        kind: match word(4) {
            1 => FrameKind::Running,
            2 => FrameKind::Sum,
            3 => FrameKind::Trailer,
            kind => panic!("a ring has no frames of kind {kind}"),
        },
        chunk: word(32),
        payload_bytes: word(36),
    }
}
