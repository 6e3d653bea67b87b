//! Which cloud's metadata service it is.

use socket2::{Domain, Socket, Type};
use tokio::time::timeout;

use super::cloud::{FakeCloud, Kind, Mood};
use super::raw::LOOPBACK;
use super::{PATIENCE, Watched, config};
use sardana_actors::agent::notices::{NoticesConfig, Service};

const NOBODY: &str = "no cloud metadata service answers: no notices will be seen";

async fn first_word(cloud: &FakeCloud) -> (String, Watched) {
    let mut watched = Watched::of(config(cloud, Service::Auto));
    (watched.said().await, watched)
}

#[tokio::test]
async fn each_cloud_is_known_by_its_answers() {
    for (kind, name) in [(Kind::Aws, "AWS"), (Kind::Gce, "GCE"), (Kind::Azure, "Azure")] {
        let cloud = FakeCloud::start(kind);
        let (said, _watched) = first_word(&cloud).await;
        assert_eq!(said, format!("notices of {name} are watched for"));
    }
}

#[tokio::test]
async fn without_a_cloud_nothing_is_asked_again() {
    let cloud = FakeCloud::start(Kind::Other);
    let (said, mut watched) = first_word(&cloud).await;
    assert_eq!(said, NOBODY);
    let over = timeout(PATIENCE, watched.orders.recv()).await.expect("it ends in time");
    assert!(over.is_none(), "the watch is over");
    assert_eq!(cloud.set(|told| told.asked.len()), 3, "each way was tried once");

    // A port that is taken, and at which no process listens.
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&LOOPBACK.into()).unwrap();
    let closed = taken.local_addr().unwrap().as_socket().unwrap();
    let metadata = format!("http://{closed}").parse().unwrap();
    let mut watched = Watched::of(NoticesConfig {
        metadata,
        ..config(&cloud, Service::Auto)
    });
    assert_eq!(watched.said().await, NOBODY);
}

#[tokio::test]
async fn a_service_that_does_not_sign_is_not_google() {
    let cloud = FakeCloud::start(Kind::Gce);
    cloud.set(|told| told.mood = Mood::Unsigned);
    let (said, _watched) = first_word(&cloud).await;
    assert_eq!(said, NOBODY);
}

#[tokio::test]
async fn a_service_that_is_busy_is_asked_again() {
    let cloud = FakeCloud::start(Kind::Azure);
    cloud.set(|told| told.mood = Mood::Down(503));
    let mut watched = Watched::of(config(&cloud, Service::Auto));
    cloud.until(|told| told.asked.len() == 3).await;
    cloud.set(|told| told.mood = Mood::Fine);
    assert_eq!(watched.said().await, "notices of Azure are watched for");
}
