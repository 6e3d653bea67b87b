//! Records as bytes: what sled is given for keys and values, and what is noticed when it gives back something else. Pure.
//!
//! ```text
//! 0                         → head:  format, id, commits, records, digest, next chunks, hash of these
//! 1 chunks(8) index(2)      → a chunk of a long value
//! 2 table 0 key             → entry: length(4) chunks(8) hash(32) value, or nothing if it is in chunks
//! ```

use blake3::Hasher;

use super::limits::{CHUNK_BYTES, FORMAT, VALUE_BYTES};
use crate::bytes::take;

/// sled's key of the head.
pub(super) const HEAD_KEY: &[u8] = &[0];
/// What the keys of chunks begin with.
pub(super) const CHUNK: u8 = 1;
/// What the keys of entries begin with.
pub(super) const ENTRY: u8 = 2;

const HEADING: usize = 4 + 8 + 32;
const HEAD_BYTES: usize = 4 + 16 + 8 + 8 + 32 + 8 + 32;

/// The sum of the hashes of all records, whatever their order: what tells that none is missing, old or foreign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest([u64; 4]);

impl Digest {
    pub(super) fn add(&mut self, hash: &[u8; 32]) {
        for (lane, part) in self.0.iter_mut().zip(lanes(hash)) {
            *lane = lane.wrapping_add(part);
        }
    }

    pub(super) fn remove(&mut self, hash: &[u8; 32]) {
        for (lane, part) in self.0.iter_mut().zip(lanes(hash)) {
            *lane = lane.wrapping_sub(part);
        }
    }

    pub(super) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (part, lane) in bytes.chunks_exact_mut(8).zip(self.0) {
            part.copy_from_slice(&lane.to_le_bytes());
        }
        bytes
    }

    pub(super) fn of(bytes: &[u8; 32]) -> Self {
        Self(lanes(bytes))
    }
}

fn lanes(bytes: &[u8; 32]) -> [u64; 4] {
    let mut lanes = [0; 4];
    for (lane, part) in lanes.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *lane = u64::from_le_bytes(*part);
    }
    lanes
}

/// What there should be, written with every batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Which catalogue this is.
    pub(super) id: [u8; 16],
    /// How many batches it has had.
    pub(super) commits: u64,
    /// How many entries it has.
    pub(super) records: u64,
    /// The digest of all entries.
    pub(super) digest: Digest,
    /// The number of the next long value.
    pub(super) next_chunks: u64,
}

/// Why a head is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadFault {
    Damaged,
    Newer(u32),
}

impl Head {
    pub(super) fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            commits: 0,
            records: 0,
            digest: Digest::default(),
            next_chunks: 0,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.id);
        bytes.extend_from_slice(&self.commits.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&self.digest.bytes());
        bytes.extend_from_slice(&self.next_chunks.to_le_bytes());
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    /// The head in `bytes`, which end in the hash of the rest, whatever their version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeadFault> {
        let (rest, hash) = bytes.split_last_chunk::<32>().ok_or(HeadFault::Damaged)?;
        if blake3::hash(rest) != *hash {
            return Err(HeadFault::Damaged);
        }
        let mut rest = rest;
        let format = u32::from_le_bytes(take(&mut rest).ok_or(HeadFault::Damaged)?);
        if format > FORMAT {
            return Err(HeadFault::Newer(format));
        }
        Self::fields(rest).ok_or(HeadFault::Damaged)
    }

    fn fields(mut rest: &[u8]) -> Option<Self> {
        let head = Self {
            id: take(&mut rest)?,
            commits: u64::from_le_bytes(take(&mut rest)?),
            records: u64::from_le_bytes(take(&mut rest)?),
            digest: Digest::of(&take(&mut rest)?),
            next_chunks: u64::from_le_bytes(take(&mut rest)?),
        };
        rest.is_empty().then_some(head)
    }
}

/// What sled keeps for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heading {
    /// The value's bytes.
    pub(super) len: usize,
    /// The number of its chunks' keys, if it has chunks.
    pub(super) chunks: u64,
    /// The hash of table, key and value.
    pub(super) hash: [u8; 32],
}

impl Heading {
    pub(super) fn new(table: &str, key: &[u8], value: &[u8], chunks: u64) -> Self {
        let mut hasher = Hasher::new();
        for part in [table.as_bytes(), key, value] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self {
            len: value.len(),
            chunks,
            hash: *hasher.finalize().as_bytes(),
        }
    }

    /// How many chunks there are besides.
    pub(super) fn count(&self) -> u16 {
        match self.len {
            len if len <= CHUNK_BYTES => 0,
            len => u16::try_from(len.div_ceil(CHUNK_BYTES)).unwrap_or(u16::MAX),
        }
    }

    /// The entry, with the value if that has no chunks.
    pub(super) fn encode(&self, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADING + CHUNK_BYTES);
        bytes.extend_from_slice(&u32::try_from(self.len).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&self.chunks.to_le_bytes());
        bytes.extend_from_slice(&self.hash);
        if self.count() == 0 {
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// The heading of the entry in `bytes`, and the value if that has no chunks. None if it is no entry.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let heading = Self {
            len: u32::from_le_bytes(take(&mut bytes)?) as usize,
            chunks: u64::from_le_bytes(take(&mut bytes)?),
            hash: take(&mut bytes)?,
        };
        let inline = if heading.count() == 0 { heading.len } else { 0 };
        (heading.len <= VALUE_BYTES && bytes.len() == inline).then_some((heading, bytes))
    }
}

/// sled's key of a chunk.
pub(super) fn chunk_key(chunks: u64, index: u16) -> Vec<u8> {
    [&[CHUNK][..], &chunks.to_be_bytes(), &index.to_be_bytes()].concat()
}

/// sled's key of an entry.
pub(super) fn entry_key(table: &str, key: &[u8]) -> Vec<u8> {
    [&[ENTRY][..], table.as_bytes(), &[0], key].concat()
}

/// Table and key of sled's key of an entry. None if it is none.
pub(super) fn parse_entry(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    let (name, key) = rest.split_at(end);
    let name = std::str::from_utf8(name).ok()?;
    (kind == ENTRY && is_name(name)).then_some((name, key.get(1..)?))
}

/// Whether a table may be called so.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=super::limits::NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

/// A key for people: as text if it is some.
pub(super) fn shown(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) => text.to_owned(),
        Ok(_) | Err(_) => format!("0x{}", data_encoding::HEXLOWER.encode(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written_and_any_flipped_bit_is_noticed() {
        let mut head = Head::new([7; 16]);
        head.commits = 3;
        head.digest.add(blake3::hash(b"a").as_bytes());
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&flipped), Err(HeadFault::Damaged), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Head::decode(&bytes[..len]), Err(HeadFault::Damaged), "{len} bytes");
        }
    }

    #[test]
    fn a_later_head_is_told_from_a_damaged_one() {
        let mut later = [9_u32.to_le_bytes().as_slice(), b"what only a later release knows"].concat();
        later.extend_from_slice(blake3::hash(&later).as_bytes());
        assert_eq!(Head::decode(&later), Err(HeadFault::Newer(9)));
    }

    #[test]
    fn a_digest_is_of_the_set_and_not_of_the_order() {
        let hashes: Vec<[u8; 32]> = (0..9_u8).map(|byte| *blake3::hash(&[byte]).as_bytes()).collect();
        let (mut forth, mut back) = (Digest::default(), Digest::default());
        hashes.iter().for_each(|hash| forth.add(hash));
        hashes.iter().rev().for_each(|hash| back.add(hash));
        assert_eq!(forth, back);
        assert_eq!(Digest::of(&forth.bytes()), forth);
        hashes.iter().for_each(|hash| forth.remove(hash));
        assert_eq!(forth, Digest::default());
    }

    #[test]
    fn keys_are_read_as_written_and_in_the_order_of_the_tables_keys() {
        let keys: [&[u8]; 5] = [b"", b"\0", b"\0\0", b"a", b"\xff"];
        for (table, key) in ["a", "a-1", "jobs"].iter().flat_map(|table| keys.map(|key| (*table, key))) {
            assert_eq!(parse_entry(&entry_key(table, key)), Some((table, key)));
        }
        assert!(keys.is_sorted_by_key(|key| entry_key("jobs", key)));
        for bad in [
            &b""[..],
            b"\x02",
            b"\x02jobs",
            b"\x02\0key",
            b"\x02Jobs\0key",
            b"\x01jobs\0key",
        ] {
            assert_eq!(parse_entry(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn entries_of_all_sizes_are_read_as_written() {
        for len in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, VALUE_BYTES] {
            let value = vec![3; len];
            let heading = Heading::new("t", b"k", &value, 5);
            assert_eq!(
                usize::from(heading.count()) * CHUNK_BYTES >= len,
                len > CHUNK_BYTES || len == 0
            );
            let bytes = heading.encode(&value);
            let (read, inline) = Heading::decode(&bytes).unwrap();
            assert_eq!(read, heading);
            assert_eq!(inline.len(), if len > CHUNK_BYTES { 0 } else { len });
            assert_eq!(Heading::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
