//! PTX that was compiled before, in a folder: a file for each key, which says by a hash that it is whole and that key's. Must not know what a key is
//! made of, nor how anything is compiled.
//!
//! A file is written beside its place and renamed, so that processes may use a folder at once: each finds all of a file or none. What is torn, changed,
//! or another key's is as if it were not there, and is replaced. The hash is no signature: whoever may write to the folder may put in what they like.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::MOST_PTX_BYTES;

/// What the first line of a file begins with. To PTX it is a comment.
const MARK: &str = "// sardana ";

/// Bytes of the first line.
const HEAD: usize = MARK.len() + 2 * blake3::OUT_LEN + 1;

/// A place for one key's PTX.
#[derive(Debug, Clone)]
pub(super) struct Place {
    key: blake3::Hash,
    folder: PathBuf,
}

impl Place {
    pub(super) fn new(folder: &Path, key: blake3::Hash) -> Self {
        let folder = folder.to_owned();
        Self { key, folder }
    }

    /// What was kept here, if it is there and whole.
    pub(super) fn read(&self) -> Option<String> {
        let mut bytes = Vec::new();
        let most = (HEAD + MOST_PTX_BYTES) as u64;
        File::open(self.path()).ok()?.take(most + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > most {
            return None;
        }
        let text = String::from_utf8(bytes).ok()?;
        let (head, ptx) = text.split_at_checked(HEAD)?;
        (head == self.head(ptx)).then(|| ptx.to_owned())
    }

    /// Keeps it here. The folder is made if it is not there, for its user alone.
    pub(super) fn write(&self, ptx: &str) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let beside = self
            .folder
            .join(format!("{}.{}.{number}.part", self.key.to_hex(), std::process::id()));
        // What is there under this name was left by a process of the same number that ended in the middle.
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let written = open
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(self.head(ptx).as_bytes())?;
                file.write_all(ptx.as_bytes())
            })
            .and_then(|()| fs::rename(&beside, self.path()));
        if written.is_err() {
            // Only what could not be put in its place is left.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.ptx", self.key.to_hex()))
    }

    /// The first line of a file with this PTX.
    fn head(&self, ptx: &str) -> String {
        let hash = blake3::keyed_hash(self.key.as_bytes(), ptx.as_bytes());
        format!("{MARK}{}\n", hash.to_hex())
    }
}

/// The user's folder for what can be made again: `$XDG_CACHE_HOME/sardana/kernels`, or else `~/.cache/sardana/kernels`. None where neither is named.
pub(super) fn usual_folder() -> Option<PathBuf> {
    folder_of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

/// The specification has paths ignored that are not whole.
fn folder_of(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let whole = |name: Option<OsString>| name.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = whole(cache).or_else(|| Some(whole(home)?.join(".cache")))?;
    Some(base.join("sardana").join("kernels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path, key: &str) -> Place {
        Place::new(folder, blake3::hash(key.as_bytes()))
    }

    #[test]
    fn what_is_kept_is_read_again_and_only_by_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/there/yet");
        let [first, second] = ["first", "second"].map(|key| place(&inner, key));
        assert_eq!(first.read(), None);
        first.write("ptx").unwrap();
        second.write("").unwrap();
        assert_eq!((first.read().as_deref(), second.read().as_deref()), (Some("ptx"), Some("")));
        // A file under another name is not that one's.
        fs::copy(first.path(), second.path()).unwrap();
        assert_eq!(second.read(), None);
        second.write("again").unwrap();
        assert_eq!(second.read().as_deref(), Some("again"));
        let mut names: Vec<_> = fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort_unstable();
        let mut expected = [first.path(), second.path()];
        expected.sort_unstable();
        assert_eq!(names, expected, "nothing else is left");
    }

    #[test]
    fn the_usual_folder_is_where_users_have_what_can_be_made_again() {
        let found = |cache: Option<&str>, home: Option<&str>| folder_of(cache.map(Into::into), home.map(Into::into));
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(found(Some("/cache"), Some("/user")), at("/cache/sardana/kernels"));
        for none in [None, Some(""), Some("cache")] {
            assert_eq!(found(none, Some("/user")), at("/user/.cache/sardana/kernels"));
            assert_eq!(found(none, none), None);
        }
    }

    #[test]
    fn what_is_torn_or_changed_in_any_byte_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "key");
        place.write("some ptx").unwrap();
        let whole = fs::read(place.path()).unwrap();
        for end in 0..whole.len() {
            fs::write(place.path(), &whole[..end]).unwrap();
            assert_eq!(place.read(), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            for bit in [0x01, 0x80] {
                let mut changed = whole.clone();
                changed[at] ^= bit;
                fs::write(place.path(), &changed).unwrap();
                assert_eq!(place.read(), None, "changed at {at}");
            }
        }
        fs::write(place.path(), [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(place.read(), None, "longer");
        fs::write(place.path(), &whole).unwrap();
        assert_eq!(place.read().as_deref(), Some("some ptx"));
    }

    #[test]
    fn no_more_is_read_than_ptx_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "key");
        let most = "x".repeat(MOST_PTX_BYTES);
        place.write(&most).unwrap();
        assert!(place.read().is_some_and(|read| read == most));
        place.write(&(most + "x")).unwrap();
        assert_eq!(place.read(), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(place(&file, "key").write("ptx").is_err());
        let taken = place(folder.path(), "key");
        fs::create_dir(taken.path()).unwrap();
        assert!(taken.write("ptx").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn many_at_once_find_all_of_it_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let ptx = "some more ptx ".repeat(10_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let own = place(folder.path(), "key");
                        own.write(&ptx).unwrap();
                        assert_eq!(own.read().as_deref(), Some(ptx.as_str()));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
