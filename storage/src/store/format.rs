//! The file that says of which version a store is, and which index is its own.
//!
//! ```text
//! sardana-store 1 index=NNNNNNNNNNNNNNNN check=…
//! ```
//!
//! Whenever the store goes on without its index, the number changes first. An index that says another number than this file is behind what
//! was acknowledged since, and cannot tell: it is not believed. The file is written over in place, which needs no room on a full disk; torn
//! it says no number, and so no index is believed.

use std::io::{self, IoSlice};

use super::FORMAT_FILE;
use super::disk::{Disk, read_full, write_all};
use super::error::OpenError;
use super::limits::FORMAT;
use super::shared::Shared;
use crate::private::PrivateError;

const WORD: &str = "sardana-store";

/// More is not read of it.
const MOST_BYTES: usize = 256;

/// What the format file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The number of its index.
    Ours(u64),
    Missing,
    Damaged,
}

fn line(index: u64) -> String {
    let text = format!("{WORD} {FORMAT} index={index:016x}");
    format!("{text} check={}\n", blake3::hash(text.as_bytes()))
}

/// Reads the format file.
pub(super) fn read(disk: &dyn Disk, folder: &std::path::Path) -> Result<Format, OpenError> {
    let path = folder.join(FORMAT_FILE);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(PrivateError::Missing { .. }) => return Ok(Format::Missing),
        Err(error) => return Err(error.into()),
    };
    let mut buffer = [0; MOST_BYTES];
    let read = read_full(&*file, &mut buffer, 0).map_err(|error| PrivateError::system(&path, error))?;
    match decode(&buffer[..read]) {
        Ok(format) => Ok(format),
        Err(found) => Err(OpenError::Newer { path, found }),
    }
}

/// What these bytes say, or that a newer version has written them.
pub(super) fn decode(bytes: &[u8]) -> Result<Format, u32> {
    let whole = || {
        let (text, check) = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.rsplit_once(" check=")?;
        (blake3::hash(text.as_bytes()).to_hex().as_str() == check).then_some(())?;
        let mut words = text.split(' ');
        let format: u32 = (words.next() == Some(WORD)).then(|| words.next())??.parse().ok()?;
        let index = words.next().and_then(|word| word.strip_prefix("index="));
        Some((format, index.and_then(|index| u64::from_str_radix(index, 16).ok())))
    };
    match whole() {
        Some((found, _)) if found > u32::from(FORMAT) => Err(found),
        Some((_, Some(index))) if line(index).as_bytes() == bytes => Ok(Format::Ours(index)),
        Some(_) | None => Ok(Format::Damaged),
    }
}

impl Shared {
    /// No index that there is will be believed again: the number of the one that will be. If that cannot be said for certain, nothing is
    /// written any more, so that nothing is acknowledged that an old index does not know.
    pub(super) fn fence(&self, found: Format) -> Option<u64> {
        match self.write_format(found) {
            Ok(index) => Some(index),
            Err(error) => {
                self.spoil(&error);
                None
            }
        }
    }

    fn write_format(&self, found: Format) -> Result<u64, PrivateError> {
        let path = self.folder.join(FORMAT_FILE);
        let system = |error| PrivateError::system(&path, error);
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| system(io::Error::other(error.to_string())))?;
        // Zero is what an empty index says.
        let index = u64::from_le_bytes(number).max(1);
        let line = line(index);
        let file = match found {
            Format::Ours(_) | Format::Damaged => self.disk.open(&path)?,
            Format::Missing => self.disk.create(&path)?,
        };
        write_all(&*file, &mut [IoSlice::new(line.as_bytes())], 0).map_err(system)?;
        if file.len().map_err(system)? != line.len() as u64 {
            file.set_len(line.len() as u64).map_err(system)?;
        }
        file.sync().map_err(system)?;
        if found == Format::Missing {
            self.disk.sync_folder(&self.folder)?;
        }
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_written_and_a_flipped_bit_is_no_newer_one() {
        for index in [1, 2, u64::MAX] {
            let bytes = line(index).into_bytes();
            assert!(bytes.len() <= MOST_BYTES);
            assert_eq!(decode(&bytes), Ok(Format::Ours(index)));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&flipped), Ok(Format::Damaged), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Ok(Format::Damaged), "{len} bytes");
            }
        }
    }

    #[test]
    fn a_newer_one_is_told_whatever_else_it_says() {
        for text in ["sardana-store 2", "sardana-store 77 and=more"] {
            let line = format!("{text} check={}\n", blake3::hash(text.as_bytes()));
            assert!(decode(line.as_bytes()).is_err(), "{line}");
        }
    }
}
