//! What children print, into files: complete, private, and theirs alone.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sardana_actors::agent::{AgentConfig, AgentError, AgentEvent, Colour, LogBounds, Output};
use sardana_protocol::words::WorkerId;

use super::orders::start;
use super::raw::{Site, start_agent};

fn prefixed(folder: &Path) -> Output {
    Output::Prefixed {
        log_dir: Some(folder.to_owned()),
        bounds: LogBounds::default(),
        colour: Colour::Off,
    }
}

#[tokio::test]
async fn every_worker_has_its_own_private_file() {
    let site = Site::new().await;
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let script = "i=0; while [ $i -lt 300 ]; do echo $$ line $i; i=$((i+1)); done; echo oops >&2; printf end";
    let (agent, mut told) = start(&site, script, 2, prefixed(&logs)).await;
    let mut pids = BTreeMap::new();
    loop {
        match told.next().await {
            AgentEvent::Started { worker, pid } => drop(pids.insert(worker, pid)),
            AgentEvent::Exhausted => break,
            _other => {}
        }
    }
    agent.end().await;
    assert_eq!(pids.len(), 2);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&logs), 0o700);
    for (worker, pid) in pids {
        let path = logs.join(format!("{worker}.log"));
        assert_eq!(mode(&path), 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected: String = (0..300).map(|line| format!("{pid} line {line}\n")).collect();
        // The order of the two streams is not known.
        assert_eq!(text.replacen("oops\n", "", 1), format!("{expected}end"));
        assert!(text.contains("oops\n"));
    }
}

#[tokio::test]
async fn a_folder_that_is_none_is_named_before_anything_starts() {
    let site = Site::new().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    for folder in [file.path().to_owned(), file.path().join("logs"), "/proc/logs".into()] {
        let config = AgentConfig {
            output: prefixed(&folder),
            ..site.agent("true", &[])
        };
        let error = start_agent(config).await.unwrap_err();
        assert!(matches!(error, AgentError::Output(_)), "{error}");
        let words = error.to_string();
        assert!(
            words.contains(&folder.display().to_string()) && words.contains("give a folder"),
            "{words}"
        );
    }
}

/// As a GPU is dealt to the children of an agent, it is dealt to their successors.
#[tokio::test]
async fn a_child_that_replaces_another_finds_what_that_found() {
    let site = Site::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (logs, mark) = (folder.path().join("logs"), folder.path().join("mark"));
    // The first that was dealt b fails; all others stay as long as their agent.
    let script = format!(
        "echo $DEALT; if [ $DEALT = b ] && mkdir {} 2>/dev/null; then exit 1; fi; cat >/dev/null",
        mark.display()
    );
    let config = AgentConfig {
        output: prefixed(&logs),
        workers: 3,
        restarts: 1,
        berths: ["a", "b"].map(|dealt| vec![("DEALT".into(), dealt.into())]).to_vec(),
        ..site.agent("sh", &["-c", &script])
    };
    let (agent, mut told) = start_agent(config).await.unwrap();
    let (mut started, mut failed) = (Vec::new(), None);
    while started.len() < 4 {
        match told.next().await {
            AgentEvent::Started { worker, .. } => started.push(worker),
            AgentEvent::Ended { worker, .. } => failed = Some(worker),
            _other => {}
        }
    }
    agent.end().await;
    let found = |worker: &WorkerId| std::fs::read_to_string(logs.join(format!("{worker}.log"))).unwrap();
    let first: Vec<String> = started[..3].iter().map(found).collect();
    assert_eq!(first, ["a\n", "b\n", "a\n"], "in turn");
    assert_eq!(failed, Some(started[1]));
    assert_eq!(found(&started[3]), "b\n");
}
