//! A coordinator whose disk is full, and then is not: the job's record goes on, and an operator who asks is told how it is.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use sardana_actors::coordinator::Records;
use sardana_protocol::limits::MAX_AUXILIARY;
use sardana_protocol::membership::{GenerationEvent, JobEvent};
use sardana_protocol::messages::WorkerHello;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest, Recording};

use super::disk::Mounted;
use super::raw::{Site, hello};

const DISK_BYTES: u64 = 2 << 20;

/// Takes all the room that there is.
fn fill(at: &Path) {
    let mut file = File::create(at).unwrap();
    for bytes in [64 << 10, 4 << 10, 1] {
        let error = loop {
            if let Err(error) = file.write_all(&vec![0; bytes]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
}

/// A worker of a model with so many sums that a record of its job does not fit into what the files have already: a page that is not full
/// yet is written to on a full disk as well.
fn talkative(id: u64) -> WorkerHello {
    WorkerHello {
        auxiliary: (0..MAX_AUXILIARY).map(|sum| format!("{sum:0256}")).collect(),
        ..hello(id)
    }
}

async fn recording(site: &Site) -> Recording {
    match site.coordinator.steering().ask(OperatorRequest::Status).await.unwrap() {
        OperatorAnswer::Status(status) => status.recording,
        other => panic!("expected a status, found {other:?}"),
    }
}

#[tokio::test]
async fn a_record_that_a_full_disk_stopped_goes_on_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("small");
    let mounted = match Mounted::memory(&at, DISK_BYTES) {
        Ok(mounted) => mounted,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let (path, filler) = (at.join("records"), at.join("filler"));
    let (records, found, _) = Records::open(&path).unwrap();
    assert_eq!(found, None);
    fill(&filler);
    let mut site = Site::that_records(records).await;
    assert_eq!(recording(&site).await, Recording::On);

    let _first = site.join_with(talkative(1)).await;
    let reason = loop {
        match site.event().await {
            JobEvent::NotRecorded { reason } => break reason,
            JobEvent::RecordedAgain { .. } => panic!("there is no room"),
            _ => {}
        }
    };
    assert!(reason.contains("No space left on device"), "{reason}");
    match recording(&site).await {
        Recording::Failing { reason: shown, .. } => assert!(shown.contains("No space left on device"), "{shown}"),
        other => panic!("expected the reason, found {other:?}"),
    }

    // The job goes on meanwhile.
    let _second = site.join_with(talkative(2)).await;
    let generation = loop {
        match site.event().await {
            JobEvent::Generation(GenerationEvent::Forming { generation, .. }) => break generation,
            JobEvent::RecordedAgain { .. } => panic!("there is no room"),
            _ => {}
        }
    };
    assert!(matches!(recording(&site).await, Recording::Failing { .. }));

    fs::remove_file(&filler).unwrap();
    while !matches!(site.event().await, JobEvent::RecordedAgain { .. }) {}
    assert_eq!(recording(&site).await, Recording::On);
    let id = hello(2).worker;
    site.coordinator.end().await;
    let (records, found, _) = Records::open(&path).unwrap();
    let found = found.expect("it was written down");
    assert_eq!(found.auxiliary, talkative(2).auxiliary);
    let told = format!("{:?}", found.record);
    for newest in [format!("formed: {generation}"), id.to_string()] {
        assert!(told.contains(&newest), "{newest} is missing from {told}");
    }
    drop(records);
    mounted.unmount();
}
