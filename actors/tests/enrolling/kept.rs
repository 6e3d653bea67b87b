//! A join file that is used again and again by its holder: with a keyring.

use std::path::PathBuf;

use sardana_actors::operator::Operator;
use sardana_net::enrol::{EnrolError, Keyring, KeyringError, enrol_kept};
use sardana_net::trust::Role;
use sardana_protocol::messages::Greeting;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_storage::private::Existing;

use super::log::Log;
use super::raw::Site;
use super::site::greeted;

struct Holder {
    place: tempfile::TempDir,
    join: PathBuf,
}

impl Holder {
    fn new(site: &Site, role: Role) -> Self {
        let place = tempfile::tempdir().unwrap();
        let join = place.path().join("mine.join");
        site.join_file(role, 1).write(&join, Existing::Refuse).unwrap();
        Self { place, join }
    }

    fn keyring(&self, name: &str) -> Keyring {
        Keyring::open(&self.place.path().join(name)).unwrap()
    }
}

#[tokio::test]
async fn one_file_serves_an_operator_again_and_again_and_nobody_else() {
    let log = Log::new();
    let site = Site::new().await;
    let holder = Holder::new(&site, Role::Operator);
    let mut ids = Vec::new();
    // The first connection stays, as that of an operator who watches.
    let mut watching = Vec::new();
    for _ in 0..3 {
        let enrolled = enrol_kept(&holder.join, Role::Operator, &holder.keyring("own"))
            .await
            .unwrap();
        ids.push(enrolled.credentials.id());
        let mut operator = Operator::connect(&enrolled.credentials, enrolled.coordinator.found())
            .await
            .unwrap();
        let answer = operator.ask(&OperatorRequest::Status).await.unwrap();
        assert!(matches!(answer, OperatorAnswer::Status(_)), "{answer:?}");
        watching.push(operator);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let error = enrol_kept(&holder.join, Role::Operator, &holder.keyring("another's"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("used up (1 of 1)"), "{error}");
    log.refused(&["a process was not enrolled", "used up (1 of 1)"]).await;
    log.nothing_more();
}

#[tokio::test]
async fn an_agent_that_is_started_again_is_who_it_was_and_a_second_one_is_told_of_the_first() {
    let site = Site::new().await;
    for role in [Role::Agent, Role::Checkpoint] {
        let holder = Holder::new(&site, role);
        let keyring = holder.keyring("own");
        let first = enrol_kept(&holder.join, role, &keyring).await.unwrap();
        let error = enrol_kept(&holder.join, role, &keyring).await.unwrap_err();
        assert!(matches!(error, EnrolError::Keyring(KeyringError::Taken { .. })), "{error}");
        let id = first.credentials.id();
        drop(first);
        let again = enrol_kept(&holder.join, role, &keyring).await.unwrap();
        assert_eq!(again.credentials.id(), id);
        if role == Role::Agent {
            let greeting = greeted(&again.credentials, again.coordinator.found()).await;
            assert_eq!(greeting, Greeting::Welcome);
        }
    }
}

#[tokio::test]
async fn many_at_once_with_one_file_are_one_use() {
    let site = Site::new().await;
    let holder = Holder::new(&site, Role::Operator);
    let mut coming = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (join, keyring) = (holder.join.clone(), holder.keyring("own"));
        coming.spawn(async move { enrol_kept(&join, Role::Operator, &keyring).await.unwrap().credentials.id() });
    }
    let ids = coming.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}
