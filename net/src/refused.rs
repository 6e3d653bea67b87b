//! A client that is refused while it still speaks hears why. An end played by the test refuses in the middle of the first thing that is said to it,
//! each time in the same order: it stops the stream, and only then says its word.

use std::time::{Duration, SystemTime};

use quinn::Connection;
use sardana_protocol::messages::{Greeting, Hello};
use tokio::time::timeout;

use crate::enrol::{EnrolAnswer, EnrolError, JoinFile, Terms, enrol, invite};
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{Purpose, bind_client, connect};
use crate::refusing::{JOB, Manner, Refuser, WHY, delivered};
use crate::trust::{Moment, PeerIdentity, Role};
use crate::wire::limits::HELLO_FRAME_BYTES;
use crate::wire::{FrameError, exchange};

/// Nothing here takes long; whatever has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it happens in time")
}

fn refusal() -> Greeting {
    Greeting::Refused { reason: WHY.to_owned() }
}

/// Says a hello with many children, the longest that agents say.
async fn said(connection: &Connection) -> Result<Option<Greeting>, FrameError> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let hello = Hello::Agent(sardana_protocol::messages::AgentHello {
        job: JOB,
        host: "here".to_owned(),
        children: (0..1_024).map(sardana_protocol::words::WorkerId::new).collect(),
    });
    exchange(
        connection,
        (&mut send, &mut receive),
        (&hello, HELLO_FRAME_BYTES),
        HELLO_FRAME_BYTES,
    )
    .await
}

#[tokio::test]
async fn the_answer_comes_before_the_news_that_the_stream_was_stopped() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::coordinator();
        let refusing = refuser.refuse(manner, refusal());
        let endpoint = bind_client(refuser.credentials(Role::Agent), Purpose::Control, refuser.address()).unwrap();
        let connected = connect(&endpoint, refuser.address(), PeerIdentity::coordinator(JOB), CONNECT_DEADLINE).await;
        let connection = connected.unwrap();
        match soon(said(&connection)).await {
            Ok(answer) if manner != Manner::Closes => assert_eq!(answer, Some(refusal()), "{manner:?}"),
            Err(error @ FrameError::Connection(_)) if manner == Manner::Closes => {
                assert!(error.to_string().contains(WHY), "{error}");
            }
            other => panic!("{manner:?}: {other:?}"),
        }
        connection.close(0_u32.into(), b"");
        refusing.await.unwrap();
    }
}

#[tokio::test]
async fn who_gets_neither_an_answer_nor_a_reason_is_told_that_its_stream_was_stopped() {
    let refuser = Refuser::coordinator();
    let endpoint = bind_client(refuser.credentials(Role::Agent), Purpose::Control, refuser.address()).unwrap();
    let refusing = async {
        let (connection, send, mut receive) = refuser.taken().await;
        receive.stop(1_u32.into()).unwrap();
        delivered(send).await;
        connection
    };
    let (refused, error) = tokio::join!(refusing, async {
        let connected = connect(&endpoint, refuser.address(), PeerIdentity::coordinator(JOB), CONNECT_DEADLINE).await;
        soon(said(&connected.unwrap())).await.unwrap_err()
    });
    assert!(matches!(error, FrameError::Stream { .. }), "{error}");
    drop(refused);
}

#[tokio::test]
async fn who_is_not_enrolled_hears_why_though_its_request_was_not_read() {
    for manner in [Manner::Answers, Manner::OnlyAnswers, Manner::Closes] {
        let refuser = Refuser::coordinator();
        let refused = EnrolAnswer::Refused { reason: WHY.to_owned() };
        let refusing = refuser.refuse(manner, refused);
        let now = Moment::of(SystemTime::now());
        let terms = Terms {
            role: Role::Operator,
            expires: Moment::new(now.seconds() + 3_600),
            uses: 1,
        };
        let invitation = invite(&refuser.authority, terms, now).unwrap();
        let join = JoinFile::new(invitation, &refuser.authority, vec![refuser.address()]);
        let error = soon(enrol(&join, Role::Operator)).await.unwrap_err();
        assert!(matches!(error, EnrolError::Refused { .. }), "{manner:?}: {error}");
        assert!(error.to_string().contains(WHY), "{manner:?}: {error}");
        soon(refusing).await.unwrap();
    }
}
