//! What a disk, or a person, may do to a file.

use std::fs;
use std::path::Path;

use crate::random::Random;

#[derive(Debug)]
pub(crate) enum Wound {
    Bits(Vec<u64>),
    Cut(u64),
    Zeroed(u64, u64),
    Noise(u64, u64),
    Longer(u64),
    Deleted,
}

impl Wound {
    /// What it leaves of these bytes; nothing if the file is gone.
    pub(crate) fn leaves(&self, mut bytes: Vec<u8>, random: &mut Random) -> Option<Vec<u8>> {
        let len = bytes.len() as u64;
        let range = |at: u64, count: u64| at as usize..(at + count).min(len) as usize;
        let mut noise = || random.next().to_le_bytes()[3];
        match *self {
            Self::Bits(ref bits) => bits.iter().for_each(|bit| bytes[(bit / 8) as usize] ^= 1 << (bit % 8)),
            Self::Cut(to) => bytes.truncate(to as usize),
            Self::Zeroed(at, count) => bytes[range(at, count)].fill(0),
            Self::Noise(at, count) => bytes[range(at, count)].fill_with(noise),
            Self::Longer(more) => bytes.extend((0..more).map(|_| noise())),
            Self::Deleted => return None,
        }
        Some(bytes)
    }

    /// Inflicts it on the file at `path`.
    pub(crate) fn inflict(&self, path: &Path, random: &mut Random) {
        let left = self.leaves(fs::read(path).unwrap(), random);
        left.map_or_else(|| fs::remove_file(path), |bytes| fs::write(path, bytes))
            .unwrap();
    }
}
