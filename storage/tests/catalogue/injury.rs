//! One injury to one file of a catalogue, from a seed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::wound::Wound;

/// A file that is injured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Data,
    Settings,
    Snapshot,
    Marker,
}

#[derive(Debug)]
pub(crate) struct Injury {
    pub(crate) part: Part,
    pub(crate) wound: Wound,
}

impl Injury {
    /// Hurts a file of the catalogue in `folder`, as `seed` says.
    pub(crate) fn inflict(folder: &Path, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let part = match random.below(8) {
            0..4 => Part::Data,
            4 => Part::Settings,
            5 | 6 => Part::Snapshot,
            _ => Part::Marker,
        };
        let path = path_of(folder, part);
        let bytes = fs::read(&path).unwrap();
        let len = bytes.len() as u64;
        // Where something is: most of sled's data is zeros, and most of a marker line ends.
        let used: Vec<u64> = (0..len).filter(|&at| !matches!(bytes[at as usize], 0 | b'\n')).collect();
        let somewhere = |random: &mut Random| used[random.below(used.len() as u64) as usize];
        let wound = match random.below(9) {
            0..3 => Wound::Bits(
                (0..=random.below(3))
                    .map(|_| somewhere(&mut random) * 8 + random.below(8))
                    .collect(),
            ),
            3 => Wound::Cut(random.below(len)),
            4 => Wound::Cut(somewhere(&mut random)),
            5 => Wound::Zeroed(somewhere(&mut random), 1 + random.below(len / 2)),
            6 => Wound::Zeroed(somewhere(&mut random), random.within(1..600)),
            7 => Wound::Noise(somewhere(&mut random), random.within(1..5_000)),
            _ => Wound::Deleted,
        };
        wound.inflict(&path, &mut random);
        Self { part, wound }
    }

    /// Whether nothing is lost by it, so that it must be healed.
    pub(crate) fn heals(&self) -> bool {
        matches!(self.part, Part::Snapshot | Part::Settings)
    }
}

fn path_of(folder: &Path, part: Part) -> PathBuf {
    match part {
        Part::Data => folder.join("store/db"),
        Part::Settings => folder.join("store/conf"),
        Part::Marker => folder.join("marker"),
        Part::Snapshot => {
            let mut entries = fs::read_dir(folder.join("store")).unwrap().map(|entry| entry.unwrap().path());
            entries
                .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("snap."))
                .unwrap()
        }
    }
}
