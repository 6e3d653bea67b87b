//! A folder becomes an open store. Nothing that is there is removed or cut, but for manifests that were never finished.

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use super::disk::{Disk, RealDisk, read_full, write_all};
use super::error::OpenError;
use super::index::{CatalogueIndex, Index, NoIndex, Recorded};
use super::limits::FORMAT;
use super::manifests;
use super::recover;
use super::report::Finding;
use super::shared::{Shared, held};
use super::state::State;
use super::writer::Writer;
use super::{FORMAT_FILE, INDEX_FOLDER, MANIFESTS_FOLDER, Options, SEGMENTS_FOLDER};
use crate::catalogue::{self, CatalogueError};
use crate::trust::PrivateError;

const WORD: &str = "sardana-store";

/// More is not read of it.
const FORMAT_BYTES: usize = 256;

/// Opens the store in `folder` on the machine's own disks, with its index.
pub(super) fn open(folder: &Path, options: Options) -> Result<(Shared, Vec<Finding>), OpenError> {
    let disk = Arc::new(RealDisk);
    disk.make_folder(folder)?;
    let lock = catalogue::take_lock(folder).map_err(|error| match error {
        CatalogueError::Private(error) => OpenError::Private(error),
        CatalogueError::Locked { path, pid } => OpenError::Locked { path, pid },
        other @ (CatalogueError::Newer { .. }
        | CatalogueError::MarkerLost { .. }
        | CatalogueError::MarkerDamaged { .. }
        | CatalogueError::Foreign { .. }
        | CatalogueError::Emptied { .. }
        | CatalogueError::Behind { .. }
        | CatalogueError::Damaged { .. }
        | CatalogueError::Record { .. }
        | CatalogueError::Stuck { .. }
        | CatalogueError::Disk { .. }
        | CatalogueError::Poisoned { .. }
        | CatalogueError::TooLarge { .. }
        | CatalogueError::TooMany { .. }
        | CatalogueError::Name { .. }) => OpenError::Index(other),
    })?;
    // Before the index is touched, which knows nothing of the store's format.
    read_format(&*disk, folder)?;
    let mut findings = Vec::new();
    let index = match CatalogueIndex::open(&folder.join(INDEX_FOLDER)) {
        Ok((index, recorded, rebuilt)) => {
            findings.extend(rebuilt.map(|reason| Finding::IndexRebuilt { reason }));
            Some((Box::new(index) as Box<dyn Index>, recorded))
        }
        Err(NoIndex::Refused(error)) => return Err(OpenError::Index(error)),
        Err(NoIndex::Without(error)) => {
            let reason = error.to_string();
            findings.push(Finding::NoIndex { reason });
            None
        }
    };
    let (mut shared, more) = open_on(disk, folder, index, options)?;
    shared.lock = Some(lock);
    findings.extend(more);
    Ok((shared, findings))
}

/// The same on any disk, and with any index, or none. The caller sees to it that nobody else does.
pub(super) fn open_on(
    disk: Arc<dyn Disk>,
    folder: &Path,
    index: Option<(Box<dyn Index>, Recorded)>,
    options: Options,
) -> Result<(Shared, Vec<Finding>), OpenError> {
    disk.make_folder(folder)?;
    let format = read_format(&*disk, folder)?;
    let (segments, manifests) = (folder.join(SEGMENTS_FOLDER), folder.join(MANIFESTS_FOLDER));
    disk.make_folder(&segments)?;
    disk.make_folder(&manifests)?;
    // An index that was just made, or none: then all is read, and the new one told.
    let (index, recorded) = index.map_or((None, Recorded::default()), |(index, recorded)| (Some(index), recorded));
    let shared = Shared {
        folder: folder.to_owned(),
        segments,
        manifests,
        disk,
        segment_bytes: options.segment_bytes,
        collecting: Mutex::new(()),
        changing: Mutex::new(()),
        writer: Mutex::new(Writer::default()),
        index: Mutex::new(index),
        state: Mutex::new(State::default()),
        poison: OnceLock::new(),
        lock: None,
    };
    let mut findings = Vec::new();
    recover::segments(&shared, &recorded, &mut findings)?;
    manifests::load(&shared, &recorded.manifests, &mut findings)?;
    settle_format(&shared, format, &mut findings);
    shared.note();
    Ok((shared, findings))
}

/// What the format file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Ours,
    Missing,
    Damaged,
}

fn line(format: u32) -> String {
    let text = format!("{WORD} {format}");
    format!("{text} check={}\n", blake3::hash(text.as_bytes()))
}

fn read_format(disk: &dyn Disk, folder: &Path) -> Result<Format, OpenError> {
    let path = folder.join(FORMAT_FILE);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(PrivateError::Missing { .. }) => return Ok(Format::Missing),
        Err(error) => return Err(error.into()),
    };
    let mut buffer = [0; FORMAT_BYTES];
    let read = read_full(&*file, &mut buffer, 0).map_err(|error| PrivateError::system(&path, error))?;
    Ok(match format_of(&buffer[..read]) {
        Some(found) if found > u32::from(FORMAT) => return Err(OpenError::Newer { path, found }),
        Some(_) => Format::Ours,
        None => Format::Damaged,
    })
}

/// The format that a whole line says.
fn format_of(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.split_ascii_whitespace();
    (words.next() == Some(WORD)).then_some(())?;
    let format = words.next()?.parse().ok()?;
    (line(format) == text).then_some(format)
}

/// Writes the format file where it is missing. If that fails, the next opening does it.
fn settle_format(shared: &Shared, found: Format, findings: &mut Vec<Finding>) {
    let path = shared.folder.join(FORMAT_FILE);
    let in_use = {
        let state = held(&shared.state);
        !(state.segments.is_empty() && state.manifests.is_empty() && state.deleted.is_empty())
    };
    match found {
        Format::Ours => return,
        Format::Missing if !in_use => {}
        Format::Missing | Format::Damaged => findings.push(Finding::Format { path: path.clone() }),
    }
    let written = || -> Result<(), PrivateError> {
        let new = path.with_extension("new");
        let system = |error| PrivateError::system(&new, error);
        // Left over from a crash, if it is there.
        let _ = shared.disk.remove(&new);
        let file = shared.disk.create(&new)?;
        let line = line(u32::from(FORMAT));
        write_all(&*file, &mut [IoSlice::new(line.as_bytes())], 0).map_err(system)?;
        file.sync().map_err(system)?;
        shared.disk.rename(&new, &path)?;
        shared.disk.sync_folder(&shared.folder)
    };
    if let Err(error) = written() {
        tracing::warn!(%error, "the format of the store could not be written; it is tried again at the next opening");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_written_and_a_flipped_bit_is_no_newer_one() {
        for format in [1, 2, 77] {
            let bytes = line(format).into_bytes();
            assert!(bytes.len() <= FORMAT_BYTES);
            assert_eq!(format_of(&bytes), Some(format));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(format_of(&flipped), None, "bit {bit}");
            }
        }
    }
}
