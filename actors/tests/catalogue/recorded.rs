//! A coordinator whose disk is full, and then is not: the job's record goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sardana_actors::coordinator::{self, CoordinatorConfig, KeptJob, Past, Records, Succession};
use sardana_actors::enrol::Registrar;
use sardana_actors::trust::Authority;
use sardana_protocol::membership::{Balance, JobEvent};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest, Recording};
use sardana_protocol::words::{Incarnation, JobId};
use tokio::time::timeout;

use crate::disk::Mounted;

const PATIENCE: Duration = Duration::from_secs(60);

/// The job that an earlier version left behind.
fn job(place: &Path) -> KeptJob {
    use std::os::unix::fs::PermissionsExt;
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/state_of_before");
    let path = place.join("before");
    fs::create_dir_all(path.join("store/blobs")).unwrap();
    for folder in [path.clone(), path.join("store")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    for file in ["marker", "store/db", "store/conf"] {
        fs::copy(from.join(file), path.join(file)).unwrap();
        fs::set_permissions(path.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    Records::open(&path).unwrap().1.expect("a job")
}

/// Takes all the room that there is.
fn fill(at: &Path) -> File {
    let mut file = File::create(at).unwrap();
    for bytes in [vec![0; 64 << 10], vec![0; 1 << 10], vec![0; 1]] {
        while file.write_all(&bytes).is_ok() {}
    }
    file
}

#[tokio::test]
async fn a_record_that_a_full_disk_stopped_goes_on_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let mounted = match Mounted::memory(&at, 2 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let path = at.join("records");
    let (records, none, _) = Records::open(&path).unwrap();
    assert_eq!(none, None);
    drop(fill(&at.join("filler")));
    let authority = Arc::new(Authority::new(JobId::new([7; 16])).unwrap());
    let config = CoordinatorConfig {
        registrar: Arc::new(Registrar::new(authority)),
        listen: "127.0.0.1:0".parse().unwrap(),
        incarnation: Incarnation::new(4),
        past: Past::Known(Box::new(job(place.path()))),
        succession: Succession::Resume,
        records: Some(records),
        min: 1,
        expected: 1,
        max: 8,
        balance: Balance::default(),
        saves: None,
    };
    let (coordinator, mut events) = coordinator::start(config).await.unwrap();
    let mut next = async |wanted: fn(&JobEvent) -> bool| loop {
        let event = timeout(PATIENCE, events.recv())
            .await
            .expect("it is told in time")
            .expect("it lives");
        if wanted(&event) {
            break event;
        }
    };
    let JobEvent::NotRecorded { reason } = next(|event| matches!(event, JobEvent::NotRecorded { .. })).await else {
        unreachable!("that is what was waited for");
    };
    assert!(reason.contains("No space left on device"), "{reason}");
    let recording = async || match coordinator.steering().ask(OperatorRequest::Status).await.unwrap() {
        OperatorAnswer::Status(status) => status.recording,
        OperatorAnswer::Done { .. } | OperatorAnswer::Refused { .. } => panic!("expected a status"),
    };
    assert!(matches!(recording().await, Recording::Failing { .. }));
    fs::remove_file(at.join("filler")).unwrap();
    next(|event| matches!(event, JobEvent::RecordedAgain { .. })).await;
    assert_eq!(recording().await, Recording::On);
    coordinator.end().await;
    let (records, found, _) = Records::open(&path).unwrap();
    let found = found.expect("it was written down");
    assert_eq!(found.identity, job(place.path()).identity);
    drop(records);
    mounted.unmount();
}
