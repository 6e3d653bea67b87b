//! Operators and agents that are refused while they still speak hear why. An end played by the test refuses in the middle of the first thing that
//! is said to it.

use std::net::Ipv4Addr;
use std::time::Duration;

use sardana_net::refusing::{Manner, Refuser, WHY};
use sardana_net::trust::Role;
use sardana_protocol::messages::Greeting;
use tokio::time::timeout;

use crate::agent::{self, AgentConfig, Output};
use crate::operator::{Operator, OperatorError};

/// Nothing here takes long; whatever has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it happens in time")
}

fn refusal() -> Greeting {
    Greeting::Refused { reason: WHY.to_owned() }
}

#[tokio::test]
async fn an_operator_that_is_refused_in_mid_word_hears_why() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::coordinator();
        let refusing = refuser.refuse(manner, refusal());
        let connected = soon(Operator::connect(&refuser.credentials(Role::Operator), refuser.address())).await;
        let error = connected.unwrap_err();
        assert!(matches!(error, OperatorError::Refused { .. }), "{manner:?}: {error}");
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        soon(refusing).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_is_refused_in_mid_hello_hears_why() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::coordinator();
        let refusing = refuser.refuse(manner, refusal());
        let config = AgentConfig {
            credentials: refuser.credentials(Role::Agent).into(),
            coordinator: refuser.address().into(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            advertise: None,
            host: "here".to_owned(),
            output: Output::Inherit,
            program: "/bin/true".into(),
            arguments: vec![],
            environment: vec![],
            checkpoint_dir: None,
            workers: 1,
            restarts: 0,
        };
        let error = soon(agent::start(config)).await.unwrap_err();
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        soon(refusing).await.unwrap();
    }
}
