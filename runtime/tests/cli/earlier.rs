//! What commit 925c4f6 has written is still read: a directory of checkpoints, and the state directory of a coordinator that was killed in
//! the middle of a job. Both lie in `earlier/` as that program has left them, but for its locks. (The authority there, of a job that is
//! long over, is valid until 2036.)

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use super::program::has;
use super::site::Site;

/// Puts what lies there into the site, for its owner alone.
fn put(site: &Site, name: &str) {
    let lies = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/earlier");
    copy(&lies.join(name), &site.path(name));
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::write(to, fs::read(from).unwrap()).unwrap();
        return fs::set_permissions(to, Permissions::from_mode(0o600)).unwrap();
    }
    DirBuilder::new().mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn checkpoints_that_an_earlier_version_has_written_are_whole_and_can_be_copied_and_exported() {
    let state = "a72a323a2cffaf2adaa233e4e7bfde4f68a7841032a5939a1102f6907a7e61f9";
    let site = Site::new();
    put(&site, "checkpoints");
    let whole = format!("s400 (ce95883f0468): whole, state {state}");
    has(
        &site.done("checkpoints verify checkpoints"),
        &["s4 (", "s256 (", &whole, "4 pieces of 57 B read and whole, 0 not"],
    );
    let shown = site.json("checkpoints show checkpoints newest");
    assert_eq!((&shown["state"], &shown["job"]["name"]), (&state.into(), &"line".into()));
    site.done("checkpoints copy checkpoints copy all");
    has(&site.done("checkpoints verify copy"), &[&whole]);
    site.done("checkpoints export checkpoints newest --out state.safetensors");
    assert!(site.path("state.safetensors").is_file());
    site.done("checkpoints prune checkpoints --keep last=1");
    has(&site.done("checkpoints verify checkpoints"), &[&whole]);
}

#[test]
fn a_coordinator_goes_on_from_what_an_earlier_version_has_written_down() {
    let site = Site::new();
    put(&site, "state");
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "operator", "operator.join");
    let status = site.json("status --join operator.join");
    assert_eq!(status["job"], "d7d0991ac43637e9055790de6dc5474b");
    assert_eq!(status["generation"], "g2.0", "the life after that of the earlier version");
    let spec = &status["spec"];
    assert_eq!(
        (&spec["name"], &spec["shards"], &spec["steps"]),
        (&"digits".into(), &8.into(), &690.into()),
        "it is in the job's record"
    );
    assert_eq!(status["recording"]["state"], "on");
    coordinator.killed();
}
