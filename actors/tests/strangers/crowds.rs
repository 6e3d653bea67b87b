//! Crowds that finish their handshakes and say nothing: they keep out no other client.

use sardana_net::enrol::COME_AGAIN;
use sardana_net::enrol::limits::MAX_ENROLMENTS;
use sardana_net::quic::limits::{CONNECT_DEADLINE, FAIR_TIME};
use sardana_net::quic::{Purpose, bind_client, bind_stranger, connect, explain};
use sardana_net::trust::{PeerIdentity, Role};
use tokio::task::JoinSet;

use super::raw::{JOB, Site, StandStill, soon};

/// Connections of one process that says nothing; so many more than may wait to be greeted.
const SILENT: usize = 16;
const TOO_MANY: usize = 8;

#[tokio::test]
async fn a_process_that_says_nothing_has_few_connections() {
    let site = Site::new().await;
    let address = site.coordinator.address();
    let credentials = site.authority.issue(Role::Agent, 9).unwrap();
    let endpoint = bind_client(&credentials, Purpose::Control, address).unwrap();
    let mut closed = JoinSet::new();
    for _ in 0..SILENT + TOO_MANY {
        let coordinator = PeerIdentity::coordinator(JOB);
        let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await.unwrap();
        closed.spawn(async move { explain(&connection.closed().await) });
    }
    // Others are greeted meanwhile.
    site.join(1).await;
    for _ in 0..TOO_MANY {
        let why = soon(closed.join_next()).await.unwrap().unwrap();
        assert!(why.contains("to be greeted"), "{why}");
    }
    // A client that comes later has been silent for less long.
    site.join(2).await;
}

#[tokio::test]
async fn strangers_who_ask_for_nothing_make_way_for_one_more() {
    let site = Site::new().await;
    let address = site.coordinator.address();
    let endpoint = bind_stranger(site.authority.certificate().clone(), address).unwrap();
    let coordinator = PeerIdentity::coordinator(JOB);
    let dial = || connect(&endpoint, address, coordinator, CONNECT_DEADLINE);
    // However long the machine takes for so many handshakes, no stranger has been here for longer than an enrolment may take.
    let still = StandStill::now();
    let mut crowd = Vec::new();
    for _ in 0..MAX_ENROLMENTS {
        crowd.push(dial().await.unwrap());
    }
    tokio::time::advance(FAIR_TIME).await;
    let one_more = dial().await.unwrap();
    drop(still);
    let why = soon(crowd[0].closed()).await;
    assert!(
        matches!(&why, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == COME_AGAIN),
        "{why}"
    );
    let enrols = one_more.open_bi().await;
    assert!(enrols.is_ok() && one_more.close_reason().is_none(), "{enrols:?}");
}
