//! Operators and agents that are refused while they still speak hear why. An end played by the test refuses in the middle of the first thing that
//! is said to it.

use sardana_net::refusing::{Manner, Refuser, WHY};
use sardana_net::trust::Role;
use sardana_protocol::messages::Greeting;

use crate::agent;
use crate::operator::{Operator, OperatorError};
use crate::testing::raw::agent_config;
use crate::testing::soon;

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
        let config = agent_config(refuser.credentials(Role::Agent), refuser.address(), "true", &[]);
        let error = soon(agent::start(config)).await.unwrap_err();
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        soon(refusing).await.unwrap();
    }
}
