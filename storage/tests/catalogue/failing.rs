//! Disks that are full, read-only, or fail to sync.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use sardana_storage::catalogue::{Catalogue, CatalogueError, Found};

use crate::child::{COMMIT, Committing, number, require};
use crate::disk::Mounted;
use crate::process::command;

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    for bytes in [600_u64 << 10, 1 << 20] {
        let mounted = match Mounted::memory(&at, bytes) {
            Ok(mounted) => mounted,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let folder = at.join("catalogue");
        let output = command(&[], COMMIT, &folder).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let failed = said.lines().find(|line| line.starts_with("failed ")).unwrap();
        assert!(failed.contains("No space left on device"), "{failed}");
        let acknowledged = said.lines().filter_map(number).next_back().unwrap_or(0);
        mounted.remount("size=64m");
        require(&folder, acknowledged);
        println!("a disk of {bytes} bytes took {acknowledged} commits; then: {failed}");
        mounted.unmount();
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_told() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("catalogue");
    let mounted = if rustix::process::geteuid().is_root() {
        // Permissions do not hold root.
        match Mounted::memory(&folder, 64 << 20) {
            Ok(mounted) => Some(mounted),
            Err(reason) => return println!("skipped: {reason}"),
        }
    } else {
        None
    };
    let mut child = Committing::start(&folder, 0);
    child.wait(5);
    let acknowledged = child.kill();
    let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    match &mounted {
        Some(mounted) => mounted.remount("ro"),
        None => set(0o500),
    }
    let error = Catalogue::open(&folder).unwrap_err();
    assert!(matches!(error, CatalogueError::Private(_)), "{error:?}");
    let text = error.to_string().to_lowercase();
    assert!(text.contains("read-only") || text.contains("permission denied"), "{text}");
    match &mounted {
        Some(mounted) => mounted.remount("rw"),
        None => set(0o700),
    }
    require(&folder, acknowledged);
}

/// What is missing here for errors and kills at chosen syncs, if anything.
fn strace() -> Result<(), String> {
    let probe = [
        "-f",
        "-qq",
        "-o/dev/null",
        "-etrace=fdatasync",
        "-einject=fdatasync:error=EIO",
        "true",
    ];
    match Command::new("strace").args(probe).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("strace: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("strace: {error}")),
    }
}

/// A child that commits, to whose syncs that is done.
fn under_strace(inject: &str, folder: &Path) -> Output {
    let inject = format!("-einject=fdatasync:{inject}");
    let wrapper = ["strace", "-f", "-qq", "-o/dev/null", "-etrace=fdatasync", &inject];
    command(&wrapper, COMMIT, folder).output().unwrap()
}

/// Between sled's sync and the marker's, and before and after.
#[test]
fn what_was_acknowledged_survives_a_kill_at_any_sync() {
    if let Err(reason) = strace() {
        return println!("skipped: {reason}");
    }
    let place = tempfile::tempdir().unwrap();
    for when in 1..=8 {
        let folder = place.path().join(when.to_string());
        let output = under_strace(&format!("signal=KILL:when={when}"), &folder);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && !said.contains("failed"), "{said}");
        require(&folder, said.lines().filter_map(number).next_back().unwrap_or(0));
    }
}

/// A sync fails once, and would succeed if it were tried again: as Linux does it, which has forgotten the pages by then.
#[test]
fn after_a_failed_sync_nothing_is_claimed_any_more() {
    if let Err(reason) = strace() {
        return println!("skipped: {reason}");
    }
    let place = tempfile::tempdir().unwrap();
    // Each thread's syncs are counted from one: opening makes one, each commit two, of sled's data and of the marker.
    for when in [1, 2, 3, 10, 11] {
        let folder = place.path().join(when.to_string());
        let output = under_strace(&format!("error=EIO:when={when}"), &folder);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let failed = said.lines().find(|line| line.starts_with("failed ")).unwrap();
        assert!(failed.contains("Input/output error"), "{failed}");
        let acknowledged = said.lines().filter_map(number).next_back();
        assert_eq!(acknowledged.is_some(), when > 2, "{said}");
        if when == 1 {
            assert_eq!(Catalogue::open(&folder).unwrap().found, Found::Fresh);
            continue;
        }
        assert_eq!(said.matches("refused for good").count(), 3, "{said}");
        require(&folder, acknowledged.unwrap_or(0));
    }
}
