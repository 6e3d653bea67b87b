//! A worker whose hello is refused before the coordinator has read it all.

use sardana_net::refusing::{Manner, Refuser, WHY};
use sardana_net::trust::Role;
use sardana_protocol::messages::Greeting;

use super::*;
use crate::testing::bystanders::{self, bystander};

#[tokio::test]
async fn a_worker_that_is_refused_in_mid_hello_hears_why() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::coordinator();
        let refusing = refuser.refuse(manner, Greeting::Refused { reason: WHY.to_owned() });
        // Its training thread never fails.
        let (_failure, running) = bystanders::run(bystander(refuser.credentials(Role::Worker), refuser.address()));
        let error = soon(running).await.unwrap_err();
        assert!(
            matches!(&error, WorkerError::Join(error) if matches!(**error, JoinError::Refused { .. })),
            "{manner:?}: {error}"
        );
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        refusing.abort();
    }
}
