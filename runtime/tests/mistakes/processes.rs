//! Jobs in processes. The worker program is this very test program, asked to run the one test that becomes a worker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sardana::job::Staffing;
use sardana::launch::{Event, LaunchConfig, LaunchError, launch};
use sardana::model::ModelError;
use sardana::worker::{EXIT_GIVE_UP, serve_if_started_by_agent};
use sardana::{AgentEvent, Balance, JobSpec, Summary, reference};
use sardana_actors::agent::BUNDLE_VARIABLE;
use tokio::time::timeout;

use super::loopback::PATIENCE;
use super::slope::{Slope, job};

/// Names a folder: the first worker to make another in it fails.
const FAILING: &str = "TEST_FAILING_WORKER";

fn build(spec: &JobSpec) -> Result<Slope, ModelError> {
    if let Some(folder) = std::env::var_os(FAILING)
        && std::fs::create_dir(Path::new(&folder).join("failed")).is_ok()
    {
        return Err("the first one fails".into());
    }
    Slope::new(spec)
}

/// Not a test: a worker, if an agent started it.
#[test]
fn becomes_a_worker() {
    serve_if_started_by_agent(&job(2), build);
}

fn staffing(workers: u32, min: u32, restarts: u32) -> Staffing {
    Staffing {
        workers,
        min,
        max: 8,
        restarts,
        shard_capacity: None,
        balance: Balance::default(),
    }
}

fn this_program(staffing: Staffing) -> LaunchConfig {
    let arguments = ["--exact", "processes::becomes_a_worker", "--nocapture"];
    let program = std::env::current_exe().unwrap();
    LaunchConfig::program(program, arguments.iter().map(OsString::from).collect(), staffing)
}

/// Runs it to its end. Also returns how many processes were started.
fn run(config: LaunchConfig) -> (Result<Summary, LaunchError>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut started = 0;
        let outcome = launch(config).await.unwrap().finish(|_, event| {
            started += usize::from(matches!(event, Event::Agent(AgentEvent::Started { .. })));
        });
        let outcome = timeout(PATIENCE, outcome).await.expect("a job that cannot go on ends");
        (outcome, started)
    })
}

#[test]
fn a_job_is_done_although_one_of_its_workers_gave_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = this_program(staffing(2, 1, 9));
    config.environment.push((FAILING.into(), folder.path().into()));
    let (outcome, started) = run(config);
    let expected = reference::train(job(2).spec(), &mut Slope::new(job(2).spec()).unwrap()).unwrap();
    assert_eq!(outcome.unwrap().hash, expected.hash);
    assert_eq!(started, 2, "one that gives up is not replaced");
}

#[test]
fn a_job_that_lacks_a_worker_for_good_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = this_program(staffing(2, 2, 9));
    config.environment.push((FAILING.into(), folder.path().into()));
    let (outcome, started) = run(config);
    let error = outcome.unwrap_err();
    assert!(matches!(error, LaunchError::TooFew { left: 1, .. }), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("at least 2 workers") && words.contains("exit code 3"),
        "{words}"
    );
    assert_eq!(started, 2);
}

#[test]
fn workers_whose_memory_can_never_hold_a_step_are_not_waited_for() {
    // The workers' own program says 4 shards; the launcher's staffing does not reach them.
    let mut config = this_program(staffing(1, 1, 0));
    config.environment.push(("TEST_SMALL_WORKER".into(), "1".into()));
    config.arguments[1] = "processes::becomes_a_small_worker".into();
    let (outcome, _) = run(config);
    let error = outcome.unwrap_err();
    assert!(matches!(error, LaunchError::NoRoom(_)), "{error}");
    assert!(
        error.to_string().contains("room for 4 shards, there is room for 1"),
        "{error}"
    );
}

/// Not a test: a worker with little memory, if an agent started it.
#[test]
fn becomes_a_small_worker() {
    let small = Staffing {
        shard_capacity: Some(1),
        ..*job(2).staffing()
    };
    serve_if_started_by_agent(&job(2).staffed(small).unwrap(), Slope::new);
}

#[test]
fn programs_that_are_no_workers_end_the_job() {
    let cases = [
        ("true", 0, 2, "exit code 0 before it computed anything"),
        ("false", 2, 4, "exit code 1"),
    ];
    for (program, restarts, expected, words) in cases {
        let config = LaunchConfig::program(PathBuf::from(program), vec![], staffing(2, 1, restarts));
        let (outcome, started) = run(config);
        let error = outcome.unwrap_err();
        assert!(matches!(error, LaunchError::NoWorkers { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(started, expected, "{program}");
    }
}

#[test]
fn programs_that_cannot_be_started_end_the_job_with_the_systems_words() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let cases = [
        ("/no/such/program", "No such file or directory"),
        (folder, "Permission denied"),
    ];
    for (program, words) in cases {
        for min in [1, 2] {
            let config = LaunchConfig::program(PathBuf::from(program), vec![], staffing(2, min, 9));
            let (outcome, started) = run(config);
            let error = outcome.unwrap_err();
            assert!(matches!(error, LaunchError::NotStarted { .. }), "{error}");
            let said = error.to_string();
            for expected in [program, words, "give the path of a program that this user may run"] {
                assert!(said.contains(expected), "{expected} is missing from: {said}");
            }
            assert!(!said.contains("standard error"), "it has said nothing: {said}");
            assert_eq!(started, 0, "{program}");
        }
    }
}

#[test]
fn a_start_by_hand_that_claims_to_be_an_agents_gives_up() {
    let becomes = |stdin: Stdio| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::becomes_a_worker", "--nocapture"]);
        command.env(BUNDLE_VARIABLE, "1").stdin(stdin).output().unwrap()
    };
    let output = becomes(Stdio::null());
    assert_eq!(output.status.code(), Some(EXIT_GIVE_UP));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains(BUNDLE_VARIABLE) && words.contains("unset it"), "{words}");
    let nonsense = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let output = becomes(nonsense.into());
    assert_eq!(output.status.code(), Some(EXIT_GIVE_UP));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("started by an agent of the same release"), "{words}");
}

#[test]
fn a_worker_whose_agent_is_gone_ends() {
    use std::io::Write;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::becomes_a_worker"]);
    let mut child = command.env(BUNDLE_VARIABLE, "1").stdin(Stdio::piped()).spawn().unwrap();
    // Half a header: an agent that died while it wrote.
    child.stdin.take().unwrap().write_all(&[1, 0, 0]).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(EXIT_GIVE_UP));
}
