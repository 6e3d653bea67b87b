//! What data are called: their parts by name and hash, few enough for a hello. Many files are told in groups of neighbours, so that a
//! difference can still be found.

#[cfg(any(feature = "cifar10", feature = "image-folder", feature = "npy", feature = "safetensors"))]
mod known;

use std::fs::File;
use std::path::Path;

use sardana_protocol::limits::{MAX_DATA_NAME_BYTES, MAX_DATA_PARTS};

#[cfg(any(feature = "cifar10", feature = "image-folder", feature = "npy", feature = "safetensors"))]
pub(crate) use known::Known;

use crate::{DataError, DataFingerprint, DataHash, DataPart};

/// So many groups are made of too many parts: there is room left for what is done to the samples.
const GROUPS: usize = MAX_DATA_PARTS - 8;

/// A fingerprint under way. The order of the parts counts.
#[derive(Clone, Debug, Default)]
pub struct Fingerprinting {
    parts: Vec<DataPart>,
}

impl Fingerprinting {
    /// More parts after those of `fingerprint`.
    #[must_use]
    pub fn over(fingerprint: DataFingerprint) -> Self {
        Self {
            parts: fingerprint.into_parts(),
        }
    }

    /// Adds a part: a file, by its name within the data set, or something that is done to samples.
    #[must_use]
    pub fn part(mut self, name: impl Into<String>, hash: DataHash) -> Self {
        self.parts.push(DataPart { name: name.into(), hash });
        self
    }

    /// The fingerprint: at most [`MAX_DATA_PARTS`] parts, with names of at most [`MAX_DATA_NAME_BYTES`] bytes.
    ///
    /// # Panics
    /// Never: what would be too much is told together, or cut.
    #[must_use]
    pub fn finish(self) -> DataFingerprint {
        let group = match self.parts.len() {
            few if few <= MAX_DATA_PARTS => 1,
            many => many.div_ceil(GROUPS),
        };
        let parts: Vec<_> = self.parts.chunks(group).map(together).collect();
        DataFingerprint::new(parts).expect("as many parts, with names as long, as there may be")
    }
}

/// Neighbours as one part.
fn together(parts: &[DataPart]) -> DataPart {
    let (name, hash) = match parts {
        [one] => (one.name.clone(), one.hash),
        [first, .., last] => {
            let name = format!("{} parts from {} to {}", parts.len(), ends(&first.name), ends(&last.name));
            let names = parts.iter().map(|part| (part.name.as_bytes(), part.hash));
            (name, DataHash::of_named(names))
        }
        [] => unreachable!("chunks are not empty"),
    };
    if name.len() <= MAX_DATA_NAME_BYTES {
        DataPart { name, hash }
    } else {
        // What is cut off the name must not be lost.
        let hash = DataHash::of_named([(name.as_bytes(), hash)]);
        DataPart { name: ends(&name), hash }
    }
}

/// A name that fits twice into a text, by its two ends.
fn ends(name: &str) -> String {
    const END: usize = 24;
    const { assert!(2 * (2 * END + 3) + 40 <= MAX_DATA_NAME_BYTES) };
    if name.len() <= 2 * END {
        return name.to_owned();
    }
    let (mut head, mut tail) = (END, name.len() - END);
    while !name.is_char_boundary(head) {
        head -= 1;
    }
    while !name.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}…{}", &name[..head], &name[tail..])
}

/// The hash of a file's bytes, read once, in constant memory.
///
/// # Errors
/// When it cannot be read.
pub fn of_file(file: &Path) -> Result<DataHash, DataError> {
    of_reader(&File::open(file).map_err(DataError::io(file, "open it"))?, file)
}

fn of_reader(opened: &File, file: &Path) -> Result<DataHash, DataError> {
    let mut hasher = DataHash::hasher();
    hasher.update_reader(opened).map_err(DataError::io(file, "read it"))?;
    Ok(DataHash::finish(&hasher))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: u32, changed: Option<u32>) -> DataFingerprint {
        let part = |fingerprinting: Fingerprinting, number: u32| {
            let content = if changed == Some(number) { u32::MAX } else { number };
            fingerprinting.part(format!("images/{number:05}.png"), DataHash::of(&content.to_le_bytes()))
        };
        (0..count).fold(Fingerprinting::default(), part).finish()
    }

    #[test]
    fn many_files_are_told_in_groups_of_neighbours() {
        let (one, other) = (many(1_000, None), many(1_000, Some(777)));
        assert!(one.parts().len() <= MAX_DATA_PARTS);
        let different: Vec<_> = one
            .parts()
            .iter()
            .zip(other.parts())
            .filter(|(one, other)| one != other)
            .collect();
        let [(part, _)] = different[..] else {
            panic!("one group differs, found {different:?}")
        };
        assert!(part.name.contains("images/00756.png to images/00797.png"), "{}", part.name);
        assert_eq!(many(5, None).parts().len(), 5, "few are told one by one");
    }

    #[test]
    fn what_is_done_to_many_files_does_not_blur_which_differ() {
        let over = |files: DataFingerprint| Fingerprinting::over(files).part("a transform", DataHash::of(b"x")).finish();
        let (one, other) = (over(many(1_000, None)), over(many(1_000, Some(777))));
        let (part, _) = one.difference(&other).unwrap();
        assert_eq!(part.unwrap().name, "42 parts from images/00756.png to images/00797.png");
    }

    #[test]
    fn long_names_are_cut_and_yet_count() {
        let named = |name: &str| Fingerprinting::default().part(name, DataHash::of(b"x")).finish();
        let (a, b) = (format!("{}a{}", "é".repeat(300), "é".repeat(300)), "é".repeat(600));
        assert!(named(&a).parts()[0].name.len() <= MAX_DATA_NAME_BYTES);
        assert_ne!(named(&a), named(&b));
    }
}
