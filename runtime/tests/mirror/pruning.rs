//! Old checkpoints go from a mirror, and nothing that others need; never while another process copies one there.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use super::objects::{flip, manifest, objects};
use super::site::Site;

#[test]
fn what_is_not_kept_goes_with_what_only_it_needed() {
    let site = Site::with(&[10, 20, 30, 40]);
    site.done("copy a @m all");
    // Left by an upload that was interrupted, and what is none of ours.
    let pack = objects(&site, "m", "packs").remove(0);
    fs::write(pack.with_file_name("0".repeat(64)), b"left").unwrap();
    fs::write(pack.with_file_name("README"), b"mine").unwrap();
    site.says(
        "prune @m --keep last=1,every=20 --dry-run",
        &["would delete s30", "would delete 1 checkpoint, which alone need 1.00 MiB"],
    );
    assert_eq!(objects(&site, "m", "manifests").len(), 4);
    site.says("prune @m --keep last=1,every=20", &["deleted s30", "2 objects of"]);
    site.done("verify @m");
    // Of each of the three that stay one, the description, and the stranger.
    assert_eq!(objects(&site, "m", "packs").len(), 5);
    assert_eq!(objects(&site, "m", "marks").len(), 0);
    site.says("prune @m --delete 20", &["deleted s20", "1 object of"]);
    site.fails("prune @m --delete 40", &["newest complete checkpoint", "never deleted"]);
    site.says("list @m", &["s10", "s40", "2 checkpoints;"]);
}

#[test]
fn what_cannot_be_read_keeps_its_objects_until_it_is_deleted() {
    let site = Site::with(&[10, 20, 30]);
    site.done("copy a @m all");
    fs::write(manifest(&site, "m", 20), b"x").unwrap();
    let words = ["s20", "is left alone", "deleted s10", "no objects were removed", "--delete"];
    site.fails("prune @m --keep last=1", &words);
    assert_eq!(objects(&site, "m", "packs").len(), 4);
    site.says("prune @m --delete 20", &["deleted s20", "2 objects of"]);
    site.done("verify @m");
    // A checkpoint that is not complete does not count as the newest.
    site.done("copy a @m all");
    fs::remove_file(flip(&site, "m", &30_u64.to_le_bytes())).unwrap();
    site.says("prune @m --keep last=1", &["s30", "is left alone", "deleted s10"]);
    site.says("copy @m b newest", &["copied s20"]);
}

#[test]
fn a_pruner_and_an_uploader_give_way_to_each_other() {
    let site = Site::with(&[10, 20]);
    site.done("copy a @m 10");
    let marks = site.path("m").join("v1/marks");
    fs::create_dir_all(&marks).unwrap();
    let mark = |name: &str, age: Duration| {
        let file = File::create(marks.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    // A pruner is waited for, or until it must have crashed.
    mark("pruning-0000000000000001", Duration::from_secs(38));
    site.done("copy a @m 20");
    assert_eq!(objects(&site, "m", "marks").len(), 0);
    // Another uploader hinders no upload, but a pruning.
    mark("uploading-0000000000000002", Duration::from_secs(60));
    site.done("copy a @m 20");
    site.fails("prune @m --keep last=1", &["uploading-0000000000000002", "try again"]);
    assert_eq!(objects(&site, "m", "manifests").len(), 2);
    // Marks of processes that crashed are believed for a while only.
    mark("uploading-0000000000000002", Duration::from_secs(2 * 60 * 60));
    mark("pruning-0000000000000003", Duration::from_secs(2 * 60 * 60));
    site.says("prune @m --keep last=1", &["deleted s10"]);
    assert_eq!(objects(&site, "m", "marks").len(), 0);
}
