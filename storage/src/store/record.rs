//! A record of a segment as bytes. A record says by itself what it is, and where it is: a copy of a segment inside a piece is not taken
//! for records.
//!
//! ```text
//! offset  bytes
//!      0      8   "SARDREC\n"
//!      8      2   format
//!     10      2   what it is: heading 0, piece 1, mark 2
//!     12      4   bytes that follow the header
//!     16     32   their BLAKE3 hash
//!     48     16   BLAKE3 of all before, the segment's number and the record's offset, cut to 16 bytes
//!     64      …   a piece's bytes, then zeros up to a multiple of 64
//! ```

use super::limits::{FORMAT, PIECE_BYTES};
use super::names::PieceHash;

/// Bytes of a header, and what records are aligned to.
pub(super) const HEADER: usize = 64;

const ALIGN: u64 = HEADER as u64;
const MAGIC: &[u8; 8] = b"SARDREC\n";
const CHECKED: usize = 48;

/// A record, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The first one of each segment.
    Heading,
    /// A piece.
    Piece { hash: PieceHash, len: u32 },
    /// All before it in this segment was synced before this was written.
    Mark,
}

/// What a header says of its record.
#[derive(PartialEq, Eq)]
struct Fields {
    kind: u16,
    len: u32,
    hash: [u8; 32],
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// It is not what was written there.
    Damaged,
    /// It is of a later format than ours.
    Newer(u16),
}

impl Record {
    /// Bytes from this record to the next one.
    pub(super) fn span(self) -> u64 {
        match self {
            Self::Heading | Self::Mark => ALIGN,
            Self::Piece { len, .. } => ALIGN + u64::from(len).next_multiple_of(ALIGN),
        }
    }

    fn fields(self) -> Fields {
        let bare = |kind| Fields {
            kind,
            len: 0,
            hash: [0; 32],
        };
        match self {
            Self::Heading => bare(0),
            Self::Piece { hash, len } => Fields {
                len,
                hash: hash.bytes(),
                ..bare(1)
            },
            Self::Mark => bare(2),
        }
    }

    /// The header for this place.
    pub(super) fn header(self, segment: u64, offset: u64) -> [u8; HEADER] {
        let Fields { kind, len, hash } = self.fields();
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        header[10..12].copy_from_slice(&kind.to_le_bytes());
        header[12..16].copy_from_slice(&len.to_le_bytes());
        header[16..48].copy_from_slice(&hash);
        let check = check(&header, segment, offset);
        header[CHECKED..].copy_from_slice(&check);
        header
    }

    /// These bytes as a header for this place: what is the same in all of them is right.
    #[cfg(feature = "fuzzing")]
    pub(super) fn sealed(mut header: [u8; HEADER], segment: u64, offset: u64) -> [u8; HEADER] {
        header[..8].copy_from_slice(MAGIC);
        let check = check(&header, segment, offset);
        header[CHECKED..].copy_from_slice(&check);
        header
    }

    /// What the header at this place says. Magic, format and check are in these places in every format.
    pub(super) fn read(header: &[u8; HEADER], segment: u64, offset: u64) -> Result<Self, HeaderFault> {
        if !header.starts_with(MAGIC) || header[CHECKED..] != check(header, segment, offset) {
            return Err(HeaderFault::Damaged);
        }
        let fields = fields(header);
        match u16::from_le_bytes([header[8], header[9]]) {
            FORMAT => {}
            format if format > FORMAT => return Err(HeaderFault::Newer(format)),
            _ => return Err(HeaderFault::Damaged),
        }
        let len = fields.len;
        let record = match fields.kind {
            0 => Self::Heading,
            1 if len as usize <= PIECE_BYTES => Self::Piece {
                hash: PieceHash::new(fields.hash),
                len,
            },
            2 => Self::Mark,
            _ => return Err(HeaderFault::Damaged),
        };
        if record.fields() == fields {
            Ok(record)
        } else {
            Err(HeaderFault::Damaged)
        }
    }
}

fn fields(header: &[u8; HEADER]) -> Fields {
    let mut hash = [0; 32];
    hash.copy_from_slice(&header[16..48]);
    let len = [header[12], header[13], header[14], header[15]];
    Fields {
        kind: u16::from_le_bytes([header[10], header[11]]),
        len: u32::from_le_bytes(len),
        hash,
    }
}

fn check(header: &[u8; HEADER], segment: u64, offset: u64) -> [u8; HEADER - CHECKED] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..CHECKED]);
    hasher.update(&segment.to_le_bytes()).update(&offset.to_le_bytes());
    let mut check = [0; HEADER - CHECKED];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..HEADER - CHECKED]);
    check
}

/// Zeros after a piece of `len` bytes.
pub(super) fn padding(len: usize) -> &'static [u8] {
    const ZEROS: [u8; HEADER] = [0; HEADER];
    &ZEROS[..len.next_multiple_of(HEADER) - len]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> [Record; 4] {
        let piece = |len| Record::Piece {
            hash: PieceHash::of(b"abc"),
            len,
        };
        [Record::Heading, piece(3), piece(PIECE_BYTES as u32), Record::Mark]
    }

    #[test]
    fn a_header_is_read_as_written_at_its_place_only() {
        for record in some() {
            let header = record.header(3, 640);
            assert_eq!(Record::read(&header, 3, 640), Ok(record));
            assert_eq!(Record::read(&header, 4, 640), Err(HeaderFault::Damaged));
            assert_eq!(Record::read(&header, 3, 704), Err(HeaderFault::Damaged));
            for bit in 0..HEADER * 8 {
                let mut flipped = header;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::read(&flipped, 3, 640), Err(HeaderFault::Damaged), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_later_format_is_told_from_damage_and_an_impossible_length_is_damage() {
        let mut header = Record::Mark.header(1, 64);
        header[8] = 9;
        let checked = check(&header, 1, 64);
        header[CHECKED..].copy_from_slice(&checked);
        assert_eq!(Record::read(&header, 1, 64), Err(HeaderFault::Newer(9)));
        let long = Record::Piece {
            hash: PieceHash::of(b""),
            len: PIECE_BYTES as u32 + 1,
        };
        assert_eq!(Record::read(&long.header(1, 64), 1, 64), Err(HeaderFault::Damaged));
    }

    #[test]
    fn records_are_aligned() {
        for len in [0, 1, 63, 64, 65, PIECE_BYTES] {
            let record = Record::Piece {
                hash: PieceHash::of(b""),
                len: len as u32,
            };
            assert_eq!(record.span(), (HEADER + len + padding(len).len()) as u64);
            assert!(record.span().is_multiple_of(ALIGN));
        }
    }
}
