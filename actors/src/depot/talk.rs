//! What is said on a stream to a depot. The asking end opens it, and says a [`Request`] first.
//!
//! ```text
//! put:       Request::Put, then until all are offered: offers ─▶, ◀─ Wanted, the bytes of those ─▶; at the end ◀─ Durable
//!            where the depot sees the writer's window, instead of the bytes: Shown ─▶, ◀─ Seen, as often as it takes
//! get:       Request::Get, the hashes ─▶; then for each ◀─ Bytes and the bytes, or NotHere, or Damaged
//! manifest:  Request::Manifest ─▶, ◀─ Bytes and the bytes, or NotHere, or Damaged
//! places:    Request::Places, the hashes ─▶, ◀─ Places, or NotHere if no other process sees the disk
//! ```
//!
//! Instead of any answer there may be some `Wait` first, or `Refused`, which is the last word.

use sardana_net::trust::Kind;
use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_protocol::snapshot::SnapshotId;
use sardana_storage::store::Place;
use serde::{Deserialize, Serialize};

use super::limits::REASON_BYTES;
use super::window::WindowAt;

/// What is asked of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Keep so many pieces for this snapshot's sake. They can be seen in this window, if that can be seen.
    Put {
        snapshot: SnapshotId,
        pieces: u32,
        window: Option<WindowAt>,
    },
    /// Give so many pieces.
    Get { pieces: u32 },
    /// Give this manifest.
    Manifest { key: ManifestKey },
    /// Say where so many pieces are, for a process of the same host.
    Places { pieces: u32 },
}

/// A piece that the client could send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) piece: PieceHash,
    pub(super) bytes: u32,
}

/// The next few of the pieces that are wanted are in the next pane of the window, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) pieces: u32,
}

/// What a depot answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is still at it.
    Wait,
    /// Of the last offers it lacks these, by index: their bytes are to follow in this order, in the window if it looks there.
    Wanted { offers: Vec<u32>, looks: bool },
    /// All that was offered on this stream is on the disk.
    Durable,
    /// So many bytes follow.
    Bytes { bytes: u64 },
    /// It does not have it.
    NotHere,
    /// It had it, and cannot read it.
    Damaged { reason: String },
    /// It does nothing more on this stream.
    Refused { reason: String },
    /// The folder of its segments, and where in them each piece is.
    Places { segments: String, places: Vec<Option<Place>> },
    /// It has looked at the pane that was filled first, which may be filled again.
    Seen,
    /// It sees nothing in the window any more, and does nothing more on this stream.
    Unseen,
}

impl From<&Request> for Kind {
    fn from(request: &Request) -> Self {
        match request {
            Request::Put { .. } => Self::PieceOffer,
            Request::Get { .. } | Request::Manifest { .. } | Request::Places { .. } => Self::PieceRequest,
        }
    }
}

/// A reason that fits into an answer.
pub(super) fn cut(mut reason: String) -> String {
    if reason.len() > REASON_BYTES {
        let end = (0..=REASON_BYTES).rev().find(|&at| reason.is_char_boundary(at)).unwrap_or(0);
        reason.truncate(end);
    }
    reason
}

#[cfg(test)]
mod tests {
    use sardana_protocol::checkpoint::ManifestId;
    use sardana_protocol::codec::encode;
    use sardana_protocol::words::{Generation, Incarnation, Step};

    use super::super::limits::{LIST_BYTES, PATH_BYTES, REQUEST_BYTES, ROUND_PIECES};
    use super::*;

    /// Checks that a value is exactly these bytes: a change is one of the wire format, and needs a new version.
    fn golden<T: Serialize>(value: &T, hex: &str) {
        let found = encode(value, LIST_BYTES).unwrap();
        assert_eq!(data_encoding::HEXLOWER.encode(&found), hex.replace(' ', ""));
    }

    #[test]
    fn what_is_said_on_the_wire() {
        let snapshot = SnapshotId {
            generation: Generation::new(Incarnation::new(1), 7),
            step: Step::new(9),
        };
        let piece = PieceHash::new([0xab; 32]);
        let key = ManifestKey {
            step: Step::new(9),
            id: ManifestId::new([0xcd; 32]),
        };
        let put = |window| Request::Put {
            snapshot,
            pieces: 3,
            window,
        };
        golden(&put(None), "00 01 07 09 03 00");
        let window = WindowAt {
            process: 300,
            descriptor: 9,
            mark: [0xef; 16],
        };
        golden(
            &put(Some(window)),
            &format!("00 01 07 09 03 01 fb2c01 09 {}", "ef".repeat(16)),
        );
        golden(&Shown { pieces: 3 }, "03");
        golden(&Request::Get { pieces: 3 }, "01 03");
        golden(&Request::Manifest { key }, &format!("02 09 {}", "cd".repeat(32)));
        golden(&vec![Offer { piece, bytes: 300 }], &format!("01 {} fb2c01", "ab".repeat(32)));
        golden(&Request::Places { pieces: 3 }, "03 03");
        golden(&Answer::Wait, "00");
        let (offers, looks) = (vec![0, 5], true);
        golden(&Answer::Wanted { offers, looks }, "01 02 00 05 01");
        golden(&Answer::Durable, "02");
        golden(&Answer::Bytes { bytes: 5 }, "03 05");
        golden(&Answer::NotHere, "04");
        golden(&Answer::Damaged { reason: "x".to_owned() }, "05 01 78");
        golden(&Answer::Refused { reason: "x".to_owned() }, "06 01 78");
        let place = Place {
            segment: 1,
            offset: 300,
            len: 5,
        };
        let (segments, places) = ("/a".to_owned(), vec![Some(place), None]);
        golden(&Answer::Places { segments, places }, "07 02 2f61 02 01 01 fb2c01 05 00");
        golden(&Answer::Seen, "08");
        golden(&Answer::Unseen, "09");
    }

    #[test]
    fn the_largest_of_each_fits() {
        let piece = PieceHash::new([0xff; 32]);
        let offers = vec![Offer { piece, bytes: u32::MAX }; ROUND_PIECES];
        encode(&offers, LIST_BYTES).unwrap();
        encode(&vec![piece; ROUND_PIECES], LIST_BYTES).unwrap();
        let offers = vec![u32::MAX; ROUND_PIECES];
        encode(&Answer::Wanted { offers, looks: true }, LIST_BYTES).unwrap();
        let place = Place {
            segment: u64::MAX,
            offset: u64::MAX,
            len: u32::MAX,
        };
        let (segments, places) = ("x".repeat(PATH_BYTES), vec![Some(place); ROUND_PIECES]);
        encode(&Answer::Places { segments, places }, LIST_BYTES).unwrap();
        let reason = cut("é".repeat(REASON_BYTES));
        assert_eq!(reason.len(), REASON_BYTES);
        encode(&Answer::Refused { reason }, REQUEST_BYTES).unwrap();
    }
}
