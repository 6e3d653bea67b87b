//! SIGTERM, and a coordinator played by the test that releases or does not.

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_net::quic::limits::HANDSHAKE_DEADLINE;
use sardana_net::quic::{Door, Purpose, accept, bind_server};
use sardana_net::trust::{Authority, Credentials, Role};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::messages::{CoordinatorMessage, Greeting, Hello};
use sardana_protocol::words::Incarnation;
use tokio::task::JoinHandle;

use super::*;
use crate::testing::bystanders::{self, bystander};

struct Site {
    authority: Authority,
    credentials: Credentials,
    endpoint: Endpoint,
}

/// A worker's control connection, as its coordinator has it.
struct Session {
    _connection: Connection,
    send: SendStream,
    receive: RecvStream,
    hello: Box<sardana_protocol::messages::WorkerHello>,
}

impl Site {
    fn new() -> Self {
        let authority = Authority::new(JOB).unwrap();
        let credentials = authority.issue(Role::Coordinator, 0).unwrap();
        let endpoint = bind_server(&credentials, Purpose::Control, LOOPBACK).unwrap();
        Self {
            authority,
            credentials,
            endpoint,
        }
    }

    fn worker(&self, sigterm: Sigterm) -> JoinHandle<Result<Ended, WorkerError>> {
        let credentials = self.authority.issue(Role::Worker, 1).unwrap();
        let (failure, running) = bystanders::run(WorkerConfig {
            auxiliary: vec!["loss".to_owned(), "é".repeat(40)],
            links: LinkChoice::Auto,
            sigterm,
            ..bystander(credentials, self.endpoint.local_addr().unwrap())
        });
        tokio::spawn(async move {
            // Its training thread never fails.
            let _failure = failure;
            running.await
        })
    }

    async fn welcome(&self) -> Session {
        let welcoming = async {
            let knock = Door::new(self.endpoint.clone()).next().await.unwrap();
            let (connection, _) = accept(knock, &self.credentials, HANDSHAKE_DEADLINE).await.unwrap();
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            let hello = read_frame::<Hello>(&mut receive, HELLO_FRAME_BYTES).await.unwrap();
            let Some(Hello::Worker(hello)) = hello else {
                panic!("{hello:?}");
            };
            let joined = Greeting::Joined {
                incarnation: Incarnation::new(1),
                report_from: Step::ZERO,
            };
            write_frame(&mut send, &joined, HELLO_FRAME_BYTES).await.unwrap();
            Session {
                _connection: connection,
                send,
                receive,
                hello,
            }
        };
        soon(welcoming).await
    }
}

impl Session {
    async fn say(&mut self, message: CoordinatorMessage) {
        write_frame(&mut self.send, &message, CONTROL_FRAME_BYTES).await.unwrap();
    }
}

async fn end(worker: JoinHandle<Result<Ended, WorkerError>>) -> Result<Ended, WorkerError> {
    soon(worker).await.unwrap()
}

#[tokio::test]
async fn a_released_worker_ends_well() {
    let site = Site::new();
    let worker = site.worker(Sigterm::NotOurs);
    let mut session = site.welcome().await;
    // What it says of itself is cut to what a hello holds.
    assert_eq!(
        session.hello.host_hash.is_some(),
        cfg!(target_os = "linux"),
        "it can share memory"
    );
    assert_eq!(session.hello.auxiliary, ["loss".to_owned(), "é".repeat(32)]);
    let step = Step::new(4);
    session.say(CoordinatorMessage::Released { step }).await;
    assert_eq!(end(worker).await.unwrap(), Ended::Drained { step });
}

/// A worker that has joined, and leaves at SIGTERM.
async fn a_member() -> (Site, JoinHandle<Result<Ended, WorkerError>>, Session) {
    let site = Site::new();
    let worker = site.worker(Sigterm::Leave);
    let mut session = site.welcome().await;
    joined(&mut session).await;
    (site, worker, session)
}

/// One test, because a signal is for all of this process.
#[tokio::test]
async fn sigterm_asks_a_worker_to_leave_and_then_ends_it() {
    // Before it has joined: at once.
    let site = Site::new();
    let mut signal = signal(SignalKind::terminate()).unwrap();
    let mut terminate = async || {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        soon(signal.recv()).await.unwrap();
    };
    let worker = site.worker(Sigterm::Leave);
    // It listens for the signal before it does anything else.
    tokio::task::yield_now().await;
    terminate().await;
    let error = end(worker).await.unwrap_err();
    assert!(error.to_string().contains("before it had joined"), "{error}");

    // Afterwards it goes on, and ends when it is released.
    let (_site, worker, mut session) = a_member().await;
    terminate().await;
    let step = Step::new(3);
    session.say(CoordinatorMessage::Released { step }).await;
    assert_eq!(end(worker).await.unwrap(), Ended::Drained { step });

    // The second signal ends it.
    let (_site, worker, mut session) = a_member().await;
    terminate().await;
    joined(&mut session).await;
    assert!(!worker.is_finished());
    terminate().await;
    let error = end(worker).await.unwrap_err();
    assert!(error.to_string().contains("a second time"), "{error}");

    // So does the end of its patience.
    let (_site, worker, mut session) = a_member().await;
    terminate().await;
    joined(&mut session).await;
    tokio::time::pause();
    tokio::time::advance(limits::LEAVE_PATIENCE).await;
    tokio::time::resume();
    let error = end(worker).await.unwrap_err();
    assert!(error.to_string().contains("no coordinator released it in time"), "{error}");
}

/// Waits until the worker has taken in what it was told: it answers a halt.
async fn joined(session: &mut Session) {
    use sardana_protocol::messages::WorkerMessage;
    use sardana_protocol::words::Generation;
    let generation = Generation::new(Incarnation::new(1), 1);
    session.say(CoordinatorMessage::Halt { generation }).await;
    let answered = async {
        loop {
            let message = read_frame::<WorkerMessage>(&mut session.receive, CONTROL_FRAME_BYTES).await;
            if let Some(WorkerMessage::Halted { .. }) = message.unwrap() {
                return;
            }
        }
    };
    soon(answered).await;
}
