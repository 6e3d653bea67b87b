//! What workers print: named line by line, or as it is, and in files.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::program::{as_worker, has, said, sardana};
use super::site::Site;

const SCRIPT: &str = "echo to out; echo to err >&2; printf rest";

/// What workers of this script print, and say on standard error.
fn run(options: &str) -> [String; 2] {
    let mut command = sardana(&format!("run -n 2 --restarts 0 {options} -- sh -c"));
    said(command.arg(SCRIPT), 1)
}

/// The id in `[w012345] `, if the line starts so.
fn named(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = line.strip_prefix("[w")?.split_once("] ")?;
    (id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some((id, rest))
}

#[test]
fn lines_are_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let [out, err] = run(&format!("--log-dir {}", logs.display()));
    let lines: Vec<_> = out
        .lines()
        .map(|line| named(line).unwrap_or_else(|| panic!("{line}")))
        .collect();
    assert_eq!(lines.iter().filter(|(_, rest)| *rest == "to out").count(), 2, "{out}");
    assert_eq!(lines.iter().filter(|(_, rest)| *rest == "rest").count(), 2, "{out}");
    let to_err = err.lines().filter_map(named).filter(|(_, rest)| *rest == "to err");
    assert_eq!(to_err.count(), 2, "{err}");
    let mut files = 0;
    for entry in std::fs::read_dir(&logs).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(
            lines.iter().any(|(id, _)| name.starts_with(&format!("w{id}"))) && name.ends_with(".log"),
            "{name}"
        );
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert_eq!(text.replacen("to err\n", "", 1), "to out\nrest");
        files += 1;
    }
    assert_eq!(files, 2);
}

#[test]
fn output_is_passed_on_as_it_is_without_prefixes() {
    let [out, err] = run("--no-prefix");
    assert_eq!(out.replace("rest", "").replace("to out\n", ""), "", "{out}");
    assert!(err.lines().any(|line| line == "to err"));
}

#[test]
fn colours_only_for_who_wants_them() {
    let is_coloured = |name: &str, value: &str| {
        let mut command = sardana("run -n 1 --restarts 0 -- sh -c");
        let [out, _] = said(command.arg(SCRIPT).env(name, value), 1);
        out.contains("\x1b[")
    };
    assert!(is_coloured("CLICOLOR_FORCE", "1"));
    assert!(!is_coloured("NO_COLOR", "1"));
    assert!(!is_coloured("TERM", "xterm-256color"), "this is no terminal");
}

/// As behind `| head`.
#[test]
fn a_job_goes_on_and_ends_well_though_nobody_reads_what_it_prints() {
    let site = Site::new();
    let mut running = site.run("-n 2 --restarts 0");
    drop(running.child.stdout.take());
    running.event("sardana::event::formed");
    running.signal("TERM");
    let (status, said) = running.ends_having_said();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = site.command("data check --json .").stdout(writer).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
}

#[test]
fn a_worker_that_trains_is_named_with_its_rank() {
    let site = Site::new();
    let running = site.run("-n 2 --log-dir logs");
    running.event("sardana::event::formed");
    let out = running.stopped();
    let here = out.lines().filter(|line| line.ends_with("a worker is here"));
    assert_eq!(here.count(), 2, "{out}");
}

#[test]
fn what_a_worker_logs_says_of_which_job_and_worker_it_is() {
    let site = Site::new();
    let running = site.run("-n 2 --log-dir logs");
    running.event("sardana::event::formed");
    running.stopped();
    let mut jobs = BTreeSet::new();
    for entry in std::fs::read_dir(site.path("logs")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let joined = text.lines().find(|line| line.contains("sardana::event::joined"));
        let (_, span) = joined
            .and_then(|line| line.split_once("worker{job="))
            .unwrap_or_else(|| panic!("{text}"));
        let (job, rest) = span.split_once(" worker=").unwrap_or_else(|| panic!("{text}"));
        let (worker, _) = rest.split_once('}').unwrap_or_else(|| panic!("{text}"));
        // Its file is named by the first part of its id.
        assert!(name.starts_with(&worker[..7]), "{name} is of {worker}");
        jobs.insert(job.to_owned());
    }
    assert_eq!(jobs.len(), 1, "both are of one job: {jobs:?}");
}

/// Linux has a file that is always full (full(4)).
#[test]
#[cfg(target_os = "linux")]
fn words_that_could_not_be_written_are_said_to_be_lost() {
    let full = || File::create("/dev/full").unwrap();
    let lost = [
        "not all that it prints could be written: No space left on device",
        "make room there",
    ];
    for line in ["doctor", "doctor --json", "bench link --sizes 64B --json"] {
        let mut command = sardana(line);
        let ended = command.stdout(full()).output().unwrap();
        let err = String::from_utf8_lossy(&ended.stderr);
        has(&err, &lost);
        assert_eq!(ended.status.code(), Some(1), "{line}: {err}");
    }
    // Where nothing can be said at all, the exit code says it.
    let mut command = sardana("doctor");
    let ended = command.stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(ended.code(), Some(1));
}

#[test]
#[cfg(target_os = "linux")]
fn a_job_ends_as_it_ends_whatever_becomes_of_its_words() {
    let site = Site::new();
    let mut command = site.command("run -n 1 --");
    let full = File::create("/dev/full").unwrap();
    let mut job = as_worker(&mut command).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    while site.command("status --json").output().unwrap().status.code() != Some(0) {
        assert!(job.try_wait().unwrap().is_none(), "it runs until it is asked to stop");
    }
    site.done("stop");
    let ended = job.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{err}");
    has(&err, &["not all that it prints could be written"]);
}
