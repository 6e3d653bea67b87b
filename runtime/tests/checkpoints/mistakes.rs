//! Directories that cannot be used, and command lines that cannot be read.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use sardana_storage::store::Store;

use super::site::Site;

/// One line of each command, on the directory DIR.
const COMMANDS: [&str; 7] = [
    "list DIR",
    "show DIR",
    "verify DIR",
    "export DIR newest --out x",
    "import DIR x --like newest",
    "prune DIR --keep last=1",
    "copy DIR other",
];

fn all_fail(site: &Site, dir: &str, words: &[&str]) {
    for line in COMMANDS {
        site.fails(&line.replace("DIR", dir), &[&["sardana checkpoints: ", dir], words].concat());
    }
    assert!(!site.path("other").exists() && !site.path("x").exists());
}

#[test]
fn directories_that_are_none() {
    let site = Site::new();
    all_fail(
        &site,
        "nowhere",
        &[
            "expected a directory of checkpoints, found nothing",
            "whether the path is right",
        ],
    );
    assert!(!site.path("nowhere").exists());
    fs::write(site.folder("full").join("notes"), "mine").unwrap();
    all_fail(
        &site,
        "full",
        &[
            "expected a directory of checkpoints",
            "found one with other things in it",
            "--checkpoint-dir",
        ],
    );
    assert_eq!(fs::read_dir(site.path("full")).unwrap().count(), 1);
    site.folder("empty");
    all_fail(&site, "empty", &["found an empty one"]);
    fs::write(site.path("file"), "").unwrap();
    all_fail(&site, "file", &["found a file"]);
    site.save("a", &[10]);
    site.fails("copy a full", &["full", "found one with other things in it"]);
    site.fails("list file/below", &["file/below"]);
}

#[test]
fn a_directory_that_is_in_use() {
    let site = Site::with(&[10]);
    let opened = Store::open(&site.path("a")).unwrap();
    let own = format!("in use by process {}", std::process::id());
    all_fail(&site, "a", &[&own, "a job that runs", "sardana stop"]);
    site.save("b", &[10]);
    site.fails("copy b a", &[&own]);
    site.fails("show b --also a", &[&own]);
    drop(opened);
    site.done("list a");
}

#[test]
fn a_directory_of_a_newer_version() {
    let site = Site::with(&[10]);
    let line = "sardana-store 9 and more";
    let line = format!("{line} check={}\n", blake3::hash(line.as_bytes()));
    fs::write(site.path("a/format"), line).unwrap();
    all_fail(
        &site,
        "a",
        &[
            "written by a newer version",
            "found 9",
            "use the release of sardana that wrote them",
        ],
    );
}

#[test]
fn a_directory_that_others_may_enter() {
    let site = Site::with(&[10]);
    fs::set_permissions(site.path("a"), Permissions::from_mode(0o755)).unwrap();
    all_fail(&site, "a", &["expected mode 0700, found 0755", "chmod 700"]);
}

#[test]
fn a_directory_that_cannot_be_written_to() {
    let site = Site::with(&[10]);
    fs::set_permissions(site.path("a"), Permissions::from_mode(0o500)).unwrap();
    if fs::write(site.path("a/probe"), "").is_ok() {
        println!("skipped: this user may write to read-only directories");
        return;
    }
    all_fail(&site, "a", &["expected a directory that can be written to", "cp -a"]);
    // So that it can be removed.
    fs::set_permissions(site.path("a"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_same_directory_twice() {
    let site = Site::with(&[10]);
    for line in [
        "copy a a",
        "copy a ./a",
        "copy a b --also a",
        "import a x --like newest --like-dir a",
    ] {
        site.misused(line, &["expected different directories"]);
    }
    site.fails("show a --also a/../a", &["expected different directories"]);
}

#[test]
fn command_lines_that_cannot_be_read() {
    let site = Site::with(&[10]);
    for (line, words) in [
        ("", &["Usage", "list", "export"][..]),
        ("list", &["<DIR|URL>"]),
        ("show", &["<DIR|URL>"]),
        ("burn a", &["unrecognized subcommand 'burn'"]),
        ("export a", &["STEP|ID|newest", "--out"]),
        ("export a newest", &["--out <FILE>"]),
        ("import a x", &["--like"]),
        ("import a x --like newest --step soon", &["soon", "--step"]),
        ("prune a", &["--keep"]),
        ("prune a --keep 3", &["\"3\"", "last=N", "last=3,every=1000"]),
        ("prune a --keep last=0", &["last=0", "above 0"]),
        ("copy a", &["<TO>"]),
    ] {
        site.misused(line, words);
    }
}

#[test]
fn every_command_has_help_with_examples() {
    let site = Site::new();
    for line in ["", "list ", "show ", "verify ", "export ", "import ", "prune ", "copy "] {
        site.says(&format!("{line}--help"), &["Examples:", "Exit codes:", "sardana checkpoints"]);
    }
}
