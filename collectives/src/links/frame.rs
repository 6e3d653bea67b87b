//! The header before each chunk and trailer on a link. Knows no transport.
//!
//! | bytes | little-endian |
//! |---|---|
//! | 0..4 | `SDR` and the version of this format |
//! | 4..8 | kind |
//! | 8..16 | the generation's incarnation |
//! | 16..24 | the generation's count |
//! | 24..32 | step |
//! | 32..36 | chunk number, 0 for a trailer |
//! | 36..40 | bytes of the payload |
//! | 40..42 | the generation's plan: 0 its first, 1 its steady one |
//! | 42..44 | the hop's id in that plan |
//! | 44..48 | zero |
//!
//! A receiver knows every field of the frame that comes next, so it compares instead of believing.

use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::HopId;
use sardana_protocol::words::{Generation, Incarnation, Step};

use super::LinkError;

/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 48;

/// Bytes of a trailer's payload: its kind, then incarnation and count of the generation that it switches to, or zeros.
pub const TRAILER_BYTES: u32 = 17;

const MAGIC: u32 = u32::from_le_bytes(*b"SDR\x01");

/// What comes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The generation of the link (GEN-3).
    pub generation: Generation,
    /// The step whose sum is on its way; for a group, the number of the operation.
    pub step: Step,
    /// Which of the generation's plans it belongs to; for a group, which of its two lanes.
    pub plan: PlanSlot,
    /// The hop of that plan that it goes over; 0 for a group.
    pub hop: HopId,
    /// The kind of the payload.
    pub kind: FrameKind,
    /// The number of the chunk; 0 for what comes once.
    pub chunk: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
}

/// The kind of a payload, and its number in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum FrameKind {
    /// A chunk of the sum over some shards.
    #[strum(to_string = "a running sum")]
    Running = 1,
    /// A chunk of the sum over all shards.
    #[strum(to_string = "a finished sum")]
    Sum = 2,
    /// The orders for the boundary.
    #[strum(to_string = "a trailer")]
    Trailer = 3,
    /// A part of what another worker asked for.
    #[strum(to_string = "a part of a transfer")]
    Load = 4,
    /// What a rank of a group calls.
    #[strum(to_string = "a call of a group")]
    Call = 5,
    /// All ranks of a group call the same.
    #[strum(to_string = "the agreement of a group")]
    Agreed = 6,
    /// Values that a group passes on as they are.
    #[strum(to_string = "a part of a group's values")]
    Values = 7,
    /// What a rank tells all others of a generation's other means of summing.
    #[strum(to_string = "what a rank tells all others")]
    Told = 8,
}

/// One of a generation's two plans, and its number in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanSlot {
    /// For the generation's first step, which may be a retry.
    First = 0,
    /// For every later step.
    Steady = 1,
}

/// A part of a header, in the order of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum HeaderField {
    /// Format and version.
    #[strum(to_string = "format")]
    Magic,
    /// The generation's incarnation.
    Incarnation,
    /// The generation's count.
    #[strum(to_string = "generation count")]
    Count,
    /// The step.
    Step,
    /// The plan.
    Plan,
    /// The hop.
    Hop,
    /// The kind of payload.
    Kind,
    /// The chunk number.
    #[strum(to_string = "chunk number")]
    Chunk,
    /// The bytes of the payload.
    #[strum(to_string = "payload length")]
    PayloadBytes,
    /// The zeros at the end.
    #[strum(to_string = "reserved part")]
    Reserved,
}

impl FrameHeader {
    /// Compares what came with what is expected.
    ///
    /// # Errors
    /// When they differ.
    pub fn check(&self, found: &[u8; HEADER_BYTES]) -> Result<(), LinkError> {
        let expected = self.encode();
        if expected == *found {
            return Ok(());
        }
        for (field, start, end) in FIELDS {
            let (expected, found) = (number(&expected[start..end]), number(&found[start..end]));
            if expected != found {
                return Err(LinkError::Unexpected { field, expected, found });
            }
        }
        Ok(())
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.generation.incarnation().get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.count().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.step.get().to_le_bytes());
        bytes[32..36].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[40..42].copy_from_slice(&(self.plan as u16).to_le_bytes());
        bytes[42..44].copy_from_slice(&self.hop.to_le_bytes());
        bytes
    }
}

/// All 48 bytes, the most telling differences first.
const FIELDS: [(HeaderField, usize, usize); 10] = [
    (HeaderField::Magic, 0, 4),
    (HeaderField::Incarnation, 8, 16),
    (HeaderField::Count, 16, 24),
    (HeaderField::Step, 24, 32),
    (HeaderField::Plan, 40, 42),
    (HeaderField::Hop, 42, 44),
    (HeaderField::Kind, 4, 8),
    (HeaderField::Chunk, 32, 36),
    (HeaderField::PayloadBytes, 36, 40),
    (HeaderField::Reserved, 44, 48),
];

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// A trailer's payload.
#[must_use]
pub fn encode_trailer(trailer: Trailer) -> [u8; TRAILER_BYTES as usize] {
    let (kind, next): (u8, _) = match trailer {
        Trailer::Continue => (0, Generation::NONE),
        Trailer::Stop => (1, Generation::NONE),
        Trailer::Snapshot => (2, Generation::NONE),
        Trailer::Switch(next) => (3, next),
    };
    let mut payload = [0; TRAILER_BYTES as usize];
    payload[0] = kind;
    payload[1..9].copy_from_slice(&next.incarnation().get().to_le_bytes());
    payload[9..].copy_from_slice(&next.count().to_le_bytes());
    payload
}

/// The trailer with this payload.
///
/// # Errors
/// When it is of another length, of an unknown kind, or names a generation where its kind has none.
pub fn decode_trailer(payload: &[u8]) -> Result<Trailer, LinkError> {
    let unknown = LinkError::Trailer;
    let payload: [u8; TRAILER_BYTES as usize] = payload.try_into().map_err(|_| unknown(u8::MAX))?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| payload[at + byte]));
    let next = Generation::new(Incarnation::new(number(1)), number(9));
    let trailer = match payload[0] {
        0 => Trailer::Continue,
        1 => Trailer::Stop,
        2 => Trailer::Snapshot,
        3 => Trailer::Switch(next),
        found => return Err(unknown(found)),
    };
    match trailer {
        Trailer::Continue | Trailer::Stop | Trailer::Snapshot if next != Generation::NONE => Err(unknown(payload[0])),
        Trailer::Continue | Trailer::Stop | Trailer::Snapshot | Trailer::Switch(_) => Ok(trailer),
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::Incarnation;

    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            generation: Generation::new(Incarnation::new(0x0102), 0x0304),
            step: Step::new(0x0506),
            plan: PlanSlot::Steady,
            hop: 0x0708,
            kind: FrameKind::Sum,
            chunk: 0x090a,
            payload_bytes: 0x0b0c,
        }
    }

    #[test]
    fn the_bytes_are_fixed() {
        let mut expected = Vec::new();
        expected.extend(b"SDR\x01");
        expected.extend([2, 0, 0, 0]);
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend([4, 3, 0, 0, 0, 0, 0, 0]);
        expected.extend([6, 5, 0, 0, 0, 0, 0, 0]);
        expected.extend([10, 9, 0, 0, 12, 11, 0, 0]);
        expected.extend([1, 0, 8, 7, 0, 0, 0, 0]);
        assert_eq!(header().encode()[..], expected);
    }

    #[test]
    fn a_difference_in_any_byte_is_found_and_named() {
        let expected = header();
        assert!(expected.check(&expected.encode()).is_ok());
        let fields: [(HeaderField, usize); 10] = FIELDS.map(|(field, start, _)| (field, start));
        for byte in 0..HEADER_BYTES {
            let mut found = expected.encode();
            found[byte] ^= 0x40;
            let LinkError::Unexpected { field, .. } = expected.check(&found).unwrap_err() else {
                panic!("a different header is unexpected");
            };
            let (named, _) = fields
                .iter()
                .filter(|(_, start)| *start <= byte)
                .max_by_key(|(_, start)| *start)
                .unwrap();
            assert_eq!(field, *named, "byte {byte}");
        }
    }

    #[test]
    fn trailers_come_back_or_are_refused() {
        let next = Generation::new(Incarnation::new(0x0102), u64::MAX);
        for trailer in [Trailer::Continue, Trailer::Stop, Trailer::Snapshot, Trailer::Switch(next)] {
            assert_eq!(decode_trailer(&encode_trailer(trailer)).unwrap(), trailer);
        }
        let mut unknown = [0; TRAILER_BYTES as usize];
        unknown[0] = 7;
        assert!(matches!(decode_trailer(&unknown), Err(LinkError::Trailer(7))));
        // A generation where none belongs.
        unknown[0] = 1;
        unknown[9] = 1;
        assert!(matches!(decode_trailer(&unknown), Err(LinkError::Trailer(1))));
        assert!(decode_trailer(&[0]).is_err() && decode_trailer(&[]).is_err());
    }
}
