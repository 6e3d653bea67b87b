//! Two coordinators of one job that meet: the one with the lower number is fenced, and only that one.

use std::sync::Arc;

use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::membership::JobEvent;
use sardana_protocol::messages::{Greeting, Hello};
use sardana_protocol::words::{Generation, Incarnation};
use tokio::sync::mpsc::UnboundedReceiver;

use super::raw::{JOB, Wire, config, soon};

/// A coordinator in its life `incarnation`, of the same authority as the others.
async fn life(
    authority: &Arc<Authority>,
    incarnation: u64,
    succession: Succession,
) -> (Coordinator, UnboundedReceiver<JobEvent>) {
    let registrar = Arc::new(Registrar::new(Arc::clone(authority)));
    let config = CoordinatorConfig {
        incarnation: Incarnation::new(incarnation),
        past: Past::Unknown,
        succession,
        min: 1,
        expected: 1,
        ..config(&registrar)
    };
    coordinator::start(config).await.unwrap()
}

fn fenced(own: u64, by: u64) -> JobEvent {
    JobEvent::Fenced {
        own: Incarnation::new(own),
        by: Incarnation::new(by),
    }
}

async fn first(events: &mut UnboundedReceiver<JobEvent>) -> Option<JobEvent> {
    soon(events.recv()).await
}

/// Whichever of the two looks, it is the lower one that goes; and none fences itself.
#[tokio::test]
async fn the_lower_one_is_fenced_whichever_looks() {
    let authority = Arc::new(Authority::new(JOB).unwrap());
    for (looking, other) in [(1, 2), (3, 2)] {
        let (mut coordinator, mut events) = life(&authority, looking, Succession::TakeOver).await;
        let (found, mut founds) = life(&authority, other, Succession::TakeOver).await;
        coordinator.watch(&[coordinator.address(), found.address()]);
        let (lower, higher) = if looking < other {
            (&mut events, &mut founds)
        } else {
            (&mut founds, &mut events)
        };
        assert_eq!(first(lower).await, Some(fenced(looking.min(other), looking.max(other))));
        assert!(higher.is_empty(), "the higher one goes on");
        found.end().await;
        coordinator.end().await;
        assert_eq!(
            (first(&mut events).await, first(&mut founds).await),
            (None, None),
            "nobody says so twice"
        );
    }
}

/// Equal ones tell each other their number, and that is all. A fenced coordinator says the same afterwards.
#[tokio::test]
async fn a_coordinator_that_asks_is_told_the_number() {
    let authority = Arc::new(Authority::new(JOB).unwrap());
    let (coordinator, mut events) = life(&authority, 4, Succession::TakeOver).await;
    let own = Generation::new(Incarnation::new(4), 0);
    for newest in [own, Generation::NONE, own.next(), own] {
        let mut wire = Wire::dial(&authority.issue(Role::Coordinator, 0).unwrap(), coordinator.address()).await;
        let greeting = wire.greeted(&Hello::Coordinator { job: JOB, newest }).await;
        assert_eq!(greeting, Greeting::Leads { newest: own });
        let fences = newest > own;
        assert_eq!(events.try_recv().ok(), fences.then(|| fenced(4, 4)), "{newest}");
    }
    coordinator.end().await;
}

/// Started anew, with a number that has grown with each start, and no worker to lead: it must not drive out a coordinator that took over.
#[tokio::test]
async fn who_is_only_started_again_gives_way_however_high_its_number() {
    let authority = Arc::new(Authority::new(JOB).unwrap());
    let (mut again, mut events) = life(&authority, 7, Succession::Resume).await;
    let (leads, mut others) = life(&authority, 2, Succession::TakeOver).await;
    again.watch(&[leads.address()]);
    assert_eq!(first(&mut events).await, Some(fenced(7, 2)));
    assert!(others.try_recv().is_err(), "the one that took over goes on");
    again.end().await;
    leads.end().await;
}
