//! The frames of TFRecord files, in which TensorBoard's event files are kept as well: the length of a record, the record, a
//! checksum of each. Reading is by place, so that several threads share a file. What records hold is not known here.
//!
//! ```text
//! length: u64 | masked crc32c of these 8 bytes: u32 | the record: length bytes | masked crc32c of the record: u32
//! ```
//!
//! All numbers have their lowest byte first. The format is described with TensorFlow's `tf.io.TFRecordWriter`.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::DataError;

/// Bytes of a frame before its record: the length and its checksum.
pub const HEAD_BYTES: u64 = 12;

/// Bytes of a frame after its record: the record's checksum.
pub const TAIL_BYTES: u64 = 4;

/// The longest record that is read or written. A record is held in memory whole, by several threads at once; what people keep in
/// one is an image or a text, a thousand times smaller. A longer one is refused, both ways.
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// To move a frame of so many bytes within memory takes less time than a call of the system; of a longer one, the head is read apart.
const SHORT_FRAME_BYTES: u64 = 16 << 10;

/// The checksum of `bytes` as frames have it: CRC32C, masked so that checksums of bytes that hold checksums are no worse than others.
#[must_use]
pub fn masked_crc(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

/// See [`masked_crc`]: of a CRC32C that was computed piece by piece.
#[must_use]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Writes frames. Each goes out in a single call, so that who reads along seldom meets half of one; a buffer below it is needed
/// only where records are tiny.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
    frame: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes to `inner`, from where that is.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            frame: Vec::new(),
        }
    }

    /// Writes one record in its frame.
    ///
    /// # Errors
    /// When it is longer than [`MAX_RECORD_BYTES`] (then nothing is written), or `inner` does not take it (then a part of the frame
    /// may be there, and everything after it cannot be read: start another file).
    pub fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let length = record.len() as u64;
        if length > MAX_RECORD_BYTES {
            let reason = format!("expected a record of at most {MAX_RECORD_BYTES} bytes, found one of {length}; split it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let length = length.to_le_bytes();
        self.frame.clear();
        self.frame.extend_from_slice(&length);
        self.frame.extend_from_slice(&masked_crc(&length).to_le_bytes());
        self.frame.extend_from_slice(record);
        self.frame.extend_from_slice(&masked_crc(record).to_le_bytes());
        self.inner.write_all(&self.frame)
    }

    /// Hands on what `inner` holds back.
    ///
    /// # Errors
    /// When `inner` cannot.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// What it writes to.
    #[must_use]
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// What it wrote to. It is not flushed.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.inner
    }
}

/// What tells a file from the same one changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its length.
    pub bytes: u64,
    /// When it was last written to, in nanoseconds since 1970.
    pub modified_ns: i128,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let bytes = metadata.len();
        Self { bytes, modified_ns }
    }
}

/// A file of frames, open for reading by place.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
    stamp: Stamp,
}

impl RecordFile {
    /// Opens `path`. Nothing of it is read yet.
    ///
    /// # Errors
    /// When it cannot be opened, is no file, or is packed by its name: then it must be unpacked first.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            return Err(packed(path, GZIP));
        }
        // Asked before it is opened: opening a pipe would wait for somebody to write to it.
        let metadata = fs::metadata(path).map_err(DataError::io(path, "look at it"))?;
        if !metadata.is_file() {
            let found = if metadata.is_dir() { "a folder" } else { "no regular file" };
            return Err(DataError::malformed(path, 0, "a file of TFRecords", found));
        }
        let file = File::open(path).map_err(DataError::io(path, "open it"))?;
        let metadata = file.metadata().map_err(DataError::io(path, "look at it"))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            stamp: Stamp::of(&metadata),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length and time when it was opened.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The record in the frame that begins at byte `offset`, with both checksums verified. Takes as much memory as the record has
    /// bytes.
    ///
    /// # Errors
    /// When no whole frame begins there, a checksum is another, or the file cannot be read.
    pub fn read(&self, offset: u64) -> Result<Vec<u8>, DataError> {
        self.expect_bytes(offset, HEAD_BYTES, "a record's length and its checksum")?;
        let mut head = [0; HEAD_BYTES as usize];
        self.file.read_exact_at(&mut head, offset).map_err(self.unread(offset))?;
        let length = self.length(offset, head)?;
        let at = offset + HEAD_BYTES;
        let mut record = vec![0; (length + TAIL_BYTES) as usize];
        self.file.read_exact_at(&mut record, at).map_err(self.unread(at))?;
        self.checked(at, record)
    }

    /// As [`RecordFile::read`], where the next frame is thought to begin at `end`: a short frame is then read in one call.
    pub(super) fn read_to(&self, offset: u64, end: u64) -> Result<Vec<u8>, DataError> {
        let bytes = end.checked_sub(offset).filter(|_| end <= self.stamp.bytes);
        let Some(bytes) = bytes.filter(|bytes| (HEAD_BYTES + TAIL_BYTES..=SHORT_FRAME_BYTES).contains(bytes)) else {
            return self.read(offset);
        };
        let mut frame = vec![0; bytes as usize];
        self.file.read_exact_at(&mut frame, offset).map_err(self.unread(offset))?;
        let head = *frame.first_chunk().expect("a head is no longer than a frame");
        if HEAD_BYTES + self.length(offset, head)? + TAIL_BYTES != bytes {
            return self.read(offset);
        }
        frame.drain(..HEAD_BYTES as usize);
        self.checked(offset + HEAD_BYTES, frame)
    }

    /// The length that the head of a frame at `offset` states: its checksum is right, and the whole frame is within the file.
    pub(super) fn length(&self, offset: u64, head: [u8; HEAD_BYTES as usize]) -> Result<u64, DataError> {
        let (length, stored) = head.split_first_chunk().expect("a head is longer than a length");
        let stored = u32::from_le_bytes(stored.try_into().expect("the rest of a head is its checksum"));
        let found = masked_crc(length);
        let length = u64::from_le_bytes(*length);
        if stored != found {
            if let Some(by) = packed_by(head).filter(|_| offset == 0) {
                return Err(packed(&self.path, by));
            }
            let expected = format!("a record's length with the checksum {stored:#010x}, as stored after it");
            let found = format!("the length {length}, with {found:#010x}; the length or the checksum is damaged");
            return Err(DataError::malformed(&self.path, offset, expected, found));
        }
        if length > MAX_RECORD_BYTES {
            let expected = format!("a record of at most {MAX_RECORD_BYTES} bytes");
            let found = format!("one of {length}");
            return Err(DataError::malformed(&self.path, offset, expected, found));
        }
        self.expect_bytes(offset + HEAD_BYTES, length + TAIL_BYTES, "a record and its checksum")?;
        Ok(length)
    }

    /// The record of `bytes`, which were read at `offset`, without its checksum, which must be right.
    fn checked(&self, offset: u64, mut bytes: Vec<u8>) -> Result<Vec<u8>, DataError> {
        let (record, tail) = bytes.split_last_chunk().expect("the checksum was read with the record");
        self.compare(offset, u32::from_le_bytes(*tail), masked_crc(record))?;
        let length = record.len();
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Compares the checksum that is stored after the record at `offset` with that of its bytes.
    pub(super) fn compare(&self, offset: u64, stored: u32, computed: u32) -> Result<(), DataError> {
        if stored == computed {
            return Ok(());
        }
        let expected = format!("a record with the checksum {stored:#010x}, as stored after it");
        let found = format!("one with {computed:#010x}; the file is damaged: fetch it anew");
        Err(DataError::malformed(&self.path, offset, expected, found))
    }

    /// Whether there are `count` bytes from `offset` on, which hold `what`.
    pub(super) fn expect_bytes(&self, offset: u64, count: u64, what: &str) -> Result<(), DataError> {
        let rest = self.stamp.bytes.saturating_sub(offset);
        if count <= rest {
            return Ok(());
        }
        let expected = format!("{count} bytes of {what}");
        let found = format!("{rest} bytes to the file's end; it is cut short: fetch it anew");
        Err(DataError::malformed(&self.path, offset, expected, found))
    }

    /// What is said when bytes at `offset`, which the file had, cannot be read.
    pub(super) fn unread(&self, offset: u64) -> impl FnOnce(io::Error) -> DataError {
        let (path, bytes) = (self.path.clone(), self.stamp.bytes);
        move |error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                let expected = format!("a file of {bytes} bytes, as it had when it was opened");
                return DataError::malformed(&path, offset, expected, "its end; somebody cut it since");
            }
            DataError::io(&path, "read it")(error)
        }
    }

    /// The file from its beginning on: once for each that is opened. What [`RecordFile::read`] does is apart from it.
    pub(super) fn in_sequence(&self) -> BufReader<&File> {
        BufReader::with_capacity(16 << 10, &self.file)
    }
}

/// What packs files, and how they are unpacked.
type Packer = (&'static str, &'static str);

const GZIP: Packer = ("gzip", "gunzip");
const ZLIB: Packer = ("zlib", "zlib-flate -uncompress");

/// What packed a file that begins so. TensorFlow does not add `.gz` to the names of files that it packs.
fn packed_by(head: [u8; HEAD_BYTES as usize]) -> Option<Packer> {
    match head {
        [0x1f, 0x8b, 0x08, ..] => Some(GZIP),
        // The upper bytes of a length that may be: a frame that is damaged.
        [_, _, _, _, 0, 0, 0, 0, ..] => None,
        // A window of 32 KiB and a checksum over the two bytes.
        [0x78, flags, ..] if (0x7800 + u32::from(flags)) % 31 == 0 => Some(ZLIB),
        _ => None,
    }
}

fn packed(path: &Path, (by, unpack): Packer) -> DataError {
    let expected = "TFRecords that are not packed, of which any can be read without those before it";
    let found = format!("a file that is packed by {by}; unpack it first ({unpack}), and give what comes out");
    DataError::malformed(path, 0, expected, found)
}
