//! A whole depot and a coordinator.

use std::time::{Duration, SystemTime};

use sardana_actors::depot::{DepotConfig, DepotStartError, identity, start};
use sardana_net::trust::{Role, RotatingCredentials};
use sardana_protocol::checkpoint::{Condition, DepotAddress, DepotId, Head, ManifestKey};
use sardana_protocol::messages::{DepotMessage, DepotOrder, Greeting};
use sardana_storage::manifest::key_of;

use crate::leader::{Leader, config, depot, joined};
use crate::site::{
    LOOPBACK, PLACING, Read, WORKER, authority, client, damage, encoded, gets, manifest, pieces, puts, snapshot, soon,
    unknown_key, until,
};

pub(crate) fn committed(message: DepotMessage) -> Head {
    let DepotMessage::Committed { head, .. } = message else {
        panic!("expected that it is committed, found {message:?}");
    };
    head
}

pub(crate) fn refused(message: DepotMessage) -> String {
    let DepotMessage::Refused { reason, .. } = message else {
        panic!("expected a refusal, found {message:?}");
    };
    reason
}

#[tokio::test]
async fn what_was_put_before_a_restart_is_committed_after_it_and_told_of() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let folder = place.path().join("depot");
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let one = depot(&authority, &folder, leader.address()).await;
    let (session, held) = leader.lead(1).await;
    assert_eq!((held, session.hello.depot), (vec![], one.id()));
    let all = pieces(1, 60);
    puts(&worker, session.address(), 5, &all).await;
    one.end().await;
    let two = depot(&authority, &folder, leader.address()).await;
    let (mut session, held) = leader.lead(1).await;
    assert_eq!((held, session.hello.depot), (vec![], identity(&folder).unwrap()));
    let manifest = manifest(5, &all, 1, &[two.id()]);
    let head = committed(session.commit(&manifest).await);
    assert_eq!(
        (head.key, head.condition),
        (key_of(&manifest, &encoded(&manifest)), Condition::Whole)
    );
    assert_eq!(committed(session.commit(&manifest).await), head, "once more is no harm");
    assert_eq!(soon(worker.manifest(session.address(), head.key)).await.unwrap(), manifest);
    session.say(&DepotOrder::Release { snapshot: snapshot(5) }).await;
    // It comes back by itself, and tells what it keeps.
    session.cut();
    let (mut session, held) = leader.lead(2).await;
    assert_eq!(held, std::slice::from_ref(&head));
    for key in [unknown_key(), head.key, head.key] {
        session.say(&DepotOrder::Delete { key }).await;
        assert_eq!(session.hear().await, DepotMessage::Deleted { key });
    }
    let reason = refused(session.commit(&manifest).await);
    assert!(reason.contains("was deleted here"), "{reason}");
    two.end().await;
}

/// A disk that had room for one more checkpoint would have none for any other.
#[tokio::test]
async fn the_room_of_a_checkpoint_that_was_given_up_comes_back_though_nothing_is_deleted() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let _depot = depot(&authority, &place.path().join("depot"), leader.address()).await;
    let (mut session, _) = leader.lead(1).await;
    let all = pieces(1, 10);
    puts(&worker, session.address(), 5, &all).await;
    let name = [all[3].0];
    let address = session.address();
    let is_there = async || {
        let lacking = soon(worker.get(address, &name, |_, _| ())).await.unwrap();
        lacking.is_empty()
    };
    assert!(is_there().await);
    session.say(&DepotOrder::Release { snapshot: snapshot(5) }).await;
    soon(async { while is_there().await {} }).await;
}

#[tokio::test]
async fn a_manifest_is_refused_that_names_what_is_not_there_or_not_this_depot() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let own = depot(&authority, &place.path().join("depot"), leader.address()).await;
    let (mut session, _) = leader.lead(1).await;
    let all = pieces(1, 10);
    puts(&worker, session.address(), 5, &all[1..]).await;
    let reason = refused(session.commit(&manifest(5, &all, 1, &[own.id()])).await);
    assert!(
        reason.contains("CKPT-1") && reason.contains(&all[0].0.to_string()),
        "{reason}"
    );
    let reason = refused(session.commit(&manifest(5, &all[1..], 1, &[DepotId::new(1)])).await);
    assert!(reason.contains("among them"), "{reason}");
    let mut order = DepotOrder::Commit {
        snapshot: snapshot(5),
        depots: vec![own.id()],
        placing: PLACING,
        part: sardana_protocol::checkpoint::Part { start: 0, of: 3 },
        bytes: b"abc".to_vec(),
    };
    session.say(&order).await;
    let reason = refused(session.hear().await);
    assert!(reason.contains("expected a manifest"), "{reason}");
    if let DepotOrder::Commit { part, .. } = &mut order {
        part.of = u64::MAX;
    }
    session.say(&order).await;
    let reason = refused(session.hear().await);
    assert!(reason.contains("expected the part of a manifest"), "{reason}");
    committed(session.commit(&manifest(5, &all[1..], 1, &[own.id()])).await);
}

#[tokio::test]
async fn no_coordinator_is_obeyed_that_another_has_followed_also_after_a_restart() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let folder = place.path().join("depot");
    let leader = Leader::new(&authority);
    let one = depot(&authority, &folder, leader.address()).await;
    let (session, _) = leader.lead(3).await;
    assert_eq!(session.hello.incarnation.get(), 0);
    session.cut();
    let mut older = leader.greet(&joined(2)).await;
    assert_eq!(older.hello.incarnation.get(), 3);
    assert_eq!(older.next().await, None, "it says nothing to the older one");
    one.end().await;
    let two = depot(&authority, &folder, leader.address()).await;
    let mut older = leader.greet(&joined(2)).await;
    assert_eq!(older.hello.incarnation.get(), 3);
    assert_eq!(older.next().await, None, "it says nothing to the older one");
    let (mut session, _) = leader.lead(3).await;
    let reason = refused(session.commit(&manifest(5, &pieces(1, 1), 1, &[two.id()])).await);
    assert!(reason.contains("CKPT-1"), "{reason}");
}

#[tokio::test]
async fn a_job_that_is_over_ends_a_depot() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let leader = Leader::new(&authority);
    let mut one = depot(&authority, &place.path().join("one"), leader.address()).await;
    let (mut session, _) = leader.lead(1).await;
    session.say(&DepotOrder::JobOver).await;
    soon(one.over()).await;
    let mut two = depot(&authority, &place.path().join("two"), leader.address()).await;
    let _session = leader.greet(&Greeting::Over).await;
    soon(two.over()).await;
    soon(two.over()).await;
}

#[tokio::test]
async fn credentials_of_another_role_and_addresses_that_nobody_can_dial_are_refused() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let rotating = |role| RotatingCredentials::from(authority.issue(role, 7).unwrap());
    let error = start(config(&place.path().join("one"), rotating(Role::Worker), LOOPBACK))
        .await
        .unwrap_err();
    assert!(matches!(error, DepotStartError::Credentials { .. }), "{error}");
    let anywhere = DepotConfig {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..config(&place.path().join("two"), rotating(Role::Checkpoint), LOOPBACK)
    };
    let error = start(anywhere).await.unwrap_err();
    assert!(matches!(error, DepotStartError::Unadvertised { .. }), "{error}");
}

#[tokio::test]
async fn a_certificate_that_runs_out_is_renewed() {
    let (authority, place) = (
        authority().with_validity(Duration::from_secs(20)),
        tempfile::tempdir().unwrap(),
    );
    let leader = Leader::new(&authority);
    let old = authority.issue(Role::Checkpoint, 7).unwrap();
    // Received long ago.
    let rotating = RotatingCredentials::new(old.clone(), SystemTime::now() - Duration::from_secs(15));
    let depot = start(config(&place.path().join("depot"), rotating.clone(), leader.address()))
        .await
        .unwrap();
    let (mut session, _) = leader.lead(1).await;
    let DepotMessage::Renew { request } = session.hear().await else {
        panic!("expected a request for a certificate");
    };
    let certificate = authority.certify(Role::Checkpoint, 7, &request).unwrap();
    session.say(&DepotOrder::Renewed { certificate }).await;
    until(|| rotating.current().certificate() != old.certificate()).await;
    // The new one is shown from now on.
    let worker = client(&authority, WORKER);
    soon(worker.put(session.address(), snapshot(5), &pieces(1, 3), || ()))
        .await
        .unwrap();
    depot.end().await;
}

fn fetch(key: ManifestKey, from: &[DepotAddress]) -> DepotOrder {
    DepotOrder::Fetch {
        snapshot: snapshot(5),
        key,
        depots: from.to_vec(),
        placing: PLACING,
    }
}

#[tokio::test]
async fn what_is_damaged_is_told_of_and_fetched_from_another_depot() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let folder = place.path().join("one");
    let worker = client(&authority, WORKER);
    let (first, second) = (Leader::new(&authority), Leader::new(&authority));
    let _one = depot(&authority, &folder, first.address()).await;
    let _two = depot(&authority, &place.path().join("two"), second.address()).await;
    let (mut one, _) = first.lead(1).await;
    let (mut two, _) = second.lead(1).await;
    let (all, at) = (pieces(1, 60), [one.address(), two.address()]);
    one.serve(&at).await;
    two.serve(&at).await;
    soon(worker.write_share(&at, 1, snapshot(5), &all, || ())).await.unwrap();
    let ids = at.map(|at| at.depot);
    let original = manifest(5, &all, 1, &ids);
    let head = committed(one.commit(&original).await);
    committed(two.commit(&original).await);
    // From now on both shall have everything: the one of them fetches the other's pieces.
    let both = manifest(5, &all, 2, &ids);
    soon(worker.write_share(&at[1..], 1, snapshot(5), &all, || ())).await.unwrap();
    let both_head = committed(two.commit(&both).await);
    one.say(&fetch(both_head.key, &at)).await;
    assert_eq!(committed(one.hear().await), both_head);
    // Damage: the reader gets it elsewhere, and the coordinator is told.
    let (name, bytes) = &all[30];
    damage(&folder, bytes);
    let mut read = Read::of(1);
    let lacking = soon(worker.get(at[0], &[*name], |index, bytes| read.take(index, bytes)))
        .await
        .unwrap();
    assert!(lacking.len() == 1 && lacking[0].1.contains("heal this one"), "{lacking:?}");
    let held = one.held().await;
    let told: Vec<ManifestKey> = held.iter().map(|head| head.key).collect();
    assert!(
        told.len() == 2 && told.contains(&head.key) && told.is_sorted_by(|one, two| one > two),
        "{told:?}"
    );
    let lacks = held.iter().find(|head| head.key == both_head.key).unwrap();
    assert_eq!(lacks.condition, Condition::Lacking);
    one.say(&fetch(both_head.key, &at)).await;
    assert_eq!(committed(one.hear().await), both_head);
    assert!(one.held().await.iter().all(|head| head.condition == Condition::Whole));
    gets(&worker, at[0], &all).await;
}

#[tokio::test]
async fn a_depot_that_fetches_says_that_it_is_not_done_yet() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let leader = Leader::new(&authority);
    let _depot = depot(&authority, &place.path().join("one"), leader.address()).await;
    let (mut session, _) = leader.lead(1).await;
    // Nothing comes back from there.
    let silent = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    let other = DepotAddress {
        depot: DepotId::new(99),
        certified: 99,
        address: silent.local_addr().unwrap(),
    };
    let at = [session.address(), other];
    session.say(&fetch(unknown_key(), &at)).await;
    let said = session.next_of_all().await.unwrap();
    let expected = DepotMessage::Fetching {
        snapshot: snapshot(5),
        placing: PLACING,
    };
    assert_eq!(said, expected);
    let reason = refused(session.hear().await);
    assert!(reason.contains(&other.depot.to_string()), "{reason}");
}

#[tokio::test]
async fn a_new_depot_takes_over_from_one_that_is_gone() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let worker = client(&authority, WORKER);
    let (first, second) = (Leader::new(&authority), Leader::new(&authority));
    let _one = depot(&authority, &place.path().join("one"), first.address()).await;
    let (mut one, _) = first.lead(1).await;
    let all = pieces(1, 60);
    let gone = DepotId::new(99);
    puts(&worker, one.address(), 5, &all).await;
    let old = manifest(5, &all, 2, &[one.hello.depot, gone]);
    let head = committed(one.commit(&old).await);
    let _two = depot(&authority, &place.path().join("two"), second.address()).await;
    let (mut two, _) = second.lead(1).await;
    one.serve(&[two.address()]).await;
    let (key, at) = (head.key, [two.address(), one.address()]);
    two.say(&fetch(key, &at)).await;
    let new = committed(two.hear().await);
    let expected = manifest(5, &all, 2, &[two.hello.depot, one.hello.depot]);
    assert_eq!(new.key, key_of(&expected, &encoded(&expected)));
    assert_ne!(new.key, key);
    assert_eq!(soon(worker.manifest(two.address(), new.key)).await.unwrap(), expected);
    gets(&worker, two.address(), &all).await;
    // What no depot has is refused, with words of both.
    two.say(&fetch(unknown_key(), &at)).await;
    let reason = refused(two.hear().await);
    assert!(
        reason.contains("there is no checkpoint") && reason.contains("does not give"),
        "{reason}"
    );
}
