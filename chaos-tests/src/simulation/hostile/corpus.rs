//! One message of each kind, of each role: what hostile peers begin with.

use std::net::{Ipv4Addr, SocketAddr};

use sardana_protocol::checkpoint::{Condition, DepotAddress, DepotId, Head, ManifestId, ManifestKey, PieceHash, Placing};
use sardana_protocol::job::Task;
use sardana_protocol::lineage::Lineage;
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::messages::{
    CatchUp, CoordinatorMessage, DepotMessage, Form, Introduction, Joiners, Last, LinkKind, LinkLine, LinkPath, LinkReport,
    MemberAddress, MembersDigest, Passed, Peer, Restore, Ring, Save, Seated, Serve, Shares, Snapshot, Standing, StepReport,
    Tally, Trailer, WorkerMessage,
};
use sardana_protocol::plan::{OrderedPart, Part, VisitPart};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::{StateHash, StateSize};
use sardana_protocol::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

const GENERATION: Generation = Generation::new(Incarnation::new(1), 1);
const SNAPSHOT: SnapshotId = SnapshotId {
    generation: GENERATION,
    step: Step::new(2),
};
const TALLY: Tally = Tally {
    total: 9,
    step: Step::new(2),
    this_step: 2,
    previous_step: 3,
};

fn standing() -> Standing {
    Standing {
        step: Step::new(2),
        lineage: Lineage::default(),
        kept: vec![ShardRange::new(0, 1)],
        sum: Some(Step::new(1)),
        stop_at: Some(Step::new(3)),
        tally: TALLY,
    }
}

/// What a worker's hello says of it.
pub(crate) fn introduction() -> Introduction {
    Introduction {
        generation: GENERATION,
        incarnation: Incarnation::new(1),
        seat: Some(Seated {
            rank: Rank::new(1),
            world_size: 3,
            digest: MembersDigest::of([WorkerId::new(1)]),
            peers: vec![(Rank::ZERO, WorkerId::new(1))],
            shards: ShardRange::new(1, 2),
            ring: Ring::Whole,
        }),
        training: true,
        standing: standing(),
    }
}

/// What workers say.
pub(crate) fn of_worker() -> Vec<WorkerMessage> {
    let (generation, snapshot, step, tally) = (GENERATION, SNAPSHOT, Step::new(3), TALLY);
    let mut all = vec![
        WorkerMessage::Halted {
            generation,
            standing: standing(),
        },
        WorkerMessage::Ready { generation },
        WorkerMessage::Progress {
            generation,
            step,
            tally,
            pace: Some(Pace::new(std::time::Duration::from_millis(3))),
            moved: 5,
            reports: vec![StepReport {
                step: Step::new(1),
                samples: 3,
                sums: vec![0.5],
            }],
        },
        WorkerMessage::Finished {
            generation,
            step,
            hash: StateHash::of(b"other"),
            results: vec![("steps".to_owned(), 1.0)],
            tally,
        },
        WorkerMessage::Hashing { snapshot },
        WorkerMessage::Copying { snapshot },
    ];
    all.extend(of_worker_beside_training());
    all
}

/// What workers say of links, snapshots and checkpoints.
fn of_worker_beside_training() -> Vec<WorkerMessage> {
    let (generation, snapshot, step) = (GENERATION, SNAPSHOT, Step::new(3));
    let reason = || "test".to_owned();
    vec![
        WorkerMessage::LinkBroken {
            generation,
            peer: WorkerId::new(1),
        },
        WorkerMessage::Switched { generation, step },
        WorkerMessage::RoomMade { generation },
        WorkerMessage::Snapshotted {
            snapshot,
            shares: vec![(0, StateHash::of(b"0")), (1, StateHash::of(b"1"))],
        },
        WorkerMessage::Dropped { snapshot },
        WorkerMessage::Saved {
            snapshot,
            attempt: 1,
            share: 1,
            bytes: 8,
            description: vec![PieceHash::of(b"names")],
            state: StateSize { pieces: 5, bytes: 40 },
            start: 0,
            pieces: vec![PieceHash::of(b"piece")],
            is_last: false,
        },
        WorkerMessage::Saving { snapshot, attempt: 1 },
        WorkerMessage::NotSaved {
            snapshot,
            attempt: 1,
            depot: Some(DepotId::new(1)),
            reason: reason(),
        },
        WorkerMessage::NotRestored {
            generation,
            reason: reason(),
        },
        WorkerMessage::CaughtUp { snapshot, step },
        WorkerMessage::CopyFailed {
            snapshot,
            reason: reason(),
        },
        WorkerMessage::Leave { reason: reason() },
        WorkerMessage::Renew { request: vec![1, 2] },
        WorkerMessage::Links(link_report()),
        WorkerMessage::DeviceMemory(DeviceMemory::default().named("GPU-a")),
        WorkerMessage::GivenUp { generation },
        WorkerMessage::Failed { reason: reason() },
    ]
}

fn link_report() -> LinkReport {
    let passed = Passed { links: 1, bytes: 9 };
    LinkReport {
        generation: GENERATION,
        at: std::time::Duration::from_millis(3),
        lines: vec![LinkLine {
            peer: WorkerId::new(1),
            kind: LinkKind::Quic,
            outgoing: passed,
            incoming: passed,
            path: Some(LinkPath {
                sent_packets: 9,
                lost_packets: 1,
                round_trip: std::time::Duration::from_millis(1),
            }),
        }],
        untold: 0,
    }
}

fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

fn key() -> ManifestKey {
    ManifestKey {
        step: SNAPSHOT.step,
        id: ManifestId::of(b"test"),
    }
}

/// A checkpoint as a depot tells of it.
pub(crate) fn head(task: Task, build: StateHash) -> Head {
    Head {
        key: key(),
        run: JobId::new([1; 16]),
        snapshot: SNAPSHOT,
        task,
        build,
        replicas: 2,
        depots: vec![DepotId::new(1), DepotId::new(2)],
        placing: Placing {
            incarnation: Incarnation::new(1),
            number: 1,
        },
        condition: Condition::Whole,
    }
}

/// What depots say of a job with these names.
pub(crate) fn of_depot(task: Task, build: StateHash) -> Vec<DepotMessage> {
    let (snapshot, head) = (SNAPSHOT, head(task, build));
    vec![
        DepotMessage::Holds {
            heads: vec![head.clone()],
            is_last: true,
            unreadable: vec![key()],
        },
        DepotMessage::Deleted { key: key() },
        DepotMessage::Committed {
            snapshot,
            head: head.clone(),
        },
        DepotMessage::Refused {
            snapshot,
            placing: head.placing,
            reason: "test".to_owned(),
        },
        DepotMessage::Renew { request: vec![1] },
        DepotMessage::Fetching {
            snapshot,
            placing: head.placing,
        },
    ]
}

fn member(worker: u64) -> MemberAddress {
    MemberAddress {
        worker: WorkerId::new(worker),
        address: address(),
    }
}

fn form(catch_up: CatchUp) -> Form {
    let part = Part::Ordered(OrderedPart {
        visits: vec![VisitPart {
            shards: ShardRange::new(0, 4),
            from: None,
            to: None,
        }],
        sum_from: None,
        sum_to: None,
    });
    let restore = Restore {
        key: key(),
        depots: vec![DepotAddress {
            depot: DepotId::new(1),
            certified: 1,
            address: address(),
        }],
        members: vec![Peer {
            rank: Rank::new(1),
            member: member(1),
        }],
        readers: vec![Rank::ZERO],
    };
    Form {
        generation: GENERATION,
        rank: Rank::ZERO,
        world_size: 1,
        digest: MembersDigest::of([WorkerId::new(1)]),
        peers: vec![Peer {
            rank: Rank::new(1),
            member: member(2),
        }],
        step: SNAPSHOT.step,
        lineage: Lineage::default(),
        first: part.clone(),
        steady: part,
        catch_up,
        restore: (catch_up == CatchUp::Checkpoint).then(|| Box::new(restore)),
        report_from: Step::ZERO,
        stop_at: None,
        last: Last::Snapshot,
    }
}

/// What a coordinator says.
pub(crate) fn of_coordinator() -> Vec<CoordinatorMessage> {
    let (generation, snapshot, step) = (GENERATION, SNAPSHOT, Step::new(3));
    let from = Rank::new(1);
    let forms = [
        CatchUp::None,
        CatchUp::Sum { from },
        CatchUp::State { from },
        CatchUp::Checkpoint,
    ];
    let mut all: Vec<CoordinatorMessage> = Vec::new();
    for catch_up in forms {
        all.push(CoordinatorMessage::Form(Box::new(form(catch_up))));
        all.push(CoordinatorMessage::Prepare(Box::new(form(catch_up))));
    }
    for trailer in [
        Trailer::Continue,
        Trailer::Stop,
        Trailer::Snapshot,
        Trailer::Switch(generation),
    ] {
        all.push(CoordinatorMessage::CloseWith { generation, trailer });
    }
    all.extend([
        CoordinatorMessage::Halt { generation },
        CoordinatorMessage::Serve(Serve {
            joiners: Joiners::Only(vec![WorkerId::new(1)]),
            snapshot: Some(snapshot),
            shares: Shares::Keep,
            sums_from: step,
        }),
        CoordinatorMessage::Serve(Serve {
            joiners: Joiners::Changed {
                came: vec![WorkerId::new(2)],
                gone: vec![WorkerId::new(1)],
            },
            snapshot: Some(snapshot),
            shares: Shares::Keep,
            sums_from: step,
        }),
        CoordinatorMessage::Save(Box::new(Save {
            snapshot,
            attempt: 1,
            shares: vec![0],
            depots: vec![DepotAddress {
                depot: DepotId::new(1),
                certified: 1,
                address: address(),
            }],
            replicas: 2,
        })),
        CoordinatorMessage::SaveOver { snapshot },
        CoordinatorMessage::Copy(Box::new(Snapshot {
            id: snapshot,
            holders: vec![Some(member(1)), None],
            shares: vec![StateHash::of(b"0"), StateHash::of(b"1")],
        })),
        CoordinatorMessage::Complete {
            step,
            hash: StateHash::of(b"x"),
        },
    ]);
    all
}
