//! Azure: events of a group of machines, and their approval.

use std::time::Duration;

use serde_json::{Value, json};

use super::Watched;
use super::cloud::{FakeCloud, Kind, NAME, http_date};

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn event(id: &str, kind: &str, machines: &[&str], after: Duration) -> Value {
    json!({
        "EventId": id,
        "EventStatus": "Scheduled",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": machines,
        "NotBefore": http_date(after),
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    })
}

#[tokio::test]
async fn an_event_is_approved_once_the_workers_have_left() {
    let cloud = FakeCloud::start(Kind::Azure);
    let mut watched = Watched::start(&cloud, Kind::Azure).await;
    cloud.set(|told| told.events.push(event("e1", "Preempt", &[NAME], Duration::from_secs(40))));
    let said = watched.said().await;
    assert!(
        said.starts_with("Azure: Preempt at ") && said.ends_with("s left: the workers leave"),
        "{said}"
    );
    let (_, within, drained) = watched.drain().await;
    assert!(within.unwrap() <= Duration::from_secs(38), "{within:?}");
    let looks = |asked: &[String]| asked.iter().filter(|asked| asked.contains("scheduledevents")).count();
    let before = cloud.set(|told| looks(&told.asked));
    cloud.until(|told| looks(&told.asked) > before + 2).await;
    assert_eq!(cloud.set(|told| told.approved.len()), 0, "the workers are still there");
    cloud.set(|told| told.refusals = 1);
    drained.send(()).unwrap();
    let said = watched.said().await;
    assert!(said.contains("could not be approved") && said.contains("500"), "{said}");
    assert_eq!(watched.said().await, "the workers have left; approved: Azure: Preempt");
    assert_eq!(cloud.set(|told| told.approved.clone()), ["e1"]);
    // What follows is another state of the same.
    cloud.set(|told| {
        told.events[0]["EventStatus"] = "Started".into();
        told.events[0]["NotBefore"] = "".into();
    });
    assert_eq!(watched.said().await, "Azure: Preempt, it has begun: the workers leave");
    assert_eq!(cloud.set(|told| told.approved.len()), 1);
}

#[tokio::test]
async fn an_event_of_others_is_not_mine_and_a_shared_one_is_not_mine_to_approve() {
    let cloud = FakeCloud::start(Kind::Azure);
    cloud.set(|told| {
        told.events = vec![
            event("theirs", "Terminate", &["trainer-4", "trainer-33"], TEN_MINUTES),
            event("ours", "Reboot", &["Trainer-3", "trainer-4"], TEN_MINUTES),
        ];
    });
    let mut watched = Watched::start(&cloud, Kind::Azure).await;
    let said = watched.said().await;
    assert!(said.starts_with("Azure: Reboot at "), "{said}");
    let (_, _, drained) = watched.drain().await;
    drained.send(()).unwrap();
    // It is cancelled: the machine is not rebooted.
    cloud.set(|told| told.events.truncate(1));
    assert_eq!(watched.said().await, "withdrawn or over: Azure: Reboot");
    assert_eq!(watched.back().await, "withdrawn or over: Azure: Reboot");
    assert!(cloud.set(|told| told.approved.is_empty()));
}

#[tokio::test]
async fn a_short_freeze_is_a_warning_and_a_long_one_is_not() {
    let cloud = FakeCloud::start(Kind::Azure);
    let freeze = |seconds: i64| {
        let mut freeze = event("f", "Freeze", &[NAME], TEN_MINUTES);
        freeze["DurationInSeconds"] = seconds.into();
        vec![freeze]
    };
    cloud.set(|told| told.events = freeze(9));
    let mut watched = Watched::start(&cloud, Kind::Azure).await;
    let said = watched.said().await;
    assert!(
        said.starts_with("Azure: Freeze for 9 s at ") && said.ends_with("the workers stay"),
        "{said}"
    );
    cloud.set(|told| told.events = freeze(60));
    assert!(watched.said().await.ends_with("the workers leave"));
    watched.drain().await;
}
