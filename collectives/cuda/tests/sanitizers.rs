//! The rows that a sanitizer makes in the table of a machine with a GPU: found, failing, unable, silent and absent. With programs that are none, so that no GPU is
//! asked.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// What a sanitizer does before anything else: it says how it was called, and sets aside what is its own.
const BEGINS: &str = "echo \"$*\" >>called; tool=$2; while [ \"$1\" != ./gpu_check ]; do shift; done";

/// Runs the program, and says at its end what it has found of it, as the real one.
const RUNS: &str = "\"$@\"; code=$?
case $tool in
memcheck) echo '========= ERROR SUMMARY: 0 errors' ;;
racecheck) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
esac
exit $code";

/// What was made of a sanitizer.
struct Made {
    folder: TempDir,
    code: Option<i32>,
    table: String,
}

impl Made {
    /// With a sanitizer that does this, if there is one, and a program to be checked that does that where it is not only asked something.
    fn of(sanitizer: Option<&str>, gpu_check: &str) -> Self {
        Self::starting(sanitizer, "2", gpu_check)
    }

    /// The same, where the program ends with this code if it is called wrongly: 2, where it starts by itself.
    fn starting(sanitizer: Option<&str>, wrongly_called: &str, gpu_check: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &str| write_program(&folder.path().join(name), lines);
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/gpu-there");
        fs::copy(run, folder.path().join("run")).unwrap();
        for name in ["sardana", "cuda_mlp"] {
            write(name, "exit 1");
        }
        let asked = format!("case \"$*\" in --seed*) exit {wrongly_called} ;; --free) echo 5; exit 0 ;; esac");
        write("gpu_check", &format!("{asked}\necho checked >>checked\n{gpu_check}"));
        fs::create_dir(folder.path().join("tools")).unwrap();
        if let Some(lines) = sanitizer {
            write("tools/compute-sanitizer", &format!("{BEGINS}\n{lines}"));
        }
        let mut path = folder.path().join("tools").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut table = Command::new("bash");
        let output = table
            .arg(folder.path().join("run"))
            .arg("--quick")
            .env("PATH", path)
            .output()
            .unwrap();
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        Self {
            folder,
            code: output.status.code(),
            table,
        }
    }

    /// The rows of both tools, without their names.
    fn rows(&self) -> [&str; 2] {
        ["memcheck", "racecheck"].map(|tool| {
            let mut rows = self.table.lines().filter(|line| line.split(' ').next() == Some(tool));
            let row = rows.next().unwrap_or_else(|| panic!("{tool} is missing: {}", self.table));
            assert_eq!(rows.next(), None, "{}", self.table);
            row[24..].trim_end()
        })
    }

    /// What is in a file that programs have left.
    fn left(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn write_program(path: &Path, lines: &str) {
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_sanitizer_that_finds_nothing_is_a_row_with_its_summary() {
    let made = Made::of(Some(RUNS), "exit 0");
    assert_eq!(
        made.rows(),
        [
            "ok       ERROR SUMMARY: 0 errors",
            "ok       RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
        ]
    );
    // So that what it finds is an exit code, and that the program asks for more parameters than there are is none of it.
    let called = [
        "--tool memcheck --error-exitcode 9 --report-api-errors no ./gpu_check --quick",
        "--tool racecheck --error-exitcode 9 ./gpu_check --quick",
    ];
    assert_eq!(made.left("called").lines().collect::<Vec<_>>(), called);
    assert_eq!(made.left("checked").lines().count(), 3, "by itself, and by each tool");
    let log = made.left("out/memcheck.log");
    assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
}

#[test]
fn what_a_sanitizer_finds_fails_and_so_does_a_program_that_fails_under_it() {
    let finds = "echo '========= Invalid __global__ read of size 4 bytes'; echo '========= ERROR SUMMARY: 1 error'; exit 9";
    for (sanitizer, gpu_check, code) in [(finds, "exit 0", 9), (RUNS, "exit 4", 4)] {
        let made = Made::of(Some(sanitizer), gpu_check);
        let told = ["memcheck", "racecheck"].map(|tool| format!("FAILED   exit code {code}; see {tool}.log"));
        assert_eq!(made.rows(), told);
        assert_eq!(made.code, Some(1));
        assert!(made.table.contains("not all is as it should be"), "{}", made.table);
    }
}

#[test]
fn a_sanitizer_that_says_no_summary_has_checked_nothing() {
    let made = Made::of(Some("exit 0"), "exit 0");
    let told = ["memcheck", "racecheck"].map(|tool| format!("FAILED   exit code 0 and no summary; see {tool}.log"));
    assert_eq!(made.rows(), told);
    assert_eq!(made.left("checked").lines().count(), 1, "by itself alone");
}

#[test]
fn a_device_that_it_does_not_support_is_skipped_whatever_its_exit_code() {
    let unable = "echo '========= Error: Device not supported. Please refer to the documentation.'";
    for end in ["exit 1", "echo '========= ERROR SUMMARY: 0 errors'; exit 0"] {
        let made = Made::of(Some(&format!("{unable}; {end}")), "exit 0");
        assert_eq!(made.rows(), ["skipped  it does not support this device"; 2]);
    }
}

#[test]
fn where_it_is_absent_it_is_skipped() {
    let looks = "command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer";
    if Command::new("sh").args(["-c", looks]).output().unwrap().status.success() {
        return println!("skipped: this machine has a compute-sanitizer");
    }
    let made = Made::of(None, "exit 0");
    assert_eq!(made.rows(), ["skipped  there is no compute-sanitizer"; 2]);
}

#[test]
fn a_program_that_needs_the_libraries_that_were_packed_is_not_given_to_it() {
    let made = Made::starting(Some(RUNS), "127", "exit 0");
    let told = "skipped  it does not follow programs that need the libraries that were packed";
    assert_eq!(made.rows(), [told; 2]);
    assert_eq!(made.left("called"), "");
}
