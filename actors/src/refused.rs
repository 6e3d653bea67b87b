//! A client that is refused while it still speaks hears why. An end played by the test refuses in the middle of the first thing that is said to it,
//! each time in the same order: it stops the stream, and only then says its word.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use quinn::{Connection, Endpoint, SendStream};
use sardana_protocol::messages::{Greeting, Hello};
use sardana_protocol::words::JobId;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent::{self, AgentConfig, Output};
use crate::enrol::{EnrolAnswer, EnrolError, JoinFile, Terms, enrol, invite};
use crate::operator::{Operator, OperatorError};
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{Purpose, REFUSED, bind_client, bind_narrow, connect};
use crate::trust::{Authority, Credentials, Moment, PeerIdentity, Role};
use crate::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use crate::wire::{FrameError, exchange, write_frame};

const JOB: JobId = JobId::new([5; 16]);
const WHY: &str = "there is no room for anybody";

/// Nothing here takes long; whatever has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// The shortest first message is longer.
const WINDOW: u32 = 16;

/// How an end refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It stops the stream, and answers.
    Answers,
    /// It neither reads nor stops, and answers.
    OnlyAnswers,
    /// It gives up both directions of the stream without a word, and then closes the connection with the reason.
    Closes,
}

/// An end that refuses who speaks to it.
#[derive(Debug)]
pub(crate) struct Refuser {
    pub(crate) authority: Authority,
    endpoint: Endpoint,
}

impl Refuser {
    pub(crate) fn new(role: Role, id: u64, purpose: Purpose) -> Self {
        let authority = Authority::new(JOB).unwrap();
        let own = authority.issue(role, id).unwrap();
        let endpoint = bind_narrow(own, purpose, ((Ipv4Addr::LOCALHOST, 0).into(), WINDOW)).unwrap();
        Self { authority, endpoint }
    }

    fn coordinator() -> Self {
        Self::new(Role::Coordinator, 0, Purpose::Control)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    fn credentials(&self, role: Role) -> Credentials {
        self.authority.issue(role, 1).unwrap()
    }

    /// Refuses the next one, whose bytes beyond [`WINDOW`] have not come.
    pub(crate) fn refuse<T: Serialize + Send + Sync + 'static>(&self, manner: Manner, answer: T) -> JoinHandle<()> {
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            let incoming = endpoint.accept().await.unwrap();
            let connection = incoming.accept().unwrap().await.unwrap();
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            match manner {
                Manner::Answers => {
                    receive.stop(1_u32.into()).unwrap();
                    write_frame(&mut send, &answer, CONTROL_FRAME_BYTES).await.unwrap();
                    delivered(send).await;
                }
                Manner::OnlyAnswers => {
                    write_frame(&mut send, &answer, CONTROL_FRAME_BYTES).await.unwrap();
                    delivered(send).await;
                }
                Manner::Closes => {
                    receive.stop(1_u32.into()).unwrap();
                    // An end that has all of this direction has seen that the other one was stopped.
                    delivered(send).await;
                    connection.close(REFUSED, WHY.as_bytes());
                }
            }
            connection.closed().await;
        })
    }
}

async fn delivered(mut send: SendStream) {
    send.finish().unwrap();
    send.stopped().await.unwrap();
}

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
        let incoming = refuser.endpoint.accept().await.unwrap();
        let connection = incoming.accept().unwrap().await.unwrap();
        let (send, mut receive) = connection.accept_bi().await.unwrap();
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
