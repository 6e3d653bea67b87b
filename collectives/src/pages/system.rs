//! What the system does for pages: memory with a descriptor, reserved so that no touch fails, and sealed so that none can be taken away. Maps nothing.

use std::fs::File;
use std::io;

/// Memory with a descriptor, for so many bytes, of which none is reserved.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn memory(bytes: usize) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::process::{Resource, getrlimit};
    // A file beyond this limit is not refused: the process is ended.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // Where addresses are rationed, those that would read these pages may have none left to map them at.
    if getrlimit(Resource::As).current.is_some() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(memfd_create("sardana-gradient", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// Makes it longer by so many bytes from `at` on. Reserved now: where there are no more it is an error here, and not a signal at the first touch.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn reserve(memory: &File, at: usize, bytes: usize) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    Ok(fallocate(memory, FallocateFlags::empty(), at as u64, bytes as u64)?)
}

/// From now on no process can change its length, nor map it to write there.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    Ok(fcntl_add_seals(file, kept_in_place() | SealFlags::SEAL)?)
}

/// Whether another process, whose memory it is, has reserved and sealed it.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn check_kept(file: &File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if !rustix::fs::fcntl_get_seals(file)?.contains(kept_in_place()) {
        return Err(io::Error::other("the other end could take the memory away: it is not sealed"));
    }
    // A block has 512 bytes, whatever the file system's have.
    let metadata = file.metadata()?;
    if metadata.blocks().saturating_mul(512) < metadata.len() {
        return Err(io::Error::other(
            "the other end has not reserved the memory: who reads it would",
        ));
    }
    Ok(())
}

#[cfg(all(target_os = "linux", not(miri)))]
const fn kept_in_place() -> rustix::fs::SealFlags {
    use rustix::fs::SealFlags as Seals;
    // With the last one nothing can be taken out of the middle, either.
    Seals::SHRINK.union(Seals::GROW).union(Seals::FUTURE_WRITE)
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn memory(_: usize) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn reserve(_: &File, _: usize, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn seal(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn check_kept(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
