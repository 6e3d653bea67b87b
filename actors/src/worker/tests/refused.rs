//! A worker whose hello is refused before the coordinator has read it all.

use sardana_net::quic::Purpose;
use sardana_net::refusing::{Manner, Refuser};
use sardana_net::trust::Role;
use sardana_protocol::messages::Greeting;

use super::leaving::identity;
use super::*;

const WHY: &str = "there is no room for anybody";

#[tokio::test]
async fn a_worker_that_is_refused_in_mid_hello_hears_why() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::new(Role::Coordinator, 0, Purpose::Control);
        let refusing = refuser.refuse(manner, Greeting::Refused { reason: WHY.to_owned() });
        let (driver, outbox) = driver();
        let config = WorkerConfig {
            credentials: refuser.authority.issue(Role::Worker, 1).unwrap().into(),
            coordinator: refuser.address().into(),
            listen: LOOPBACK,
            advertise: None,
            identity: identity(),
            shard_capacity: 4,
            gradient_memory: u64::MAX,
            pieces: pieces(),
            description: Bytes::new(),
            auxiliary: vec![],
            sigterm: Sigterm::NotOurs,
        };
        // Its training thread never fails.
        let (_failure, failures) = ModelFailure::channel();
        let ended = timeout(PATIENCE, run(config, driver, outbox, failures))
            .await
            .expect("it ends");
        let error = ended.unwrap_err();
        assert!(
            matches!(&error, WorkerError::Join(error) if matches!(**error, JoinError::Refused { .. })),
            "{manner:?}: {error}"
        );
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        refusing.abort();
    }
}
