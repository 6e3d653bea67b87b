//! Reads the records of a segment one after the other. What is damaged is skipped, and those after it are found.

use std::io;

use super::disk::{DiskFile, read_full};
use super::names::{PieceHash, Place};
use super::record::{HEADER, HeaderFault, Record};

/// What was found, in the order of the offsets.
#[derive(Debug)]
pub(super) enum Scanned {
    /// A piece, by its header; its bytes were not looked at.
    Piece { hash: PieceHash, place: Place },
    /// A mark that ends here.
    Mark { end: u64 },
    /// No records from here to there.
    Gap { offset: u64, end: u64, unread: Option<String> },
}

impl Scanned {
    /// Where it ends, if it is a mark.
    pub(super) fn mark(&self) -> Option<u64> {
        match self {
            Self::Mark { end } => Some(*end),
            Self::Piece { .. } | Self::Gap { .. } => None,
        }
    }
}

/// Bytes that are read at once for headers: those of small pieces come many at a time, and for large ones it costs nothing.
const WINDOW: usize = 16 << 10;

/// What is skipped where the disk cannot be read: it fails by pages.
const UNREAD: u64 = 4 << 10;

struct Window<'a> {
    file: &'a dyn DiskFile,
    segment: u64,
    buffer: Vec<u8>,
    at: u64,
}

/// What is at an offset.
enum Here {
    Record(Record),
    Newer(u16),
    Nothing,
    Unread(String),
}

impl Window<'_> {
    fn header(&mut self, offset: u64) -> io::Result<Option<&[u8; HEADER]>> {
        let within = |at: u64, len: usize| offset >= at && offset + HEADER as u64 <= at + len as u64;
        if !within(self.at, self.buffer.len()) {
            // If the disk cannot read so much, the header alone may be readable.
            self.fill(offset, WINDOW).or_else(|_window| self.fill(offset, HEADER))?;
        }
        let start = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
        Ok(self.buffer.get(start..).and_then(|rest| rest.first_chunk()))
    }

    fn fill(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        self.buffer.resize(bytes, 0);
        self.at = offset;
        let read = read_full(self.file, &mut self.buffer, offset);
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    fn look(&mut self, offset: u64) -> Here {
        let segment = self.segment;
        match self.header(offset) {
            Err(error) => Here::Unread(error.to_string()),
            Ok(None) => Here::Nothing,
            Ok(Some(header)) => match Record::read(header, segment, offset) {
                Ok(record) => Here::Record(record),
                Err(HeaderFault::Newer(format)) => Here::Newer(format),
                Err(HeaderFault::Damaged) => Here::Nothing,
            },
        }
    }
}

/// The heading's format, if it is a later one than ours.
pub(super) fn newer(file: &dyn DiskFile, segment: u64) -> Option<u16> {
    match window(file, segment).look(0) {
        Here::Newer(format) => Some(format),
        Here::Record(_) | Here::Nothing | Here::Unread(_) => None,
    }
}

fn window(file: &dyn DiskFile, segment: u64) -> Window<'_> {
    Window {
        file,
        segment,
        buffer: Vec::new(),
        at: 0,
    }
}

/// What is in a segment of `len` bytes from offset `from` on, where a record begins; or its format, if a later release wrote it.
pub(super) fn scan(file: &dyn DiskFile, segment: u64, from: u64, len: u64) -> Result<Vec<Scanned>, u16> {
    let mut window = window(file, segment);
    let (mut found, mut offset) = (Vec::new(), from);
    // Where the gap began, and what the disk said in it.
    let mut gap: Option<(u64, Option<String>)> = None;
    while offset < len {
        let (record, unread) = match window.look(offset) {
            Here::Newer(format) => return Err(format),
            // What ends behind the end of the file was torn.
            Here::Record(record) if offset + record.span() <= len => (Some(record), None),
            Here::Record(_) | Here::Nothing => (None, None),
            Here::Unread(reason) => (None, Some(reason)),
        };
        let Some(record) = record else {
            let step = if unread.is_some() { UNREAD } else { HEADER as u64 };
            let (_, reason) = gap.get_or_insert((offset, None));
            *reason = reason.take().or(unread);
            offset += step;
            continue;
        };
        if let Some((offset_of, unread)) = gap.take() {
            found.push(Scanned::Gap {
                offset: offset_of,
                end: offset,
                unread,
            });
        }
        let place = |len| Place { segment, offset, len };
        let end = offset + record.span();
        match record {
            Record::Heading => {}
            Record::Piece { hash, len } => found.push(Scanned::Piece { hash, place: place(len) }),
            Record::Mark => found.push(Scanned::Mark { end }),
        }
        offset = end;
    }
    if let Some((offset, unread)) = gap {
        found.push(Scanned::Gap {
            offset,
            end: len,
            unread,
        });
    }
    Ok(found)
}
