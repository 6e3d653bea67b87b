//! PTX that was compiled before, in a folder: a file for each key, which says by a hash that it is whole and that key's. Must not know what a key is
//! made of, nor how anything is compiled.
//!
//! The folder is its user's alone, and so is each file, or nothing is read or kept there: who could put in code would have it run. A file is written beside its
//! place and renamed, so that processes may use a folder at once: each finds all of a file or none. What is torn, changed, another key's, or no file that is
//! this user's alone, is as if it were not there, and is replaced.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use sardana_storage::private::{Existing, Missing, PrivateError, PrivateFolder, open_private_to_read, write_private};

use super::MOST_PTX_BYTES;

/// What the first line of a file begins with. To PTX it is a comment.
const MARK: &str = "// sardana ";

/// Bytes of the first line.
const HEAD: usize = MARK.len() + 2 * blake3::OUT_LEN + 1;

/// A place for one key's PTX.
#[derive(Debug, Clone)]
pub(super) struct Place {
    key: blake3::Hash,
    folder: PrivateFolder,
}

impl Place {
    /// The folder is made if it is not there, for its user alone. An error where it cannot be, or others can enter it.
    pub(super) fn open(folder: &Path, key: blake3::Hash) -> Result<Self, PrivateError> {
        let folder = PrivateFolder::open(folder, Missing::Create)?;
        Ok(Self { key, folder })
    }

    /// What was kept here, if it is there and whole.
    pub(super) fn read(&self) -> Option<String> {
        let mut bytes = Vec::new();
        let most = (HEAD + MOST_PTX_BYTES) as u64;
        let file = open_private_to_read(&self.path()).ok()?;
        file.take(most + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > most {
            return None;
        }
        let text = String::from_utf8(bytes).ok()?;
        let (head, ptx) = text.split_at_checked(HEAD)?;
        (head == self.head(ptx)).then(|| ptx.to_owned())
    }

    /// Keeps it here.
    pub(super) fn write(&self, ptx: &str) -> Result<(), PrivateError> {
        let text = self.head(ptx) + ptx;
        write_private(&self.path(), text.as_bytes(), Existing::Replace)
    }

    fn path(&self) -> PathBuf {
        self.folder.file(&format!("{}.ptx", self.key.to_hex()))
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
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn try_place(folder: &Path, key: &str) -> Result<Place, PrivateError> {
        Place::open(folder, blake3::hash(key.as_bytes()))
    }

    fn place(folder: &Path, key: &str) -> Place {
        try_place(folder, key).unwrap()
    }

    fn private() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        allow(folder.path(), 0o700);
        folder
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_kept_is_read_again_and_only_by_its_key() {
        let folder = private();
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
        let folder = private();
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
        let folder = private();
        let place = place(folder.path(), "key");
        let most = "x".repeat(MOST_PTX_BYTES);
        place.write(&most).unwrap();
        assert!(place.read().is_some_and(|read| read == most));
        place.write(&(most + "x")).unwrap();
        assert_eq!(place.read(), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing() {
        let folder = private();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(try_place(&file, "key").is_err());
        let taken = place(folder.path(), "key");
        fs::create_dir(taken.path()).unwrap();
        assert!(taken.write("ptx").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn nothing_is_read_or_kept_where_others_could_have_put_it() {
        let folder = private();
        let inner = folder.path().join("kernels");
        let own = place(&inner, "key");
        own.write("ptx").unwrap();
        for mode in [0o770, 0o702, 0o755] {
            allow(&inner, mode);
            let words = try_place(&inner, "key").unwrap_err().to_string();
            assert!(words.contains("expected mode 0700"), "{words}");
        }
        allow(&inner, 0o700);
        assert_eq!(own.read().as_deref(), Some("ptx"));
        for mode in [0o660, 0o602] {
            allow(&own.path(), mode);
            assert_eq!(own.read(), None, "{mode:o}");
        }
        own.write("ptx").unwrap();
        // A link to what would be read, and a pipe without a writer.
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(own.path(), &elsewhere).unwrap();
        symlink(&elsewhere, own.path()).unwrap();
        assert_eq!(own.read(), None);
        fs::remove_file(own.path()).unwrap();
        let made = std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(own.path())
            .status();
        assert!(made.unwrap().success());
        assert_eq!(own.read(), None);
        own.write("again").unwrap();
        assert_eq!(own.read().as_deref(), Some("again"));
    }

    #[test]
    fn many_at_once_find_all_of_it_or_none() {
        let folder = private();
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
