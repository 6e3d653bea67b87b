//! What the store asks of a disk, so that a test can be one that fails, tears and forgets. Must not know what is in the files.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, Mode, OFlags};

use crate::private::{self, Missing, PrivateError, PrivateFolder, open_private, open_private_to_read};

/// Folders of files. All calls block.
pub trait Disk: Debug + Send + Sync {
    /// Whether other processes of this host find the same under the same paths.
    fn is_the_hosts(&self) -> bool;

    /// Makes the folder `path`, private, if it is not there.
    ///
    /// # Errors
    /// When others may enter it, or the disk says no.
    fn make_folder(&self, path: &Path) -> Result<(), PrivateError>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// When the disk says no.
    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError>;

    /// Makes a file, private and empty, that is not there.
    ///
    /// # Errors
    /// When it is there, or the disk says no.
    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// When it is not there, others may read or change it, or the disk says no.
    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError>;

    /// Gives a file another name in the same folder, in place of what is there. On the disk after [`Disk::sync_folder`].
    ///
    /// # Errors
    /// When the disk says no.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError>;

    /// Removes a file. On the disk after [`Disk::sync_folder`]; a process that has it open goes on reading it.
    ///
    /// # Errors
    /// When the disk says no.
    fn remove(&self, path: &Path) -> Result<(), PrivateError>;

    /// The names in a folder are on the disk when this returns.
    ///
    /// # Errors
    /// When the disk says no: then which are is not known.
    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError>;
}

/// A file.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads into `buffer`, maybe less than fits: how much; nothing at the end.
    ///
    /// # Errors
    /// When the disk says no.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes from `parts`, maybe less than all: how much.
    ///
    /// # Errors
    /// When the disk says no: then anything may be there.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// What was written, and the length, are on the disk when this returns.
    ///
    /// # Errors
    /// When the disk says no: then any part of it may be there, and a second call says nothing about what the first one failed to write.
    fn sync(&self) -> io::Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// When the disk says no.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing in it.
    ///
    /// # Errors
    /// When the disk says no.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Makes it this long.
    ///
    /// # Errors
    /// When the disk says no.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// What was written there will be synced, and is not read soon: the disk may begin.
    fn written(&self, offset: u64, len: u64);
}

/// The machine's own file systems.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn is_the_hosts(&self) -> bool {
        true
    }

    fn make_folder(&self, path: &Path) -> Result<(), PrivateError> {
        PrivateFolder::open(path, Missing::Create).map(drop)
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>, PrivateError> {
        let system = |error| PrivateError::system(folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(system)? {
            names.push(entry.map_err(system)?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let made = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = made.map_err(|error| PrivateError::system(path, error.into()))?;
        Ok(Arc::new(RealFile(File::from(file))))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>, PrivateError> {
        Ok(Arc::new(RealFile(open_private(path, Missing::Refuse)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), PrivateError> {
        fs::rename(from, to).map_err(|error| PrivateError::system(from, error))
    }

    fn remove(&self, path: &Path) -> Result<(), PrivateError> {
        fs::remove_file(path).map_err(|error| PrivateError::system(path, error))
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), PrivateError> {
        private::sync_folder(folder)
    }
}

#[derive(Debug)]
pub(super) struct RealFile(File);

impl RealFile {
    /// Opens a file that is there, and may be another process's.
    pub(super) fn open_to_read(path: &Path) -> Result<Self, PrivateError> {
        open_private_to_read(path).map(Self)
    }
}

/// A sync writes less than this as fast as two calls do.
const WORTH_BEGINNING: u64 = 1 << 20;

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, parts, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn written(&self, offset: u64, len: u64) {
        if len < WORTH_BEGINNING {
            return;
        }
        // Linux begins to write such a range and does not wait, so that the sync has less left to do. Where it does not, nothing is
        // lost.
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(len), Advice::DontNeed);
    }
}

/// Writes all of `parts`.
///
/// # Errors
/// When the disk says no: then anything may be there.
pub(super) fn write_all(file: &dyn DiskFile, mut parts: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    while parts.iter().any(|part| !part.is_empty()) {
        match file.write_at(parts, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                offset += count as u64;
                IoSlice::advance_slices(&mut parts, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `buffer` is full, or the file ends: how much.
///
/// # Errors
/// When the disk says no.
pub(super) fn read_full(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
