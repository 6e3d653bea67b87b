//! Where the records of a file begin. A TFRecord file does not say, so it is walked through once, from frame to frame, and what was
//! found is kept beside it: `train.tfrecord` has `train.tfrecord.index`. What records hold is not known here.
//!
//! ```text
//! the line that names format and version | the data file's length: u64, and time in ns: i128 | records: u64 |
//! hash of what the data are: 32 bytes | where each record begins: u64 each | blake3 of all this: 32 bytes
//! ```
//!
//! A kept index is a saving and nothing else. One that is damaged, of another version, or of a file with another length or time is
//! made anew; one that cannot be written is made each time. Where a file was changed and given its time back, its old index is
//! believed, but no record is: each is verified when it is read.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::framing::{self, HEAD_BYTES, RecordFile, Stamp, TAIL_BYTES};
use crate::{DataError, DataHash};

/// The first line of an index: the version is what follows [`NAME`].
const LINE: &[u8; 26] = b"sardana tfrecord index v1\n";

/// What an index of any version begins with. A file that does not is somebody else's, and stays.
const NAME: &[u8] = b"sardana tfrecord index v";

/// Bytes before the places of records.
const FIXED_BYTES: usize = LINE.len() + 8 + 16 + 8 + 32;

/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: u64 = 32;

/// Progress is told each time that so many bytes more have been passed: often enough for a bar, seldom enough to cost nothing.
const PROGRESS_BYTES: u64 = 4 << 20;

/// What of the records is verified while an index is made. Their lengths always are: without them no record would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Only the checksums of lengths. Records are passed over; each is verified whenever it is read.
    Lengths,
    /// The checksums of records too: reads the whole file.
    Payloads,
}

/// What [`index_file`] found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSummary {
    /// How many records the file has.
    pub records: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many bytes its longest record has.
    pub longest_record_bytes: u64,
    /// What the data are called in a fingerprint: over the length and the checksum of each record.
    pub hash: DataHash,
    /// Where the index is now.
    pub kept: Kept,
}

/// Whether an index is kept for the next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In this file.
    Beside(PathBuf),
    /// It is not: it will be made again each time the data are opened.
    Not {
        /// Where it should be.
        at: PathBuf,
        /// Why it is not.
        reason: String,
    },
}

/// Makes the index of the TFRecord file `path` anew and keeps it beside it. `progress` is told how many bytes have been passed,
/// from time to time and at the end. A data set does this by itself when it is opened; done before, a run does not wait for it.
///
/// # Errors
/// When the file is damaged, packed, or cannot be read. That the index cannot be kept is none: see [`Kept::Not`].
pub fn index_file(path: &Path, verify: Verify, progress: &mut dyn FnMut(u64)) -> Result<IndexSummary, DataError> {
    let (index, longest_record_bytes) = Index::make(&RecordFile::open(path)?, verify, progress)?;
    let at = place(path);
    let kept = match index.keep(&at) {
        Ok(()) => Kept::Beside(at),
        Err(error) => Kept::Not {
            at,
            reason: error.to_string(),
        },
    };
    Ok(IndexSummary {
        records: index.records(),
        bytes: index.stamp.bytes,
        longest_record_bytes,
        hash: index.hash(),
        kept,
    })
}

/// Where the index of `path` is kept.
pub(super) fn place(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".index");
    PathBuf::from(name)
}

/// Where the records of one file begin. Takes 8 bytes a record.
#[derive(PartialEq, Eq)]
pub(super) struct Index {
    stamp: Stamp,
    hash: [u8; 32],
    offsets: Vec<u64>,
}

impl fmt::Debug for Index {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records();
        let mut shown = formatter.debug_struct("Index");
        shown
            .field("stamp", &self.stamp)
            .field("records", &records)
            .finish_non_exhaustive()
    }
}

impl Index {
    /// The index that is kept of `file`, or one that is made and kept now.
    pub(super) fn of(file: &RecordFile) -> Result<Self, DataError> {
        let at = place(file.path());
        if let Some(index) = Self::kept(&at, file.stamp()) {
            return Ok(index);
        }
        let (index, _) = Self::make(file, Verify::Lengths, &mut |_| {})?;
        // Who may not write there makes it each time.
        index.keep(&at).ok();
        Ok(index)
    }

    /// How many records there are.
    pub(super) fn records(&self) -> u64 {
        self.offsets.len() as u64
    }

    /// Where record `number` begins.
    pub(super) fn offset(&self, number: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(number).ok()?).copied()
    }

    /// Where record `number` begins, and where the next one does, or the file ends.
    pub(super) fn frame(&self, number: u64) -> Option<Range<u64>> {
        let end = self.offset(number.checked_add(1)?).unwrap_or(self.stamp.bytes);
        Some(self.offset(number)?..end)
    }

    /// Of the file that it is of.
    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Over the length and the checksum of each record, in order.
    pub(super) fn hash(&self) -> DataHash {
        DataHash::of(&self.hash)
    }

    /// Walks through `file`. Also says how long its longest record is.
    fn make(file: &RecordFile, verify: Verify, progress: &mut dyn FnMut(u64)) -> Result<(Self, u64), DataError> {
        let stamp = file.stamp();
        let mut walk = Walk {
            file,
            reader: file.in_sequence(),
            offset: 0,
        };
        let (mut offsets, mut longest, mut told) = (Vec::new(), 0, 0);
        let mut hasher = DataHash::hasher();
        while walk.offset < stamp.bytes {
            offsets.push(walk.offset);
            let (length, checksum) = walk.step(verify)?;
            // The checksum of the length says no more than the length, since it is right.
            hasher.update(&length.to_le_bytes());
            hasher.update(&checksum.to_le_bytes());
            longest = longest.max(length);
            if walk.offset - told >= PROGRESS_BYTES {
                told = walk.offset;
                progress(told);
            }
        }
        progress(stamp.bytes);
        offsets.shrink_to_fit();
        let hash = hasher.finalize().into();
        Ok((Self { stamp, hash, offsets }, longest))
    }

    /// The index at `at`, if it is whole and of a file with this stamp.
    fn kept(at: &Path, stamp: Stamp) -> Option<Self> {
        let metadata = fs::metadata(at).ok().filter(fs::Metadata::is_file)?;
        let mut reader = Hashed::new(BufReader::new(File::open(at).ok()?));
        let fixed: [u8; FIXED_BYTES] = reader.array()?;
        let (known, rest) = fixed.split_at(FIXED_BYTES - 40);
        let (records, hash) = rest.split_first_chunk()?;
        let records = u64::from_le_bytes(*records);
        // Before any memory is taken for them.
        let bytes = FIXED_BYTES as u64 + CHECKSUM_BYTES;
        let bytes = records.checked_mul(8).and_then(|places| places.checked_add(bytes));
        let frames = stamp.bytes / (HEAD_BYTES + TAIL_BYTES);
        if known != Self::known(stamp) || records > frames || bytes != Some(metadata.len()) {
            return None;
        }
        let mut offsets = Vec::with_capacity(usize::try_from(records).ok()?);
        for _ in 0..records {
            offsets.push(u64::from_le_bytes(reader.array()?));
        }
        let computed = reader.hasher.finalize();
        let stored: [u8; 32] = reader.array()?;
        let hash = hash.try_into().ok()?;
        (computed == stored).then_some(Self { stamp, hash, offsets })
    }

    /// How an index of a file with this stamp begins.
    fn known(stamp: Stamp) -> Vec<u8> {
        let Stamp { bytes, modified_ns } = stamp;
        [&LINE[..], &bytes.to_le_bytes(), &modified_ns.to_le_bytes()].concat()
    }

    /// Writes it to `at`: whole, or not at all.
    fn keep(&self, at: &Path) -> io::Result<()> {
        if is_foreign(at)? {
            return Err(io::Error::other("something else has this name, which is left alone"));
        }
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // Others may be at it in this moment, also from other hosts.
        let new = folder.join(format!(".sardana-index-{:016x}", RandomState::new().build_hasher().finish()));
        let written = self.write(&new).and_then(|()| fs::rename(&new, at));
        if written.is_err() {
            fs::remove_file(&new).ok();
        }
        written
    }

    /// Writes it to the new file `new`, and to the disk.
    fn write(&self, new: &Path) -> io::Result<()> {
        let mut writer = BufWriter::new(File::create_new(new)?);
        let mut hasher = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            writer.write_all(bytes)
        };
        put(&Self::known(self.stamp))?;
        put(&self.records().to_le_bytes())?;
        put(&self.hash)?;
        self.offsets.iter().try_for_each(|offset| put(&offset.to_le_bytes()))?;
        writer.write_all(hasher.finalize().as_bytes())?;
        // Else after a crash the name may be there before the bytes are.
        writer.into_inner()?.sync_all()
    }
}

/// Whether at `at` is something that was not written here: tools for TFRecords keep indexes of their own kind.
fn is_foreign(at: &Path) -> io::Result<bool> {
    match fs::metadata(at) {
        Ok(metadata) if metadata.is_file() => {
            let mut start = Vec::new();
            File::open(at)?.take(NAME.len() as u64).read_to_end(&mut start)?;
            Ok(!start.is_empty() && start != NAME)
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is read of an index, with a hash over it.
struct Hashed<R> {
    reader: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Hashed<R> {
    fn new(reader: R) -> Self {
        let hasher = blake3::Hasher::new();
        Self { reader, hasher }
    }

    /// The next bytes, if there are so many.
    fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.reader.read_exact(&mut bytes).ok()?;
        self.hasher.update(&bytes);
        Some(bytes)
    }
}

/// A walk through a file, from frame to frame.
struct Walk<'a> {
    file: &'a RecordFile,
    reader: BufReader<&'a File>,
    offset: u64,
}

impl Walk<'_> {
    /// Passes one frame: the length of its record, and the checksum that is stored of it.
    fn step(&mut self, verify: Verify) -> Result<(u64, u32), DataError> {
        let start = self.offset;
        self.file
            .expect_bytes(start, HEAD_BYTES, "a record's length and its checksum")?;
        let mut head = [0; HEAD_BYTES as usize];
        self.read(&mut head)?;
        let length = self.file.length(start, head)?;
        let computed = match verify {
            Verify::Lengths => {
                let over = i64::try_from(length).expect("a record has at most 1 GiB");
                self.reader.seek_relative(over).map_err(self.file.unread(self.offset))?;
                self.offset += length;
                None
            }
            Verify::Payloads => Some(self.checksum(length)?),
        };
        let mut tail = [0; TAIL_BYTES as usize];
        self.read(&mut tail)?;
        let stored = u32::from_le_bytes(tail);
        if let Some(computed) = computed {
            self.file.compare(start + HEAD_BYTES, stored, computed)?;
        }
        Ok((length, stored))
    }

    /// The checksum of the next `length` bytes.
    fn checksum(&mut self, length: u64) -> Result<u32, DataError> {
        let mut piece = [0; 16 << 10];
        let (mut left, mut crc) = (length, 0);
        while left > 0 {
            let count = left.min(piece.len() as u64);
            let piece = &mut piece[..count as usize];
            self.read(piece)?;
            crc = crc32c::crc32c_append(crc, piece);
            left -= count;
        }
        Ok(framing::mask(crc))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), DataError> {
        self.reader.read_exact(bytes).map_err(self.file.unread(self.offset))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
