//! A folder becomes an open store. Nothing that is there is removed or cut, but for manifests that were never finished.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use super::disk::{Disk, RealDisk};
use super::error::OpenError;
use super::format::{self, Format};
use super::index::{CatalogueIndex, Change, Index, NoIndex, Recorded};
use super::manifests;
use super::recover;
use super::report::Finding;
use super::shared::{Shared, held};
use super::state::State;
use super::watch::{Watch, WatchedDisk};
use super::writer::Writer;
use super::{FORMAT_FILE, INDEX_FOLDER, MANIFESTS_FOLDER, Options, SEGMENTS_FOLDER};
use crate::lock::{FileLock, Holder};

/// Opens the store in `folder` on the machine's own disks, with its index.
pub(super) fn open(folder: &Path, options: Options) -> Result<(Shared, Vec<Finding>), OpenError> {
    let disk = Arc::new(RealDisk);
    disk.make_folder(folder)?;
    let path = folder.to_owned();
    let lock = FileLock::take_in(folder)?.map_err(|Holder { pid }| OpenError::Locked { path, pid })?;
    // Before the index is touched, which knows nothing of the store's format.
    format::read(&*disk, folder)?;
    let mut findings = Vec::new();
    let index = match CatalogueIndex::open(&folder.join(INDEX_FOLDER)) {
        Ok(opened) => {
            findings.extend(opened.rebuilt.map(Finding::IndexRebuilt));
            Some((Box::new(opened.index) as Box<dyn Index>, opened.recorded))
        }
        Err(NoIndex::Refused(error)) => return Err(OpenError::Index(error)),
        Err(NoIndex::Without(error)) => {
            let reason = error.to_string();
            findings.push(Finding::NoIndex(reason));
            None
        }
    };
    let (mut shared, mut more) = open_on(disk, folder, index, options)?;
    shared.lock = Some(lock);
    let rebuilt = |finding: &Finding| matches!(finding, Finding::IndexRebuilt(_));
    if findings.iter().any(rebuilt) {
        more.retain(|finding| !rebuilt(finding));
    }
    findings.extend(more);
    Ok((shared, findings))
}

/// The same on any disk, and with any index, or none. The caller sees to it that no other process does.
pub(super) fn open_on(
    disk: Arc<dyn Disk>,
    folder: &Path,
    index: Option<(Box<dyn Index>, Recorded)>,
    options: Options,
) -> Result<(Shared, Vec<Finding>), OpenError> {
    let watch = Watch::default();
    let disk = Arc::new(WatchedDisk {
        disk,
        watch: watch.clone(),
    });
    disk.make_folder(folder)?;
    let format = format::read(&*disk, folder)?;
    let (segments, manifests) = (folder.join(SEGMENTS_FOLDER), folder.join(MANIFESTS_FOLDER));
    disk.make_folder(&segments)?;
    disk.make_folder(&manifests)?;
    let (index, told) = index.map_or((None, Recorded::default()), |(index, told)| (Some(index), told));
    let indexed = index.is_some();
    let shared = Shared {
        folder: folder.to_owned(),
        segments,
        manifests,
        disk,
        watch,
        segment_bytes: options.segment_bytes,
        collecting: Mutex::new(()),
        changing: Mutex::new(()),
        writer: Mutex::new(Writer::default()),
        index: Mutex::new(index),
        state: Mutex::new(State::default()),
        poison: OnceLock::new(),
        lock: None,
    };
    let believed = indexed && format == Format::Ours(told.own);
    // Before anything is acknowledged that an old index does not know.
    let own = if believed { Some(told.own) } else { shared.fence(format) };
    let recorded = if believed { told } else { unlearn(&shared, &told) };
    let mut findings = Vec::new();
    recover::segments(&shared, &recorded, &mut findings)?;
    manifests::load(&shared, &recorded.manifests, &mut findings)?;
    if in_use(&shared) {
        let path = shared.folder.join(FORMAT_FILE);
        match format {
            Format::Ours(_) if indexed && !believed => {
                findings.push(Finding::IndexRebuilt("it is missing, or older than the store".to_owned()))
            }
            Format::Ours(_) => {}
            Format::Missing | Format::Damaged => findings.push(Finding::Format(path)),
        }
    }
    // Last, so that an index that has not been told all is not believed.
    held(&shared.state).changes.extend(own.map(Change::Own));
    shared.note();
    Ok((shared, findings))
}

/// Tells an index that is not believed to forget all: what is known instead.
fn unlearn(shared: &Shared, told: &Recorded) -> Recorded {
    let pieces = told.pieces.iter().map(|(hash, _)| Change::NoPiece(*hash));
    let segments = told.covered.keys().map(|number| Change::NoSegment(*number));
    let manifests = told.manifests.keys().map(|key| Change::NoManifest(*key));
    held(&shared.state).changes.extend(pieces.chain(segments).chain(manifests));
    Recorded::default()
}

fn in_use(shared: &Shared) -> bool {
    let state = held(&shared.state);
    !(state.segments.is_empty() && state.manifests.is_empty() && state.deleted.is_empty())
}
