//! The job's record on a disk: as it was and is written, how little of it, and through failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sardana_net::environment::Environment;
use sardana_protocol::codec::{decode, encode};
use sardana_protocol::job::{Compression, JobIdentity, Order, UncompressedIdentity};
use sardana_protocol::limits::RELEASED_KEPT;
use sardana_protocol::membership::{Balance, Config, EarlierRecord, JobEvent, JobRecord, Membership};
use sardana_protocol::messages::Tally;
use sardana_protocol::samples;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};
use sardana_storage::catalogue::limits::VALUE_BYTES;
use sardana_storage::catalogue::{Batch, Catalogue};
use tokio::time::sleep;

use super::journal::Journal;
use super::limits::{RECORD_AGAIN_MOST, RECORD_VALUES};
use super::records::{KeptJob, Records, RecordsError, keep_writing};

fn kept(name: &str, record: JobRecord) -> KeptJob {
    let mut identity = samples::identity();
    identity.spec.name = name.to_owned();
    KeptJob {
        identity,
        auxiliary: vec!["loss".to_owned()],
        record,
    }
}

fn job(name: &str) -> KeptJob {
    let hash = StateHash::of(b"x");
    let config = Config {
        min: 1,
        expected: 1,
        max: 8,
        shards: 8,
        steps: Step::new(10),
        order: Order::Exact,
        compression: Compression::None,
        balance: Balance::default(),
        task: samples::identity().task(),
        build: hash,
        saves: None,
    };
    kept(name, Membership::new(config, Incarnation::new(1), Duration::ZERO).record())
}

/// The bytes of a record as wire version 5 wrote it, field by field, with these workers that had left.
fn bytes_of_before(released: &BTreeMap<WorkerId, Step>) -> Vec<u8> {
    let worker = WorkerId::new;
    let tally = Tally {
        total: 50,
        step: Step::new(9),
        this_step: 1,
        previous_step: 2,
    };
    let workers = BTreeSet::from([1, 2, 3].map(worker));
    let leaving = BTreeSet::from([worker(2)]);
    let steps = (Step::new(9), Step::new(0), Step::new(6), Step::new(8));
    let formed = Generation::new(Incarnation::new(3), 41);
    let counts = (vec![(tally, 2_u64)], 100_u64, 150_u64, 12_u64, 3_u32);
    let parts = [
        encode(&(formed, workers, leaving, released, false, steps, counts), 1 << 20),
        // What has happened without them: since step 7, everything, nothing.
        encode(
            &(
                3_u64,
                (worker(9), 1_u32, Step::new(7)),
                (worker(10), 2_u32),
                (worker(11), 0_u32),
            ),
            1 << 20,
        ),
        encode(&BTreeMap::from([(worker(9), Step::new(7))]), 1 << 20),
    ];
    parts.into_iter().flat_map(Result::unwrap).collect()
}

fn record_of_before(released: u64) -> JobRecord {
    let released = (100..100 + released).map(|id| (WorkerId::new(id), Step::new(id))).collect();
    decode::<EarlierRecord>(&bytes_of_before(&released), 1 << 20).unwrap().into()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("records");
    (place, path)
}

#[test]
fn a_job_is_there_until_it_is_over() {
    let (_place, path) = place();
    let (mut records, none, _) = Records::open(&path).unwrap();
    assert_eq!(none, None);
    records.write(Some(&job("one"))).unwrap();
    // Longer than one value may be.
    let long = job(&"x".repeat(VALUE_BYTES + 5));
    records.write(Some(&long)).unwrap();
    drop(records);
    let (mut records, found, _) = Records::open(&path).unwrap();
    assert_eq!(found, Some(long));
    records.write(Some(&job("two"))).unwrap();
    drop(records);
    let (mut records, found, _) = Records::open(&path).unwrap();
    assert_eq!(found, Some(job("two")));
    let too_long = job(&"x".repeat(RECORD_VALUES * VALUE_BYTES));
    assert!(matches!(records.write(Some(&too_long)), Err(RecordsError::Record(_))));
    records.write(None).unwrap();
    drop(records);
    assert_eq!(Records::open(&path).unwrap().1, None);
}

/// A copy of what wire version 5 left in a state directory.
fn of_before(path: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/state_of_before");
    fs::create_dir_all(path.join("store/blobs")).unwrap();
    for folder in [path.to_owned(), path.join("store")] {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
    }
    for file in ["marker", "store/db", "store/conf"] {
        fs::copy(from.join(file), path.join(file)).unwrap();
        fs::set_permissions(path.join(file), Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn what_an_earlier_version_wrote_is_read_and_gives_way_to_the_present_form() {
    let (_place, path) = place();
    of_before(&path);
    let (mut records, found, repairs) = Records::open(&path).unwrap();
    assert!(repairs.is_empty(), "{repairs:?}");
    let released = BTreeMap::from([(WorkerId::new(7), Step::new(5)), (WorkerId::new(8), Step::new(8))]);
    let record: EarlierRecord = decode(&bytes_of_before(&released), 1 << 20).unwrap();
    let mut expected = kept("a job of before", record.into());
    // Nothing was said of it then.
    expected.identity.fingerprint.settings = StateHash::of(b"");
    assert_eq!(found.as_ref(), Some(&expected));
    let told = format!("{expected:?}");
    for words in ["formed: g3.41", "Since(s7)", "total: 50", "unsure: 4"] {
        assert!(told.contains(words), "{words} is missing from {told}");
    }
    records.write(Some(&expected)).unwrap();
    drop(records);
    assert_eq!(Records::open(&path).unwrap().1, Some(expected));
    // An earlier version that finds it says that it cannot read it, instead of taking it for none.
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let first = catalogue.table("job").unwrap().get(&[0]).unwrap().unwrap();
    assert_eq!(catalogue.table("job").unwrap().len(), 1);
    assert!(decode::<(JobIdentity, Vec<String>, EarlierRecord)>(&first, VALUE_BYTES).is_err());
}

#[test]
fn a_record_from_before_gradients_could_be_compressed_is_read() {
    let (_place, path) = place();
    let (mut records, _, _) = Records::open(&path).unwrap();
    let kept = job("one");
    records.write(Some(&kept)).unwrap();
    drop(records);
    let earlier = UncompressedIdentity::of(&kept.identity).unwrap();
    let identity = encode(&(earlier, &kept.auxiliary), VALUE_BYTES).unwrap();
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    let first = catalogue.table("record").unwrap().get(b"identity\0").unwrap().unwrap();
    assert!(identity.len() < first.len(), "it says less");
    let as_then = Batch::new().put("job", &[0], b"sardana record 3");
    catalogue.commit(&as_then.put("record", b"identity\0", &identity)).unwrap();
    drop(catalogue);
    let (mut records, found, _) = Records::open(&path).unwrap();
    assert_eq!(found, Some(kept.clone()));
    let mut compressed = kept;
    (compressed.identity.spec.order, compressed.identity.spec.compression) = (Order::Fast, Compression::F16);
    records.write(Some(&compressed)).unwrap();
    drop(records);
    assert_eq!(Records::open(&path).unwrap().1, Some(compressed));
}

#[test]
fn only_what_has_changed_is_written_however_many_have_left() {
    for released in [10, RELEASED_KEPT as u64 - 1] {
        let (_place, path) = place();
        let (mut journal, _, _) = Journal::open(&path).unwrap();
        let before = kept("one", record_of_before(released));
        let all = journal.write(Some(&before)).unwrap();
        assert!(all as u64 >= released, "{all}");
        assert_eq!(journal.write(Some(&before)).unwrap(), 0, "nothing has changed");
        let after = kept("one", record_of_before(released + 1));
        assert_eq!(journal.write(Some(&after)).unwrap(), 1, "one more has left");
        drop(journal);
        let (mut journal, found, _) = Journal::open(&path).unwrap();
        assert_eq!(found, Some(after.clone()));
        assert_eq!(journal.write(Some(&after)).unwrap(), 0, "it is known what is there");
        assert_eq!(journal.write(None).unwrap() as u64, all as u64 + 1);
    }
}

#[test]
fn a_record_that_was_left_half_changed_is_not_sure_of_its_count() {
    let (_place, path) = place();
    let (mut journal, _, _) = Journal::open(&path).unwrap();
    let one = kept("one", record_of_before(3));
    journal.write(Some(&one)).unwrap();
    drop(journal);
    let catalogue = Catalogue::open(&path).unwrap().catalogue;
    catalogue.commit(&Batch::new().put("record", b"torn", b"torn")).unwrap();
    drop(catalogue);
    let (mut journal, found, _) = Journal::open(&path).unwrap();
    let found = found.unwrap();
    assert_ne!(found, one);
    assert_eq!(found.record, one.record.clone().torn());
    journal.write(Some(&one)).unwrap();
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().1, Some(one), "whole again");
}

/// Each path has what the other had, and at no moment nothing: an attempt to write would make the folder that is missing.
fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_it_is_tried_again_until_it_can_be_written() {
    let (place, path) = place();
    let away = place.path().join("away");
    let (mut records, _, _) = Records::open(&path).unwrap();
    records.write(Some(&job("one"))).unwrap();
    // The disk is gone, and something else is in its place.
    records.fail();
    fs::write(&away, "no folder").unwrap();
    exchange(&path, &away);
    let (mut recorder, writing) = keep_writing(Environment::Host, records);
    recorder.write(job("two"));
    let reason = loop {
        match recorder.news() {
            Some(JobEvent::NotRecorded { reason }) => break reason,
            Some(other) => panic!("{other:?}"),
            None => sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(reason.contains("records"), "{reason}");
    // It goes on to be tried, and people are told once.
    for _ in 0..10 {
        sleep(RECORD_AGAIN_MOST).await;
        assert_eq!(recorder.news(), None);
    }
    recorder.write(job("three"));
    exchange(&path, &away);
    let after = loop {
        match recorder.news() {
            Some(JobEvent::RecordedAgain { after }) => break after,
            Some(other) => panic!("{other:?}"),
            None => sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(after >= RECORD_AGAIN_MOST * 10, "{after:?}");
    drop(recorder);
    writing.await.unwrap();
    assert_eq!(Records::open(&path).unwrap().1, Some(job("three")), "all that came meanwhile");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_later_although_nothing_changes() {
    let (_place, path) = place();
    let away = path.with_extension("away");
    let (mut records, _, _) = Records::open(&path).unwrap();
    records.fail();
    fs::write(&away, "no folder").unwrap();
    exchange(&path, &away);
    let (mut recorder, writing) = keep_writing(Environment::Host, records);
    recorder.write(job("one"));
    while recorder.news().is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    exchange(&path, &away);
    // The first attempt after that does it, and there is an attempt at least so often.
    sleep(RECORD_AGAIN_MOST * 2).await;
    let news = recorder.news();
    assert!(matches!(news, Some(JobEvent::RecordedAgain { .. })), "{news:?}");
    // Not by the last attempt, at the end.
    writing.abort();
    drop(writing.await);
    assert_eq!(Records::open(&path).unwrap().1, Some(job("one")));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_ends_does_not_wait_for_a_broken_disk() {
    let (_place, path) = place();
    let (mut records, _, _) = Records::open(&path).unwrap();
    records.fail();
    fs::rename(&path, path.with_extension("away")).unwrap();
    fs::write(&path, "no folder").unwrap();
    let (mut recorder, writing) = keep_writing(Environment::Host, records);
    recorder.write(job("one"));
    while recorder.news().is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    drop(recorder);
    writing.await.unwrap();
}
