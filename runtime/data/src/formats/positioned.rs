//! A file that is read by position, from several threads at once, without being held in memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fingerprint::Known;
use crate::{DataError, DataHash};

/// An open file, and how long it was when it was opened.
#[derive(Debug)]
pub(super) struct Positioned {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Positioned {
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::io(path, "open it"))?;
        let bytes = file.metadata().map_err(DataError::io(path, "read its length"))?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How long it is.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The `bytes` bytes from `offset` on, which are `what`. No more is allocated than the file is long.
    pub(super) fn read(&self, offset: u64, bytes: u64, what: &str) -> Result<Vec<u8>, DataError> {
        let left = self.bytes.saturating_sub(offset);
        let fitting = usize::try_from(bytes).ok().filter(|_| bytes <= left);
        let cut = |left: u64| {
            let expected = format!("{} more bytes of {what}", bytes - left);
            DataError::malformed(&self.path, offset + left, expected, "the end of the file")
        };
        let mut read = vec![0; fitting.ok_or_else(|| cut(left))?];
        match self.file.read_exact_at(&mut read, offset) {
            Ok(()) => Ok(read),
            // Somebody has cut it since.
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => Err(cut(0)),
            Err(source) => Err(DataError::io(&self.path, "read it")(source)),
        }
    }

    /// Its name without the folder, for a fingerprint.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The hash of its bytes: those of this very file, even where another has taken its name since. They are read unless it is known.
    pub(super) fn hash(&self) -> Result<DataHash, DataError> {
        let mut known = Known::of(self.path.parent().unwrap_or(Path::new(".")));
        let name = self.path.file_name().map(Path::new).unwrap_or(&self.path);
        let hash = known.hash_opened(name, &self.file, || self.read_hash())?;
        known.keep();
        Ok(hash)
    }

    fn read_hash(&self) -> Result<DataHash, DataError> {
        let mut hasher = DataHash::hasher();
        let all = FromStart {
            file: &self.file,
            offset: 0,
        };
        hasher.update_reader(all).map_err(DataError::io(&self.path, "read it"))?;
        Ok(DataHash::finish(&hasher))
    }
}

/// Reads a file from its start, whatever its cursor, which others share.
struct FromStart<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fingerprint::of_file;

    #[test]
    fn a_file_is_read_by_position_and_no_further_than_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"0123456789").unwrap();
        let file = Positioned::open(&path).unwrap();
        assert_eq!(file.read(3, 4, "it").unwrap(), b"3456");
        assert_eq!(file.hash().unwrap(), of_file(&path).unwrap());
        let error = |offset, bytes| file.read(offset, bytes, "a row").unwrap_err().to_string();
        assert!(error(8, 4).contains("at byte 10: expected 2 more bytes of a row"));
        assert!(error(8, u64::MAX).contains("at byte 10"), "nothing is allocated");
        assert!(error(u64::MAX, 1).contains("1 more bytes"));
        File::options().write(true).open(&path).unwrap().set_len(5).unwrap();
        assert!(error(3, 4).contains("at byte 3: expected 4 more bytes of a row"));
    }
}
