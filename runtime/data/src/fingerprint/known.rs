//! Hashes of files that were read before: a worker that takes a dead one's place should not read hundreds of gigabytes to say what they
//! are. A hash is believed as long as the file's length, time of change and number on its disk are what they were when it was read, as
//! `make` and `git` believe those.
//!
//! ```text
//! sardana hashes v1
//! length  changed (ns)  inode  hash  name, in hex digits        one line for each file
//! hash of all lines before
//! ```
//! They are kept in the user's cache, one file for each folder of data, and only where reading took long: it is never an error that they
//! cannot be. A file that is damaged, or of another version, is not believed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::{DataError, DataHash};

const HEAD: &str = "sardana hashes v1";

/// Less than this is read again in a moment, and not worth a file.
pub(super) const LEAST_BYTES: u64 = 64 << 20;

/// A longer file of hashes is not read: of some ten million files.
const MOST_BYTES: u64 = 2 << 30;

/// A file that was changed so lately may change once more without another time of change.
const SETTLED: Duration = Duration::from_secs(2);

/// What a file looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    changed: i128,
    inode: u64,
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            bytes: found.len(),
            changed: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
            inode: found.ino(),
        }
    }
}

/// The hashes of files in one folder.
#[derive(Debug)]
pub(crate) struct Known {
    folder: PathBuf,
    /// Where they are kept, if they can be.
    place: Option<PathBuf>,
    before: BTreeMap<Vec<u8>, (Stamp, DataHash)>,
    /// Those that had to be read.
    now: BTreeMap<Vec<u8>, (Stamp, DataHash)>,
    /// Bytes of files that had to be read.
    read: u64,
    least: u64,
}

impl Known {
    /// Those of `folder`, as far as they are in the user's cache.
    pub(crate) fn of(folder: &Path) -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = cache.filter(|path| path.is_absolute()).or_else(home);
        Self::within(folder, cache.map(|cache| cache.join("sardana/hashes")), LEAST_BYTES)
    }

    fn within(folder: &Path, cache: Option<PathBuf>, least: u64) -> Self {
        let canonical = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let name = blake3::hash(canonical.as_os_str().as_bytes()).to_hex();
        let place = cache.map(|cache| cache.join(&name.as_str()[..32]));
        Self {
            folder: folder.to_owned(),
            before: place.as_deref().and_then(read).unwrap_or_default(),
            place,
            now: BTreeMap::new(),
            read: 0,
            least,
        }
    }

    /// The hash of the file at `within` the folder.
    #[cfg(feature = "image-folder")]
    pub(crate) fn hash(&mut self, within: &Path) -> Result<DataHash, DataError> {
        let file = self.folder.join(within);
        let opened = File::open(&file).map_err(DataError::io(&file, "open it"))?;
        self.hash_opened(within, &opened, || super::of_reader(&opened, &file))
    }

    /// The hash of the file that is open as `within` the folder, which `read` gives if it is not known.
    pub(crate) fn hash_opened(
        &mut self,
        within: &Path,
        opened: &File,
        read: impl FnOnce() -> Result<DataHash, DataError>,
    ) -> Result<DataHash, DataError> {
        let name = within.as_os_str().as_bytes().to_vec();
        let found = opened
            .metadata()
            .map_err(DataError::io(&self.folder.join(within), "look at it"))?;
        let stamp = Stamp::of(&found);
        if let Some(&(before, hash)) = self.before.get(&name)
            && before == stamp
        {
            return Ok(hash);
        }
        let hash = read()?;
        self.read += stamp.bytes;
        let settled = SystemTime::now().checked_sub(SETTLED);
        if found
            .modified()
            .is_ok_and(|changed| settled.is_some_and(|settled| changed < settled))
        {
            self.now.insert(name, (stamp, hash));
        }
        Ok(hash)
    }

    /// Keeps them for the next time, if that saves something.
    pub(crate) fn keep(mut self) {
        if self.read < self.least || self.now.is_empty() {
            return;
        }
        if let Some(place) = &self.place {
            self.before.append(&mut self.now);
            // What cannot be kept is read again.
            let _ = write(place, &self.before);
        }
    }
}

fn write(place: &Path, known: &BTreeMap<Vec<u8>, (Stamp, DataHash)>) -> std::io::Result<()> {
    let folder = place.parent().ok_or(std::io::ErrorKind::NotFound)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut text = format!("{HEAD}\n");
    for (name, (stamp, hash)) in known {
        let Stamp { bytes, changed, inode } = stamp;
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{bytes} {changed} {inode} {} {}", hex(&hash.bytes()), hex(name));
    }
    let sum = blake3::hash(text.as_bytes()).to_hex();
    let new = folder.join(format!(".{}.{}", sum.as_str().split_at(16).0, std::process::id()));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    writeln!(file, "{sum}")?;
    drop(file);
    fs::rename(&new, place)
}

/// What was kept, if all of it is there.
fn read(place: &Path) -> Option<BTreeMap<Vec<u8>, (Stamp, DataHash)>> {
    if fs::metadata(place).ok()?.len() > MOST_BYTES {
        return None;
    }
    let text = fs::read_to_string(place).ok()?;
    let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let lines = &text[..=lines.len()];
    if blake3::hash(lines.as_bytes()).to_hex().as_str() != sum {
        return None;
    }
    let mut lines = lines.lines();
    if lines.next()? != HEAD {
        return None;
    }
    lines.map(entry).collect()
}

fn entry(line: &str) -> Option<(Vec<u8>, (Stamp, DataHash))> {
    let mut words = line.split(' ');
    let stamp = Stamp {
        bytes: words.next()?.parse().ok()?,
        changed: words.next()?.parse().ok()?,
        inode: words.next()?.parse().ok()?,
    };
    let hash = DataHash::new(unhex(words.next()?)?.try_into().ok()?);
    let name = unhex(words.next()?)?;
    words.next().is_none().then_some((name, (stamp, hash)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _folder: tempfile::TempDir,
        data: PathBuf,
        cache: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let [data, cache] = ["data", "cache"].map(|name| folder.path().join(name));
            fs::create_dir(&data).unwrap();
            let place = Self {
                _folder: folder,
                data,
                cache,
            };
            place.write("a", b"one");
            place.write("b\n", b"two");
            place
        }

        /// As a file that was written a minute ago.
        fn write(&self, name: &str, content: &[u8]) {
            let path = self.data.join(name);
            fs::write(&path, content).unwrap();
            let before = SystemTime::now() - Duration::from_secs(60);
            File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
        }

        /// Hashes of both files, and how many bytes were read for them.
        fn hashes(&self, least: u64) -> ([DataHash; 2], u64) {
            let mut known = Known::within(&self.data, Some(self.cache.clone()), least);
            let hash = |known: &mut Known, name: &str| {
                let path = self.data.join(name);
                let opened = File::open(&path).unwrap();
                known
                    .hash_opened(Path::new(name), &opened, || super::super::of_reader(&opened, &path))
                    .unwrap()
            };
            let hashes = ["a", "b\n"].map(|name| hash(&mut known, name));
            let read = known.read;
            known.keep();
            (hashes, read)
        }
    }

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let place = Place::new();
        let (first, read) = place.hashes(1);
        assert_eq!((first, read), ([DataHash::of(b"one"), DataHash::of(b"two")], 6));
        assert_eq!(place.hashes(1), (first, 0));
        place.write("a", b"ONE!");
        let (second, read) = place.hashes(1);
        assert_eq!((second[0], second[1], read), (DataHash::of(b"ONE!"), first[1], 4));
        // Another file in its place, of the same length and time.
        let time = fs::metadata(place.data.join("a")).unwrap().modified().unwrap();
        fs::write(place.data.join("c"), b"TWO!").unwrap();
        File::options()
            .write(true)
            .open(place.data.join("c"))
            .unwrap()
            .set_modified(time)
            .unwrap();
        fs::rename(place.data.join("c"), place.data.join("a")).unwrap();
        assert_eq!(place.hashes(1).0[0], DataHash::of(b"TWO!"));
    }

    #[test]
    fn what_is_small_or_was_changed_just_now_is_not_kept() {
        let place = Place::new();
        place.hashes(7);
        assert!(!place.cache.exists(), "six bytes are read again in a moment");
        fs::write(place.data.join("a"), b"now").unwrap();
        assert_eq!(place.hashes(1).1, 6);
        assert_eq!(place.hashes(1).1, 3, "only the settled one was kept");
    }

    #[test]
    fn a_damaged_file_of_hashes_is_not_believed() {
        let place = Place::new();
        let (right, _) = place.hashes(1);
        let kept = fs::read_dir(&place.cache).unwrap().next().unwrap().unwrap().path();
        let good = fs::read(&kept).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&kept, &bad).unwrap();
            assert_eq!(place.hashes(u64::MAX), (right, 6), "byte {at}");
            fs::write(&kept, &good[..at]).unwrap();
            assert_eq!(place.hashes(u64::MAX), (right, 6), "cut at {at}");
        }
        fs::write(&kept, &good).unwrap();
        assert_eq!(place.hashes(1), (right, 0));
    }
}
