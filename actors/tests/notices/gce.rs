//! GCE: values that are waited for.

use std::time::Duration;

use super::Watched;
use super::cloud::{FakeCloud, Kind, MAINTENANCE, PREEMPTED};

#[tokio::test]
async fn a_preemption_is_seen_by_waiting_for_it() {
    let cloud = FakeCloud::start(Kind::Gce);
    let mut watched = Watched::start(&cloud, Kind::Gce).await;
    let waits = |asked: &String, key: &str| *asked == format!("GET {key}?wait_for_change=true&last_etag=1&timeout_sec=60");
    let both = |asked: &[String]| {
        [PREEMPTED, MAINTENANCE]
            .iter()
            .all(|key| asked.iter().any(|asked| waits(asked, key)))
    };
    cloud.until(|told| both(&told.asked)).await;
    let before = cloud.set(|told| told.asked.len());
    assert_eq!(before, 4, "one look at each value, then one that waits");
    cloud.value(PREEMPTED, "TRUE");
    assert_eq!(watched.said().await, "GCE: preempted, about 30 s left: the workers leave");
    let (_, within, _drained) = watched.drain().await;
    assert_eq!(within, Some(Duration::from_secs(28)));
}

#[tokio::test]
async fn a_maintenance_that_is_called_off_takes_the_leave_back() {
    let cloud = FakeCloud::start(Kind::Gce);
    let mut watched = Watched::start(&cloud, Kind::Gce).await;
    cloud.value(MAINTENANCE, "MIGRATE_ON_HOST_MAINTENANCE");
    let said = watched.said().await;
    assert_eq!(
        said,
        "GCE host maintenance: migrate, about 60 s left: only a warning, the workers stay"
    );
    cloud.value(MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE");
    let said = watched.said().await;
    assert!(said.starts_with("GCE host maintenance: terminate, about "), "{said}");
    let (_, _, drained) = watched.drain().await;
    drained.send(()).unwrap();
    cloud.value(MAINTENANCE, "NONE");
    assert_eq!(watched.said().await, "withdrawn or over: GCE host maintenance: terminate");
    assert_eq!(watched.back().await, "withdrawn or over: GCE host maintenance: terminate");
}

#[tokio::test]
async fn words_of_later_versions_are_passed_on_as_warnings() {
    let cloud = FakeCloud::start(Kind::Gce);
    cloud.value(MAINTENANCE, "PONDER_ON_HOST_MAINTENANCE");
    let mut watched = Watched::start(&cloud, Kind::Gce).await;
    let said = watched.said().await;
    assert_eq!(
        said,
        "GCE host maintenance: PONDER_ON_HOST_MAINTENANCE: only a warning, the workers stay"
    );
}
