//! A member of a group that has a certificate and takes its seat, and sends what no member sends: over its links, and to the coordinator. The
//! others' operations end with errors that say what came, and they go on in the next generation.

use std::sync::mpsc::sync_channel;

use quinn::{Connection, Endpoint, SendStream};
use sardana_actors::coordinator::CoordinatorConfig;
use sardana_actors::group::{self, GroupConfig, GroupEnded, Request};
use sardana_actors::worker::{LinkChoice, Reach, WorkerError};
use sardana_collectives::group::{Group, GroupError, Order, Reduction};
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HEADER_BYTES, PlanSlot};
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_server, connect};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_net::wire::limits::CONTROL_FRAME_BYTES;
use sardana_net::wire::write_frame;
use sardana_protocol::job::{JobIdentity, JobSpec};
use sardana_protocol::membership::{JobEvent, WorkerEvent};
use sardana_protocol::messages::{CoordinatorMessage, Form, Tally, WorkerHello, WorkerMessage};
use sardana_protocol::plan::Part;
use sardana_protocol::samples;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Step, WorkerId};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::raw::{JOB, LOOPBACK, Site, Wire, hello, soon, worker};

/// It dials the others, as the lower id does, and comes first.
const HOSTILE: u64 = 1;

/// More than any window lets pass.
const FLOOD: usize = 64 << 20;

fn identity() -> JobIdentity {
    JobIdentity {
        spec: JobSpec::group("raw".to_owned()),
        ..samples::identity()
    }
}

/// A program that makes the calls that it should, in a worker that ships.
struct Honest {
    requests: mpsc::UnboundedSender<Request>,
    running: JoinHandle<Result<GroupEnded, WorkerError>>,
}

impl Honest {
    fn join(site: &Site, id: u64) -> Self {
        let credentials = site.authority.issue(Role::Worker, id).unwrap();
        let (requests, asked) = mpsc::unbounded_channel();
        let config = GroupConfig {
            credentials: credentials.into(),
            coordinator: site.coordinator.address().into(),
            listen: LOOPBACK,
            advertise: None,
            identity: identity(),
            links: LinkChoice::Quic,
            reach: Reach::default(),
        };
        let running = tokio::spawn(group::run(config, asked));
        Self { requests, running }
    }

    async fn next(&self) -> Group {
        let (reply, group) = sync_channel(1);
        self.requests.send(Request::Next { reply }).unwrap();
        soon(spawn_blocking(move || group.recv())).await.unwrap().unwrap()
    }
}

/// The sum of what each rank of a group has, or why there is none.
async fn sums(mut group: Group) -> Result<(Group, Vec<u64>), GroupError> {
    let calls = spawn_blocking(move || {
        let mut values = vec![u64::from(group.rank().get()) + 1; 10_000];
        group.all_reduce(&mut values, Reduction::Sum, Order::Exact)?;
        Ok((group, values))
    });
    soon(calls).await.unwrap()
}

/// One that is seated, and does what a test wants.
struct Hostile {
    control: Wire,
    peers: Endpoint,
    connections: Vec<Connection>,
}

impl Hostile {
    async fn join(site: &Site) -> Self {
        let credentials = site.authority.issue(Role::Worker, HOSTILE).unwrap();
        let peers = bind_server(&credentials, Purpose::Peer, LOOPBACK).unwrap();
        let mut control = Wire::dial(&credentials, site.coordinator.address()).await;
        let own = WorkerHello {
            identity: identity(),
            address: peers.local_addr().unwrap(),
            auxiliary: vec![],
            ..hello(HOSTILE)
        };
        control.greeted(&worker(own)).await;
        Self {
            control,
            peers,
            connections: vec![],
        }
    }

    /// Obeys until it is told of its seat.
    async fn seat(&mut self) -> Form {
        loop {
            match self.control.hear().await.unwrap().expect("the coordinator is there") {
                CoordinatorMessage::Halt { generation } => {
                    let standing = samples::introduction().standing;
                    self.control.say(&WorkerMessage::Halted { generation, standing }).await;
                }
                CoordinatorMessage::Form(form) => return *form,
                other => panic!("expected a seat, found {other:?}"),
            }
        }
    }

    /// Takes the seat, and makes its links: the streams that lead from it to the rank after.
    async fn links(&mut self, form: &Form) -> [SendStream; 2] {
        for peer in &form.peers {
            let known = self.connections.iter().any(|one| one.remote_address() == peer.member.address);
            if !known {
                let identity = PeerIdentity::worker(JOB, peer.member.worker);
                let connection = connect(&self.peers, peer.member.address, identity, CONNECT_DEADLINE).await;
                self.connections.push(connection.unwrap());
            }
        }
        let running = self.link(form, 0, &form.first).await;
        let finished = self.link(form, 1, &form.steady).await;
        let generation = form.generation;
        self.control.say(&WorkerMessage::Ready { generation }).await;
        [running, finished]
    }

    async fn link(&self, form: &Form, slot: u32, part: &Part) -> SendStream {
        let (onwards, _) = part.ends();
        let [end] = onwards[..] else {
            panic!("expected a way to the next rank, found {onwards:?}");
        };
        let after = form.peer(end.peer).unwrap();
        let connection = self.connections.iter().find(|one| one.remote_address() == after.address);
        let mut stream = connection.unwrap().open_uni().await.unwrap();
        let hello = (JOB, (form.generation, slot, end.hop), WorkerId::new(HOSTILE));
        write_frame(&mut stream, &hello, CONTROL_FRAME_BYTES).await.unwrap();
        stream
    }
}

/// The first frame that a group's rank receives, as the rank before should send it.
fn call(generation: Generation) -> FrameHeader {
    FrameHeader {
        generation,
        step: Step::ZERO,
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Call,
        chunk: 0,
        payload_bytes: 16,
    }
}

/// What is sent in place of a call in this generation, and what the error of the rank behind it says.
fn cases(generation: Generation) -> Vec<(Vec<u8>, &'static str)> {
    let sound = call(generation);
    let old = FrameHeader {
        generation: Generation::new(generation.incarnation(), generation.count() - 1),
        ..sound
    };
    let longer = FrameHeader {
        payload_bytes: u32::MAX,
        ..sound
    };
    let framed = |header: FrameHeader, payload: &[u8]| [&header.encode()[..], payload].concat();
    vec![
        (vec![0xff; HEADER_BYTES], "the frame's format is"),
        (framed(old, &[0; 16]), "the frame's generation count is"),
        (framed(longer, &[0; 16]), "the frame's payload length is 0xffffffff"),
        (framed(sound, &[0xff; 16]), "is not known"),
        (vec![0; FLOOD], "the frame's format is"),
    ]
}

/// A coordinator that waits for so many, of `max`.
async fn site(expected: u32, max: u32) -> Site {
    let change = |config| CoordinatorConfig { expected, max, ..config };
    Site::with(Authority::new(JOB).unwrap(), change).await.unwrap()
}

/// The two others, in one group, make an operation and finish.
async fn end(mut site: Site, honest: [Honest; 2], groups: [Group; 2]) {
    let [one, other] = groups;
    let generation = one.generation();
    assert_eq!((one.world_size(), generation), (2, other.generation()));
    let ((one, sum), (other, same)) = tokio::try_join!(sums(one), sums(other)).unwrap();
    assert_eq!((sum, same), (vec![3; 10_000], vec![3; 10_000]));
    let close = |group: Group| soon(spawn_blocking(move || group.close()));
    let (one, other) = tokio::join!(close(one), close(other));
    one.unwrap().and(other.unwrap()).unwrap();
    for Honest { requests, .. } in &honest {
        let (goes_on, _) = sync_channel(1);
        requests.send(Request::Finish { generation, goes_on }).unwrap();
    }
    for Honest { running, .. } in honest {
        assert_eq!(soon(running).await.unwrap().unwrap(), GroupEnded::Done);
    }
    while !matches!(site.event().await, JobEvent::Done(_)) {}
}

async fn both(honest: &[Honest; 2]) -> [Group; 2] {
    let [one, other] = honest;
    tokio::join!(one.next(), other.next()).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_rank_sends_ends_the_generation_with_an_error_that_says_so() {
    let mut site = site(3, 8).await;
    let mut hostile = Hostile::join(&site).await;
    let honest = [5, 6].map(|id| Honest::join(&site, id));
    for case in 0..cases(Generation::NONE.next()).len() {
        let form = hostile.seat().await;
        assert_eq!((form.world_size, form.rank.get()), (3, 0));
        let [mut running, finished] = hostile.links(&form).await;
        let [one, other] = both(&honest).await;
        let (sent, said) = cases(form.generation).swap_remove(case);
        let sending = async {
            // No more of it is taken than can be under way.
            let all = running.write_all(&sent).await.is_ok();
            assert!(!all || sent.len() < FLOOD, "all of it was taken");
        };
        let ((), one, other) = tokio::join!(soon(sending), sums(one), sums(other));
        let told = [one, other].map(|outcome| outcome.err().unwrap().to_string());
        assert!(told.iter().any(|told| told.contains(said)), "case {case}: {told:?}");
        drop((running, finished));
    }
    // Its last words are none.
    hostile.control.send.write_all(&[0xff; 4_096]).await.unwrap();
    let cause = loop {
        if let JobEvent::Worker(WorkerEvent::Lost { worker, cause, .. }) = site.event().await {
            assert_eq!(worker, WorkerId::new(HOSTILE));
            break cause.to_string();
        }
    };
    assert!(cause.contains("version"), "{cause}");
    let groups = both(&honest).await;
    end(site, honest, groups).await;
}

/// It waits for a place, and speaks as if it had one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_no_member_changes_nothing_of_a_generation() {
    let mut site = site(2, 2).await;
    let honest = [5, 6].map(|id| Honest::join(&site, id));
    let groups = both(&honest).await;
    let generation = groups[0].generation();
    let mut hostile = Hostile::join(&site).await;
    let peer = WorkerId::new(5);
    let finished = WorkerMessage::Finished {
        generation,
        step: Step::ZERO,
        hash: StateHash::new([0; 32]),
        results: vec![],
        tally: Tally::default(),
    };
    for _ in 0..100 {
        for message in [
            &WorkerMessage::GivenUp { generation },
            &WorkerMessage::LinkBroken { generation, peer },
            &WorkerMessage::Ready { generation },
            &finished,
        ] {
            hostile.control.say(message).await;
        }
    }
    let reason = "it has said all".to_owned();
    hostile.control.say(&WorkerMessage::Leave { reason }).await;
    let answer = hostile.control.hear().await.unwrap();
    assert!(matches!(answer, Some(CoordinatorMessage::Released { .. })), "{answer:?}");
    while !matches!(site.event().await, JobEvent::Worker(WorkerEvent::Left { .. })) {}
    assert_eq!(generation.count(), 1);
    end(site, honest, groups).await;
}
