//! Bounds of what is sent to a mirror, read from it, and waited for.

use std::time::Duration;

use sardana_protocol::limits::PIECE_BYTES;
use sardana_storage::manifest::MANIFEST_BYTES;

/// A pack ends before it would get longer: few enough objects for a large state, few enough bytes to send once more when a connection
/// breaks. It takes no upload in parts.
pub(super) const PACK_BYTES: usize = 16 << 20;

/// Most pieces in a pack: small tensors have small ones.
pub(super) const PACK_PIECES: usize = 4_096;

/// Packs that are under way at the same time, each in memory.
pub(super) const LANES: usize = 4;

/// Most packs that are listed: a petabyte of them would be more. Beyond it the mirror is not read or pruned: give each job a prefix of
/// its own.
pub(super) const MOST_PACKS: usize = 2 << 20;

/// Most manifests that are listed, and most marks.
pub(super) const MOST_NAMES: usize = 64 << 10;

/// Longest mark: nothing is in it but a line for people.
pub(super) const MARK: &[u8] = b"a process is at work here; this is removed afterwards, or by others after some time\n";

/// A mark of an upload is believed for so long, and made anew meanwhile, so that a crashed uploader hinders no pruner for longer.
pub(super) const UPLOADING: Duration = Duration::from_secs(60 * 60);

/// Between two times that it is made anew.
pub(super) const MARK_AGAIN: Duration = Duration::from_secs(10 * 60);

/// A mark of a pruning is believed for so long only: an uploader waits for it, also for that of a process that crashed.
pub(super) const PRUNING: Duration = Duration::from_secs(40);

/// Between two times that it is made anew.
pub(super) const PRUNING_AGAIN: Duration = Duration::from_secs(5);

/// Nothing is deleted under a mark that was made longer ago, and no request to delete something is waited for longer than
/// [`DELETING`]: so nothing is deleted once the mark is not believed any more.
pub(super) const PRUNING_SURE: Duration = Duration::from_secs(15);

/// A request to delete an object is waited for so long: see [`PRUNING_SURE`].
pub(super) const DELETING: Duration = Duration::from_secs(10);

/// An uploader waits so long for processes that prune, and then gives up.
pub(super) const GIVING_WAY: Duration = Duration::from_secs(3 * 60);

/// Between two looks whether they are done.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A pruning that takes longer is given up; the next one goes on with it. Meanwhile no job uploads.
pub(super) const PRUNING_MOST: Duration = Duration::from_secs(2 * 60);

/// A request is given up after this, and tried again.
#[cfg(feature = "mirror")]
pub(super) const REQUEST: Duration = Duration::from_secs(120);

/// A request that fails is tried again for so long. Beyond it the upload fails, and goes on with the next checkpoint.
#[cfg(feature = "mirror")]
pub(super) const RETRY: Duration = Duration::from_secs(60);

/// A request is tried again so often.
#[cfg(feature = "mirror")]
pub(super) const RETRIES: usize = 6;

const _: () = assert!(PACK_BYTES >= PIECE_BYTES && PACK_BYTES <= 5 << 30);
const _: () = assert!(
    PRUNING_SURE.as_secs() + DELETING.as_secs() < PRUNING.as_secs()
        && PRUNING_MOST.as_secs() + PRUNING.as_secs() < GIVING_WAY.as_secs()
);
const _: () = assert!(PRUNING_AGAIN.as_secs() < PRUNING_SURE.as_secs() && MARK_AGAIN.as_secs() * 2 < UPLOADING.as_secs());
const _: () = assert!(MANIFEST_BYTES <= 256 << 20);
