//! Pieces are appended to the newest segment, in large writes, and synced together.
//!
//! ```text
//! put ─▶ pwritev … (pending: no worker was told) ─▶ sync: fsync the folder if there is a new one, fdatasync the segments ─▶ held
//!                                                 └▶ a mark after them, which is synced with what comes next
//! ```
//!
//! A sync that failed is not tried again: after it the system has forgotten which pages were not written, and the next one succeeds
//! without them. Nothing more is written until the store is opened anew.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{DiskFile, write_all};
use super::error::WriteError;
use super::index::Change;
use super::limits::{UNNOTED_CHANGES, UNSYNCED_SEGMENTS, WRITE_BYTES, WRITE_PARTS};
use super::names::{PieceHash, Place, segment_name};
use super::record::{HEADER, Record, padding};
use super::shared::{Shared, held};
use super::state::{Pending, SegmentInfo};
use crate::private::PrivateError;

/// A segment that is written to.
#[derive(Debug)]
pub(super) struct Segment {
    number: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Where the next record begins.
    end: u64,
    /// Up to here it was synced.
    synced: u64,
    /// Up to here the last mark says that it was synced.
    marked: u64,
}

impl Segment {
    /// A segment of which all is synced.
    pub(super) fn whole(number: u64, path: PathBuf, file: Arc<dyn DiskFile>, len: u64) -> Self {
        Self {
            number,
            path,
            file,
            end: len,
            synced: len,
            marked: len,
        }
    }

    fn sync(&mut self) -> Result<(), PrivateError> {
        if self.synced < self.end {
            self.file.sync().map_err(|error| PrivateError::system(&self.path, error))?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Says in the segment itself that what is before was synced, for an opening without an index. If that fails, such an opening will
    /// write it again.
    fn mark(&mut self) -> io::Result<()> {
        if self.marked < self.synced {
            self.marked = self.synced;
            let header = Record::Mark.header(self.number, self.end);
            write_all(&*self.file, &mut [IoSlice::new(&header)], self.end)?;
            self.end += Record::Mark.span();
            self.synced = self.end;
            self.marked = self.end;
        }
        Ok(())
    }

    fn write(&mut self, pieces: &[Incoming<'_>]) -> io::Result<Vec<Place>> {
        let (mut places, mut headers, mut end) = (Vec::new(), Vec::new(), self.end);
        for piece in pieces {
            let record = piece.record();
            headers.push(record.header(self.number, end));
            let len = u32::try_from(piece.bytes.len()).unwrap_or(u32::MAX);
            places.push(Place {
                segment: self.number,
                offset: end,
                len,
            });
            end += record.span();
        }
        let mut parts = Vec::with_capacity(3 * pieces.len());
        for (header, piece) in headers.iter().zip(pieces) {
            parts.extend([header.as_slice(), piece.bytes, padding(piece.bytes.len())].map(IoSlice::new));
        }
        if let Err(error) = write_all(&*self.file, &mut parts, self.end) {
            // What was written of it is written over; this only gives its room back.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.file.written(self.end, end - self.end);
        self.end = end;
        Ok(places)
    }
}

/// A piece that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) hash: PieceHash,
    pub(super) bytes: &'a [u8],
    /// The place of the piece that this is a copy of.
    pub(super) copy_of: Option<Place>,
}

impl Incoming<'_> {
    fn record(&self) -> Record {
        Record::Piece {
            hash: self.hash,
            len: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Where pieces are appended.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The number of the next segment.
    pub(super) next: u64,
    pub(super) current: Option<Segment>,
    /// Segments that are full, and perhaps not synced.
    full: Vec<Segment>,
    /// A segment was made since their folder was synced.
    new_names: bool,
}

impl Writer {
    /// Segments that are still written or synced.
    pub(super) fn in_use(&self) -> Vec<u64> {
        self.full.iter().chain(&self.current).map(|segment| segment.number).collect()
    }
}

impl Shared {
    /// Writes `pieces`, which are pending then. With an error some of them are.
    pub(super) fn append(&self, writer: &mut Writer, mut pieces: &[Incoming<'_>]) -> Result<(), WriteError> {
        self.writable()?;
        while let Some(first) = pieces.first() {
            let limit = self.segment_bytes;
            let segment = self.room(writer, first.record().span())?;
            let (mut count, mut bytes) = (0, 0);
            for piece in pieces.iter().take(WRITE_PARTS / 3) {
                bytes += piece.record().span();
                if count > 0 && (bytes > WRITE_BYTES as u64 || segment.end + bytes > limit) {
                    break;
                }
                count += 1;
            }
            let (now, later) = pieces.split_at(count);
            let written = segment.write(now);
            let (path, number, end) = (segment.path.clone(), segment.number, segment.end);
            let places = written.map_err(|error| self.refuse(PrivateError::system(&path, error)))?;
            let mut state = held(&self.state);
            for (piece, place) in now.iter().zip(places) {
                let copy_of = piece.copy_of;
                let pending = Pending { place, copy_of };
                match copy_of {
                    None => drop(state.pending.insert(piece.hash, pending)),
                    Some(_) => drop(state.pending.entry(piece.hash).or_insert(pending)),
                }
            }
            state.segments.entry(number).or_default().len = end;
            pieces = later;
        }
        Ok(())
    }

    /// A segment with room for so many bytes.
    fn room<'a>(&self, writer: &'a mut Writer, span: u64) -> Result<&'a mut Segment, WriteError> {
        let empty = HEADER as u64;
        let fits = |segment: &Segment| segment.end == empty || segment.end + span <= self.segment_bytes;
        if !writer.current.as_ref().is_some_and(fits) {
            self.begin_segment(writer)?;
        }
        match &mut writer.current {
            Some(segment) => Ok(segment),
            // Cannot be: one was just begun.
            None => Err(self.poisoned("there is no segment to write to".to_owned())),
        }
    }

    /// Closes the current segment, and begins the next one.
    pub(super) fn begin_segment(&self, writer: &mut Writer) -> Result<(), WriteError> {
        self.writable()?;
        writer.full.extend(writer.current.take());
        if writer.full.len() >= UNSYNCED_SEGMENTS {
            self.sync_all(writer)?;
        }
        let number = writer.next;
        writer.next += 1;
        let path = self.segments.join(segment_name(number));
        let file = self.disk.create(&path).map_err(|error| self.refuse(error))?;
        writer.new_names = true;
        let header = Record::Heading.header(number, 0);
        if let Err(error) = write_all(&*file, &mut [IoSlice::new(&header)], 0) {
            // An empty segment would do no harm either.
            let _ = self.disk.remove(&path);
            return Err(self.refuse(PrivateError::system(&path, error)));
        }
        let len = HEADER as u64;
        held(&self.state).segments.insert(number, SegmentInfo { len, gaps: false });
        writer.current = Some(Segment {
            number,
            path,
            file,
            end: len,
            synced: 0,
            marked: 0,
        });
        Ok(())
    }

    /// What is pending is on the disk, and held, when this returns.
    pub(super) fn sync_all(&self, writer: &mut Writer) -> Result<(), WriteError> {
        self.writable()?;
        // The names first: see how manifests are synced.
        if writer.new_names {
            let synced = self.disk.sync_folder(&self.segments);
            synced.map_err(|error| self.spoil(&error))?;
            writer.new_names = false;
        }
        for segment in writer.full.iter_mut().chain(&mut writer.current) {
            segment.sync().map_err(|error| self.spoil(&error))?;
        }
        let unnoted = {
            let mut state = held(&self.state);
            state.settle();
            for segment in writer.full.iter().chain(&writer.current) {
                if segment.marked < segment.synced {
                    state.changes.push(Change::Covered(segment.number, segment.synced));
                }
            }
            state.changes.len()
        };
        for segment in writer.full.iter_mut().chain(&mut writer.current) {
            if let Err(error) = segment.mark() {
                tracing::debug!(%error, segment = segment.number, "a mark could not be written");
            }
            let mut state = held(&self.state);
            state.segments.entry(segment.number).or_default().len = segment.end;
        }
        writer.full.clear();
        if unnoted > UNNOTED_CHANGES {
            self.note();
        }
        Ok(())
    }
}
