//! A store's segments, manifests, format file and names of files, as any bytes.

use std::io::{self, IoSlice};

use super::disk::DiskFile;
use super::format;
use super::manifest::Manifest;
use super::names::{ManifestKey, manifest_file, segment_number};
use super::record::{HEADER, Record};
use super::scan::{Scanned, newer, scan};
use crate::fuzzing::kind;

/// A file that can be read.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl DiskFile for Bytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.0.get(offset..))
            .unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn written(&self, _: u64, _: u64) {}
}

/// As they are, and with the hashes that are right.
///
/// # Panics
/// When what is found lies outside of the file, or is not found again.
pub fn fuzz(bytes: &[u8]) {
    match kind(bytes, 5) {
        (0, rest) => look(rest.to_vec()),
        (1, rest) => look(sealed(rest)),
        (2, rest) => manifest(rest),
        (3, rest) => {
            let sealed = [rest, b" check=", blake3::hash(rest).to_hex().as_bytes(), b"\n"].concat();
            for bytes in [rest, &sealed] {
                let _ = format::decode(bytes);
            }
        }
        (_, rest) => {
            if let Ok(name) = std::str::from_utf8(rest) {
                segment_number(name);
                manifest_file(name);
            }
        }
    }
}

/// Each header as it would be if its check were right: a third of all are looked into, and not skipped.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let (blocks, _) = bytes.as_chunks::<HEADER>();
    let mut file = Vec::new();
    for block in blocks {
        let offset = file.len() as u64;
        match Record::sealed(*block, 0, offset) {
            header if block[0] % 3 == 0 => file.extend_from_slice(&header),
            _ => file.extend_from_slice(block),
        }
    }
    file
}

fn look(bytes: Vec<u8>) {
    let file = Bytes(bytes);
    let length = file.0.len() as u64;
    newer(&file, 0);
    let Ok(found) = scan(&file, 0, 0, length) else { return };
    let mut at = 0;
    for one in found {
        let (begin, end) = match one {
            Scanned::Piece { place, .. } => (place.offset, place.offset + u64::from(place.len)),
            Scanned::Mark { end } => (at, end),
            Scanned::Gap { offset, end, .. } => (offset, end),
        };
        assert!(
            at <= begin && begin <= end && end <= length,
            "{begin}..{end} after {at} in {length} bytes"
        );
        at = if let Scanned::Gap { .. } | Scanned::Mark { .. } = one {
            end
        } else {
            begin
        };
    }
}

fn manifest(bytes: &[u8]) {
    let none = ManifestKey {
        step: sardana_protocol::words::Step::ZERO,
        id: super::names::ManifestId::new([0; 32]),
    };
    drop(Manifest::decode(bytes, none));
    let sealed = [bytes, blake3::hash(bytes).as_bytes()].concat();
    drop(Manifest::decode(&sealed, none));
}
