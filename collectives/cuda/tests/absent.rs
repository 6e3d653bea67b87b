//! What is said where there is no driver that can be used: each case in a process of its own, whose loader looks into a folder of the test's.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sardana_cuda::driver::{Absent, Driver};

/// Set in the processes that only ask.
const ASK: &str = "SARDANA_TEST_ASKS";

/// Not a test by itself: what a process says that was started by the others.
#[test]
fn asks() {
    if std::env::var_os(ASK).is_none() {
        return;
    }
    let absent = Driver::of_this_machine().map(|driver| driver.devices());
    assert_eq!(
        absent,
        Driver::of_this_machine().map(|driver| driver.devices()),
        "the answer stays"
    );
    match absent {
        Ok(devices) => println!("asked: {devices} devices"),
        Err(absent) => println!("asked: {absent}"),
    }
}

/// What a process says whose loader looks into `folder` first.
fn said(folder: &Path) -> String {
    let mut asks = Command::new(std::env::current_exe().unwrap());
    asks.args(["--exact", "asks", "--nocapture"]);
    let output = asks.env(ASK, "1").env("LD_LIBRARY_PATH", folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = text.split_once("asked: ").map(|(_, words)| words);
    words
        .unwrap_or_else(|| panic!("nothing was said: {text}"))
        .lines()
        .next()
        .unwrap()
        .to_owned()
}

/// The file of a library that this process has open, whatever its folder is called here.
fn any_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.find(|path| path.contains("libgcc_s.so") || path.contains("libm.so"));
    PathBuf::from(found.expect("Rust's programs have one of these open"))
}

#[test]
fn no_library_is_said_in_the_loaders_words() {
    let folder = tempfile::tempdir().unwrap();
    if let Err(Absent::Library { reason }) = Driver::of_this_machine() {
        let words = said(folder.path());
        assert_eq!(words, Absent::Library { reason }.to_string());
        assert!(
            words.contains("libcuda.so.1, found none") && words.contains("No such file"),
            "{words}"
        );
    } else {
        println!("skipped: this machine has an NVIDIA driver");
    }
}

#[test]
fn a_file_that_is_no_library_is_not_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("libcuda.so"),
        "not a library, and long enough to be looked at by the loader of programs",
    )
    .unwrap();
    // Where there is a driver it is found by its other names.
    if Driver::of_this_machine().is_ok() {
        return println!("skipped: this machine has an NVIDIA driver");
    }
    let words = said(folder.path());
    assert!(
        words.contains("libcuda.so.1, found none") && words.contains("invalid ELF header"),
        "{words}"
    );
}

#[test]
fn a_library_without_the_drivers_functions_is_told_by_the_first_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(any_library(), folder.path().join("libcuda.so")).unwrap();
    let words = said(folder.path());
    assert!(
        words.starts_with("expected cuCtxGetCurrent in the NVIDIA driver's library libcuda.so, which lacks it"),
        "{words}"
    );
}
