//! Which files of a folder are the data: by their names, in the order of the bytes of these, and all that belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::DataError;

/// How names of TFRecord files end, where they are not of a numbered set.
const ENDINGS: [&str; 2] = [".tfrecord", ".tfrecords"];

/// The files in `folder` whose names end with `suffix`, or are names of TFRecords where none is given: `*.tfrecord`, `*.tfrecords`,
/// `name-00000-of-00010`. In the order of the bytes of their names.
///
/// # Errors
/// When no file has such a name, or one is missing of a set that is numbered.
pub fn files(folder: &Path, suffix: Option<&str>) -> Result<Vec<PathBuf>, DataError> {
    let refused = || DataError::io(folder, "list it");
    let (mut names, mut others) = (BTreeSet::new(), 0_u64);
    for entry in fs::read_dir(folder).map_err(refused())? {
        let name = entry.map_err(refused())?.file_name();
        let shown = name.to_string_lossy();
        // Those that are hidden are being written; an index is none of the data.
        let apart = shown.starts_with('.') || shown.ends_with(".index");
        if !apart && suffix.map_or_else(|| is_named(&shown), |suffix| shown.ends_with(suffix)) {
            names.insert(name);
        } else {
            others += 1;
        }
    }
    if names.is_empty() {
        let expected = match suffix {
            Some(suffix) => format!("files whose names end with `{suffix}`"),
            None => "files named `*.tfrecord`, `*.tfrecords` or `name-00000-of-00010`".to_owned(),
        };
        return Err(DataError::folder(
            folder,
            expected,
            format!("{others} others and none of these"),
        ));
    }
    all_of_each_set(folder, names.iter().map(|name| name.to_string_lossy().into_owned()))?;
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Whether a file of this name has TFRecords. Packed ones are taken too, so that they are refused and not passed over.
#[must_use]
pub fn is_named(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || numbered(name).is_some()
}

/// A set of numbered files is there whole: else a copy that was broken off would be trained on.
fn all_of_each_set(folder: &Path, names: impl Iterator<Item = String>) -> Result<(), DataError> {
    let mut sets: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for name in names {
        if let Some(Numbered {
            stem,
            number,
            count,
            width,
        }) = numbered(&name)
        {
            sets.entry((stem.to_owned(), count, width)).or_default().insert(number);
        }
    }
    for ((stem, count, width), numbers) in sets {
        let missing = numbers.iter().zip(0..).find(|&(&number, expected)| number != expected);
        let missing = missing.map_or(numbers.len() as u64, |(_, expected)| expected);
        if missing < count {
            let expected = format!("all {count} files of the set `{stem}-…-of-{count:0width$}`");
            let found = format!("{} of them, and not number {missing}", numbers.len());
            return Err(DataError::folder(folder, expected, found));
        }
    }
    Ok(())
}

/// `name-00002-of-00010`: number 2 of the 10 files of `name`.
struct Numbered<'a> {
    stem: &'a str,
    number: u64,
    count: u64,
    width: usize,
}

fn numbered(name: &str) -> Option<Numbered<'_>> {
    let name = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(number) || !digits(count) {
        return None;
    }
    let width = count.len();
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (number < count).then_some(Numbered {
        stem,
        number,
        count,
        width,
    })
}
