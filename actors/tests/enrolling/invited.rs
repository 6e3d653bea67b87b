//! Processes with a join file.

use std::time::SystemTime;

use sardana_net::enrol::{EnrolError, JoinFile, Moment, Terms, answers, enrol, invite};
use sardana_net::trust::{Authority, Role};
use sardana_protocol::messages::Greeting;
use sardana_storage::private::Existing;

use super::log::Log;
use super::raw::{JOB, LOOPBACK, Site};
use super::site::{greeted, invitation};

#[tokio::test]
async fn an_invited_process_gets_a_certificate_of_the_role_and_is_welcome() {
    let site = Site::new().await;
    for role in [Role::Agent, Role::Worker, Role::Operator] {
        let join = site.join_file(role, 2);
        let (one, two) = (enrol(&join, role).await.unwrap(), enrol(&join, role).await.unwrap());
        assert_eq!((one.credentials.role(), one.credentials.job()), (role, JOB));
        assert_ne!(one.credentials.id(), two.credentials.id(), "each is somebody else");
        assert_eq!(one.coordinator.found(), site.coordinator.address());
        let greeting = greeted(&one.credentials, one.coordinator.found()).await;
        match role {
            Role::Agent => assert_eq!(greeting, Greeting::Welcome),
            Role::Worker | Role::Operator | Role::Coordinator | Role::Checkpoint => {
                assert!(
                    matches!(greeting, Greeting::Refused { .. }),
                    "{role} is no agent: {greeting:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_used_up_invitation_is_refused_with_what_to_do() {
    let log = Log::new();
    let site = Site::new().await;
    let join = site.join_file(Role::Worker, 1);
    enrol(&join, Role::Worker).await.unwrap();
    let error = enrol(&join, Role::Worker).await.unwrap_err();
    assert!(matches!(error, EnrolError::Refused { .. }), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("used up (1 of 1) at") && words.contains("sardana invite"),
        "{words}"
    );
    log.refused(&["a process was not enrolled", "used up (1 of 1) at"]).await;
    assert!(answers(&join).await.unwrap(), "asking whether it is there needs no use");
    log.nothing_more();
}

#[tokio::test]
async fn of_many_who_come_at_once_only_those_who_are_invited_are_enrolled() {
    let site = Site::new().await;
    let join = site.join_file(Role::Worker, 5);
    let mut coming = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let join = join.clone();
        coming.spawn(async move { enrol(&join, Role::Worker).await.is_ok() });
    }
    let enrolled = coming.join_all().await.into_iter().filter(|&enrolled| enrolled).count();
    assert_eq!(enrolled, 5);
}

#[tokio::test]
async fn the_coordinators_clock_decides_whether_it_is_too_late() {
    let log = Log::new();
    let site = Site::new().await;
    let past = Moment::new(Moment::of(SystemTime::now()).seconds() - 100);
    let terms = Terms {
        role: Role::Worker,
        expires: Moment::new(past.seconds() + 50),
        uses: 1,
    };
    let invitation = invite(&site.authority, terms, past).unwrap();
    let join = JoinFile::new(invitation, &site.authority, vec![site.coordinator.address()]);
    let words = enrol(&join, Role::Worker).await.unwrap_err().to_string();
    assert!(words.contains("this join file expired at"), "{words}");
    log.refused(&["a process was not enrolled", "this join file expired at"])
        .await;
}

#[tokio::test]
async fn a_role_is_neither_mistaken_nor_forged() {
    let log = Log::new();
    let site = Site::new().await;
    let join = site.join_file(Role::Worker, 1);
    let error = enrol(&join, Role::Agent).await.unwrap_err();
    assert!(
        matches!(
            error,
            EnrolError::Role {
                expected: Role::Agent,
                found: Role::Worker
            }
        ),
        "{error}"
    );
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("worker.join");
    join.write(&path, Existing::Refuse).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"worker\"", "\"operator\"")).unwrap();
    let forged = JoinFile::read(&path, Moment::of(SystemTime::now())).unwrap();
    let words = enrol(&forged, Role::Operator).await.unwrap_err().to_string();
    assert!(
        words.contains("not made by the authority of this job, or was changed"),
        "{words}"
    );
    log.refused(&["a process was not enrolled", "not made by the authority of this job"])
        .await;
    enrol(&join, Role::Worker).await.unwrap();
    log.nothing_more();
}

#[tokio::test]
async fn another_authority_is_trusted_by_neither_end() {
    let log = Log::new();
    let site = Site::new().await;
    let address = vec![site.coordinator.address()];
    let other = Authority::new(JOB).unwrap();
    let its = JoinFile::new(invitation(&other, Role::Worker, 1), &other, address.clone());
    let error = enrol(&its, Role::Worker).await.unwrap_err();
    assert!(matches!(error, EnrolError::NotTrusted(_)), "{error}");
    assert!(!answers(&its).await.unwrap(), "the coordinator there is another one");
    // An invitation that the other authority has made, in a file that names the right one.
    let mixed = JoinFile::new(invitation(&other, Role::Worker, 1), &site.authority, address);
    let words = enrol(&mixed, Role::Worker).await.unwrap_err().to_string();
    assert!(words.contains("not made by the authority of this job"), "{words}");
    for _ in 0..2 {
        log.refused(&["a connection was refused", "the peer refused this end", "another job"])
            .await;
    }
    log.refused(&["a process was not enrolled", "not made by the authority of this job"])
        .await;
    log.nothing_more();
}

#[tokio::test]
async fn the_addresses_are_tried_in_order() {
    let site = Site::new().await;
    let mut join = site.join_file(Role::Worker, 1);
    // A socket that is held but never read: no answer comes.
    let silent = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    join.coordinators.insert(0, silent.local_addr().unwrap());
    let enrolled = enrol(&join, Role::Worker).await.unwrap();
    assert_eq!(enrolled.coordinator.found(), site.coordinator.address());
}
