//! Depots that are not what they say: copies of a folder on another host, and one that says what cannot be.

use sardana_net::trust::Role;
use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::limits::MAX_LIVES_AHEAD;
use sardana_protocol::messages::{DepotHello, Greeting, Hello};
use sardana_protocol::words::Incarnation;

use super::raw::{JOB, LOOPBACK, Site, soon};

fn depot(host: &str) -> Hello {
    Hello::Depot(DepotHello {
        job: JOB,
        depot: DepotId::new(5),
        host: host.to_owned(),
        address: LOOPBACK,
        incarnation: Incarnation::ZERO,
    })
}

/// A coordinator that believed it would end for good, as would each that is started after it.
#[tokio::test]
async fn a_depot_that_says_it_knows_a_life_that_none_can_have_had_fences_no_coordinator() {
    let site = Site::new().await;
    for lives in [MAX_LIVES_AHEAD + 2, u64::MAX] {
        let Hello::Depot(hello) = depot("red") else { unreachable!() };
        let incarnation = Incarnation::new(lives);
        let mut hostile = site.dial(Role::Checkpoint, 1).await;
        let reason = hostile.refused(&Hello::Depot(DepotHello { incarnation, ..hello })).await;
        assert!(reason.contains("which cannot be"), "{reason}");
    }
    let mut honest = site.dial(Role::Checkpoint, 2).await;
    assert!(matches!(honest.greeted(&depot("red")).await, Greeting::Joined { .. }));
}

#[tokio::test]
async fn a_copy_of_a_depot_on_another_host_does_not_drive_it_out() {
    let site = Site::new().await;
    let mut first = site.dial(Role::Checkpoint, 1).await;
    assert!(matches!(first.greeted(&depot("red")).await, Greeting::Joined { .. }));
    let mut second = site.dial(Role::Checkpoint, 2).await;
    let reason = second.refused(&depot("blue")).await;
    for words in ["host red (127.0.0.1)", "the folder on host blue is a copy", "an empty folder"] {
        assert!(reason.contains(words), "{reason}");
    }
    assert!(first.connection.close_reason().is_none());
    // Started again where it was.
    let mut again = site.dial(Role::Checkpoint, 3).await;
    assert!(matches!(again.greeted(&depot("red")).await, Greeting::Joined { .. }));
    assert!(first.closed().await.contains("a later connection"));
    // Its host is gone, and its disk is in another one.
    again.connection.close(0_u32.into(), b"it dies");
    let moved = async {
        loop {
            let mut moved = site.dial(Role::Checkpoint, 4).await;
            match moved.greeted(&depot("blue")).await {
                Greeting::Joined { .. } => return,
                Greeting::Refused { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    };
    soon(moved).await;
}
