//! Metadata services that fail, each cloud's in each way: said once, borne, and over when it is over.

use std::time::Duration;

use super::cloud::{FakeCloud, Kind, MAINTENANCE, Mood, NAME, http_date};
use super::{QUICK, Watched};
use sardana_protocol::notices::Pace;
use serde_json::json;

fn announce(cloud: &FakeCloud, kind: Kind) {
    let after = Duration::from_secs(60);
    match kind {
        Kind::Aws => cloud.interrupt("terminate", after),
        Kind::Gce => cloud.value(MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE"),
        Kind::Azure | Kind::Other => {
            let (id, due) = ("e", http_date(after));
            let event = json!({ "EventId": id, "EventStatus": "Scheduled", "EventType": "Terminate", "Resources": [NAME], "NotBefore": due });
            cloud.set(|told| told.events.push(event));
        }
    }
}

/// It fails from the start, for long; then it is well, and has a notice.
async fn fails(kind: Kind, mood: Mood, expected: &str) {
    let cloud = FakeCloud::start(kind);
    cloud.set(|told| told.mood = mood);
    let pace = match mood {
        Mood::Silent => Pace {
            answer_within: Duration::from_millis(200),
            ..QUICK
        },
        Mood::Fine | Mood::Down(_) | Mood::Garbage | Mood::Huge | Mood::Unsigned => QUICK,
    };
    let mut watched = Watched::paced(&cloud, kind, pace).await;
    let said = watched.said().await;
    assert!(
        said.starts_with("notices cannot be seen for now: ") && said.contains(expected),
        "{kind:?}, {mood:?}: {said}"
    );
    let asked = cloud.set(|told| told.asked.len());
    cloud.until(|told| told.asked.len() >= asked + 3).await;
    announce(&cloud, kind);
    cloud.set(|told| told.mood = Mood::Fine);
    assert_eq!(
        watched.said().await,
        "notices are seen again",
        "{kind:?}, {mood:?}: said once"
    );
    assert!(watched.said().await.ends_with("the workers leave"), "{kind:?}, {mood:?}");
    watched.drain().await;
}

#[tokio::test]
async fn each_cloud_in_each_way() {
    for kind in [Kind::Aws, Kind::Gce, Kind::Azure] {
        for (mood, expected) in [
            (Mood::Down(503), "503"),
            (Mood::Down(403), "403"),
            (Mood::Down(302), "302"),
            (Mood::Silent, "did not answer within"),
            (Mood::Huge, "more than 65536 bytes"),
        ] {
            fails(kind, mood, expected).await;
        }
    }
}

#[tokio::test]
async fn what_means_nothing_is_not_read() {
    fails(Kind::Aws, Mood::Garbage, "instance-action is none").await;
    fails(Kind::Azure, Mood::Garbage, "scheduledevents?api-version=2020-07-01 is none").await;
    // Unsigned text could be from any process.
    fails(Kind::Gce, Mood::Garbage, "Metadata-Flavor").await;
    fails(Kind::Gce, Mood::Unsigned, "Metadata-Flavor").await;
}

#[tokio::test]
async fn a_failure_takes_no_notice_back() {
    for kind in [Kind::Aws, Kind::Gce, Kind::Azure] {
        let cloud = FakeCloud::start(kind);
        announce(&cloud, kind);
        let mut watched = Watched::start(&cloud, kind).await;
        watched.said().await;
        watched.drain().await;
        cloud.set(|told| told.mood = Mood::Down(500));
        if kind == Kind::Gce {
            // The look that waits at the service is over.
            cloud.value(MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE");
        }
        let asked = cloud.set(|told| told.asked.len());
        cloud.until(|told| told.asked.len() >= asked + 5).await;
        let said = watched.said().await;
        assert!(said.starts_with("notices cannot be seen"), "{said}");
        cloud.set(|told| told.mood = Mood::Fine);
        assert_eq!(watched.said().await, "notices are seen again");
        assert!(watched.orders.try_recv().is_err(), "the workers are still away");
    }
}
