//! Each cloud's notices, from a metadata service on loopback to what an agent does.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test waits for the events that it is about")]

mod agent;
mod aws;
mod azure;
mod cloud;
mod detecting;
mod failing;
mod gce;
#[path = "../strangers/raw.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod raw;

use std::time::Duration;

use cloud::{FakeCloud, Kind};
use sardana_actors::agent::notices::{NoticeOrder, NoticesConfig, Service, Watch};
use sardana_protocol::notices::{Cloud, Heeded, Pace};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Whatever has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// As no cloud would like it.
const QUICK: Pace = Pace {
    look_every: Duration::from_millis(10),
    hang: Duration::from_secs(60),
    answer_within: Duration::from_secs(20),
    back_off_most: Duration::from_millis(20),
    withdrawn_after: Duration::from_millis(30),
};

fn config(cloud: &FakeCloud, service: Service) -> NoticesConfig {
    NoticesConfig {
        service,
        metadata: cloud.url().parse().unwrap(),
        heeded: Heeded::Leaves,
        pace: Some(QUICK),
    }
}

/// A watch, and what it wants.
struct Watched {
    orders: UnboundedReceiver<NoticeOrder>,
    _watch: Watch,
}

impl Watched {
    /// Of a cloud that is known.
    async fn start(cloud: &FakeCloud, kind: Kind) -> Self {
        Self::paced(cloud, kind, QUICK).await
    }

    async fn paced(cloud: &FakeCloud, kind: Kind, pace: Pace) -> Self {
        let service = match kind {
            Kind::Aws => Service::Of(Cloud::Aws),
            Kind::Gce => Service::Of(Cloud::Gce),
            Kind::Azure => Service::Of(Cloud::Azure),
            Kind::Other => Service::Auto,
        };
        let mut watched = Self::of(NoticesConfig {
            pace: Some(pace),
            ..config(cloud, service)
        });
        let said = watched.said().await;
        assert!(said.ends_with("are watched for"), "{said}");
        watched
    }

    fn of(config: NoticesConfig) -> Self {
        let (watch, orders) = Watch::start(config);
        Self { orders, _watch: watch }
    }

    async fn next(&mut self) -> NoticeOrder {
        let order = timeout(PATIENCE, self.orders.recv()).await;
        order.expect("something happens in time").expect("the watch goes on")
    }

    /// What it says next.
    async fn said(&mut self) -> String {
        match self.next().await {
            NoticeOrder::Say(said) => said.to_string(),
            other => panic!("{other:?}"),
        }
    }

    async fn drain(&mut self) -> (String, Option<Duration>, oneshot::Sender<()>) {
        match self.next().await {
            NoticeOrder::Drain { reason, within, drained } => (reason, within, drained),
            other => panic!("{other:?}"),
        }
    }

    async fn back(&mut self) -> String {
        match self.next().await {
            NoticeOrder::Return { reason } => reason,
            other => panic!("{other:?}"),
        }
    }
}
