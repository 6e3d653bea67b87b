//! Each request of an operator, and which processes may not ask.

use sardana_actors::operator::limits::{KEPT_EVENTS, MAX_OPERATORS, REQUEST_BYTES};
use sardana_actors::operator::{Operator, OperatorError};
use sardana_net::trust::{Authority, Role};
use sardana_protocol::limits::{MAX_WORKERS, WIRE_VERSION};
use sardana_protocol::membership::{GenerationEvent, JobEvent, WorkerEvent};
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting, Hello};
use sardana_protocol::status::{JobStatus, OperatorAnswer, OperatorRequest, Stage};
use sardana_protocol::words::{JobId, Step, WorkerId};

use super::orders::status;
use super::raw::{JOB, Site, Wire, exited, hello, soon, worker};

async fn done(operator: &mut Operator, request: OperatorRequest) -> String {
    match operator.ask(&request).await.unwrap() {
        OperatorAnswer::Done { what } => what,
        other => panic!("expected that {request:?} is done, found {other:?}"),
    }
}

async fn refused(operator: &mut Operator, request: OperatorRequest) -> String {
    match operator.ask(&request).await.unwrap() {
        OperatorAnswer::Refused { reason } => reason,
        other => panic!("expected that {request:?} is refused, found {other:?}"),
    }
}

fn drain(whom: &str) -> OperatorRequest {
    OperatorRequest::Drain { whom: whom.to_owned() }
}

fn kill(whom: &str) -> OperatorRequest {
    OperatorRequest::Kill { whom: whom.to_owned() }
}

/// An agent on `host` with these children.
async fn agent(site: &Site, id: u64, host: &str, children: &[u64]) -> Wire {
    let mut wire = site.dial(Role::Agent, id).await;
    let hello = Hello::Agent(AgentHello {
        job: JOB,
        host: host.to_owned(),
        children: children.iter().copied().map(WorkerId::new).collect(),
    });
    assert_eq!(wire.greeted(&hello).await, Greeting::Welcome);
    wire
}

async fn order(agent: &mut Wire) -> AgentOrder {
    agent.hear::<AgentOrder>().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_job_without_workers_has_a_status() {
    let site = Site::new().await;
    let mut operator = site.operator().await;
    let status = status(&mut operator).await;
    assert_eq!(status.job, JOB);
    assert_eq!(status.spec, None);
    assert_eq!((status.overview.stage, status.overview.step), (Stage::Gathering, Step::ZERO));
    assert!(status.overview.workers.is_empty() && status.agents.is_empty() && status.events.is_empty());
    assert_eq!(status.steps_per_second.to_bits(), 0.0_f64.to_bits());
    let reason = refused(&mut operator, drain("r0")).await;
    assert!(reason.contains("no workers yet"), "{reason}");
    operator.close().await;
}

#[tokio::test]
async fn a_status_tells_workers_agents_and_what_happened() {
    let mut site = Site::new().await;
    let mut host = agent(&site, 5, "al\x1bpha", &[1]).await;
    let pid = 4_711;
    let started = AgentMessage::ChildStarted {
        worker: WorkerId::new(2),
        pid,
    };
    host.say(&started).await;
    let _first = site.join(1).await;
    let _second = site.join(2).await;
    while !matches!(site.event().await, JobEvent::Generation(GenerationEvent::Forming { .. })) {}
    let mut operator = site.operator().await;
    let status = status(&mut operator).await;
    assert_eq!(status.spec, Some(hello(1).identity.spec));
    assert_eq!(status.auxiliary, ["loss"]);
    let workers: Vec<u64> = status.overview.workers.iter().map(|view| view.worker.get()).collect();
    assert_eq!(workers, [1, 2]);
    let trips: Vec<u64> = status.round_trips.iter().map(|(worker, _)| worker.get()).collect();
    assert_eq!(trips, [1, 2]);
    assert_eq!(status.agents.len(), 1);
    assert_eq!(status.agents[0].host, "al pha", "nothing but text");
    assert_eq!(
        status.agents[0].children,
        [(WorkerId::new(1), None), (WorkerId::new(2), Some(pid))]
    );
    assert!(status.events.len() <= KEPT_EVENTS);
    assert!(
        status.events.iter().any(|(_, words)| words.contains("joined at s0")),
        "{:?}",
        status.events
    );
    assert!(status.age >= status.events[0].0);

    // Its agent sees one end, and then is gone itself.
    host.say(&exited(2)).await;
    while !matches!(site.event().await, JobEvent::Worker(WorkerEvent::Lost { .. })) {}
    assert_eq!(
        self::status(&mut operator).await.agents[0].children,
        [(WorkerId::new(1), None)]
    );
    host.connection.close(0_u32.into(), b"lost");
    while !self::status(&mut operator).await.agents.is_empty() {}
}

#[tokio::test]
async fn drain_names_whom_it_means() {
    let site = Site::new().await;
    let _agent = agent(&site, 5, "alpha", &[1]).await;
    let _first = site.join(1).await;
    let _second = site.join(2).await;
    let mut operator = site.operator().await;
    let what = done(&mut operator, drain("w0000000000000002")).await;
    assert!(what.contains("w0000000000000002"), "{what}");
    let what = done(&mut operator, drain("alpha")).await;
    assert!(what.contains("w0000000000000001"), "{what}");
    for (whom, words) in [("beta", "found `beta`"), ("w000", "begins the ids of 2")] {
        let reason = refused(&mut operator, drain(whom)).await;
        assert!(reason.contains(words) && reason.contains("alpha"), "{reason}");
    }
    let events = status(&mut operator).await.events;
    let asked = events.iter().filter(|(_, words)| words.starts_with("operator: ")).count();
    assert_eq!(asked, 2, "{events:?}");
}

#[tokio::test]
async fn kill_goes_to_the_workers_agent() {
    let site = Site::new().await;
    let mut alpha = agent(&site, 5, "alpha", &[1]).await;
    let _first = site.join(1).await;
    let _second = site.join(2).await;
    let mut operator = site.operator().await;
    done(&mut operator, kill("w0000000000000001")).await;
    let worker = WorkerId::new(1);
    assert_eq!(order(&mut alpha).await, AgentOrder::Kill { worker });
    let reason = refused(&mut operator, kill("w0000000000000002")).await;
    assert!(reason.contains("no agent") && reason.contains("by hand"), "{reason}");
    let reason = refused(&mut operator, kill("w")).await;
    assert!(reason.contains("expected a worker's id"), "{reason}");
}

#[tokio::test]
async fn scale_starts_where_the_fewest_are_and_drains_the_last() {
    let site = Site::new().await;
    let mut operator = site.operator().await;
    let scale = |workers| OperatorRequest::Scale { workers };
    for wrong in [0, MAX_WORKERS + 1] {
        let reason = refused(&mut operator, scale(wrong)).await;
        assert!(
            reason.contains("expected 1 to 1024") && reason.contains(&wrong.to_string()),
            "{reason}"
        );
    }
    let reason = refused(&mut operator, scale(1)).await;
    assert!(reason.contains("at least 2"), "{reason}");
    let reason = refused(&mut operator, scale(3)).await;
    assert!(reason.contains("expected an agent"), "{reason}");

    let mut alpha = agent(&site, 5, "alpha", &[1]).await;
    let mut beta = agent(&site, 6, "beta", &[]).await;
    let _first = site.join(1).await;
    let what = done(&mut operator, scale(4)).await;
    assert!(what.contains("1 on alpha") && what.contains("2 on beta"), "{what}");
    assert_eq!(order(&mut alpha).await, AgentOrder::Start { workers: 1 });
    assert_eq!(order(&mut beta).await, AgentOrder::Start { workers: 2 });
    // What is under way counts.
    let what = done(&mut operator, scale(4)).await;
    assert!(what.contains("has 4 workers already"), "{what}");

    let _second = site.join(2).await;
    let what = done(&mut operator, scale(4)).await;
    assert!(what.contains("w0000000000000002 leave"), "the last one: {what}");
}

#[tokio::test]
async fn an_agent_that_leaves_gets_no_more_workers() {
    let site = Site::new().await;
    let mut alpha = agent(&site, 5, "alpha", &[1]).await;
    let _first = site.join(1).await;
    alpha
        .say(&AgentMessage::Leave {
            reason: "SIGTERM".to_owned(),
        })
        .await;
    let mut operator = site.operator().await;
    let told = |status: &JobStatus| status.events.iter().any(|(_, words)| words.contains("alpha leaves: SIGTERM"));
    while !told(&status(&mut operator).await) {}
    let reason = refused(&mut operator, OperatorRequest::Scale { workers: 3 }).await;
    assert!(reason.contains("none connected that stays"), "{reason}");
}

#[tokio::test]
async fn stop_ends_the_job_and_nothing_is_changed_afterwards() {
    let mut site = Site::new().await;
    let mut operator = site.operator().await;
    done(&mut operator, OperatorRequest::Stop).await;
    assert!(matches!(site.event().await, JobEvent::Failed { .. }));
    for request in [
        OperatorRequest::Stop,
        drain("r0"),
        kill("r0"),
        OperatorRequest::Scale { workers: 3 },
    ] {
        let reason = refused(&mut operator, request).await;
        assert!(reason.contains("the job is over"), "{reason}");
    }
    assert_eq!(status(&mut operator).await.overview.stage, Stage::Done);
    let Site { coordinator, .. } = site;
    coordinator.end().await;
    let error = operator.ask(&OperatorRequest::Status).await.unwrap_err();
    assert!(matches!(error, OperatorError::Ended { .. }), "{error}");
}

#[tokio::test]
async fn others_may_not_ask() {
    let site = Site::new().await;
    for role in [Role::Worker, Role::Agent] {
        let credentials = site.authority.issue(role, 7).unwrap();
        let error = Operator::connect(&credentials, site.coordinator.address()).await.unwrap_err();
        assert!(
            matches!(&error, OperatorError::Refused { reason, .. } if reason.contains("credentials of its own role")),
            "{error}"
        );
    }
    let stranger = Authority::new(JOB).unwrap().issue(Role::Operator, 7).unwrap();
    let error = Operator::connect(&stranger, site.coordinator.address()).await.unwrap_err();
    assert!(error.to_string().contains("another job"), "{error}");
    // A worker that has been welcomed is believed as a worker only: its request is no message of a worker.
    let mut first = site.join(1).await;
    first.say(&OperatorRequest::Stop).await;
    let why = first.closed().await;
    assert!(
        why.contains("not the message expected here") || why.contains("bytes follow"),
        "{why}"
    );
}

#[tokio::test]
async fn a_request_too_long_or_unreadable_ends_the_session_alone() {
    let site = Site::new().await;
    let header = |length: usize| [&WIRE_VERSION.to_le_bytes()[..], &[0, 0], &(length as u32).to_le_bytes()].concat();
    let garbage = [header(4), vec![255; 4]].concat();
    for (bytes, words) in [
        (header(REQUEST_BYTES + 1), "expected at most 4096"),
        (header(u32::MAX as usize), "expected at most 4096"),
        (garbage, "not the message expected here"),
    ] {
        let mut wire = site.dial(Role::Operator, 1).await;
        assert_eq!(wire.greeted(&Hello::Operator { job: JOB }).await, Greeting::Welcome);
        wire.send.write_all(&bytes).await.unwrap();
        let why = wire.closed().await;
        assert!(why.contains(words), "{why}");
    }
    let mut operator = site.operator().await;
    let long = "x".repeat(2 * REQUEST_BYTES);
    let error = operator.ask(&drain(&long)).await.unwrap_err();
    assert!(error.to_string().contains("expected at most 4096"), "{error}");
    let _first = site.join(1).await;
}

#[tokio::test]
async fn so_many_operators_and_no_more() {
    let site = Site::new().await;
    let mut operators = Vec::new();
    for _ in 0..MAX_OPERATORS {
        operators.push(site.operator().await);
    }
    let credentials = site.authority.issue(Role::Operator, 99).unwrap();
    let error = Operator::connect(&credentials, site.coordinator.address()).await.unwrap_err();
    assert!(error.to_string().contains("16 operators"), "{error}");
    operators.pop().unwrap().close().await;
    loop {
        match Operator::connect(&credentials, site.coordinator.address()).await {
            Ok(_operator) => break,
            Err(error) => assert!(matches!(error, OperatorError::Refused { .. }), "{error}"),
        }
    }
    let mut other = site.dial(Role::Operator, 3).await;
    let of_another_job = Hello::Operator {
        job: JobId::new([9; 16]),
    };
    assert!(other.refused(&of_another_job).await.contains("own role and job"));
    let mut hello_of_worker = site.dial(Role::Operator, 3).await;
    assert!(hello_of_worker.refused(&worker(hello(3))).await.contains("own role and job"));
}

#[tokio::test]
async fn who_asks_while_the_coordinator_ends_is_told_that_the_job_is_over() {
    let site = Site::new().await;
    let mut operator = site.operator().await;
    status(&mut operator).await;
    let ending = tokio::spawn(site.coordinator.end());
    let asking = async {
        loop {
            if let Err(error) = operator.ask(&OperatorRequest::Status).await {
                return error;
            }
        }
    };
    let error = soon(asking).await;
    assert!(matches!(error, OperatorError::Ended { .. }), "{error}");
    ending.await.unwrap();
}
