//! The bytes of every message, written down by hand: a change of one is a change of the wire format and needs a new version.

use std::time::Duration;

use sardana_protocol::codec::{decode, encode};
use sardana_protocol::data::{DataFingerprint, DataHash, DataPart};
use sardana_protocol::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use sardana_protocol::lineage::Lineage;
use sardana_protocol::memory::{DeviceMemory, GradientMemory};
use sardana_protocol::messages::{
    AgentHello, AgentMessage, AgentOrder, Call, CoordinatorMessage, Greeting, Hello, HostHash, Introduction, Joiners,
    LinkKind, LinkLine, LinkPath, LinkReport, MemberAddress, MembersDigest, Motion, Passed, Ring, Seated, Serve, Shares,
    Snapshot, Standing, StepReport, Tally, Trailer, WorkerHello, WorkerMessage,
};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::CONTROL_FRAME_BYTES;
use super::write_frame_blocking;

const GENERATION: Generation = Generation::new(Incarnation::new(1), 7);

/// Checks that `value` is exactly the bytes in `text`: two hex digits each, anything in quotes as it is, spaces ignored.
pub(super) fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    let expected = bytes(text);
    let found = encode(value, CONTROL_FRAME_BYTES).unwrap();
    assert_eq!(found, expected, "{value:?} was {found:02x?}");
    assert_eq!(&decode::<T>(&expected, CONTROL_FRAME_BYTES).unwrap(), value);
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            bytes.extend(part.bytes());
            continue;
        }
        let digits: Vec<u32> = part.chars().filter_map(|char| char.to_digit(16)).collect();
        bytes.extend(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8));
    }
    bytes
}

fn tally() -> Tally {
    Tally {
        total: 70_000,
        step: Step::new(9),
        this_step: 3,
        previous_step: 4,
    }
}

const TALLY: &str = "fc 70110100  09  03  04";

fn standing() -> Standing {
    Standing {
        step: Step::new(9),
        lineage: Lineage {
            last: GENERATION,
            before: None,
        },
        kept: vec![ShardRange::new(0, 2), ShardRange::new(5, 6)],
        sum: Some(Step::new(8)),
        stop_at: None,
        tally: tally(),
    }
}

pub(super) fn device_memory() -> DeviceMemory {
    DeviceMemory {
        gpu: "3".to_owned(),
        held: 300,
        peak: 301,
        needed: 4,
        total: 1 << 20,
        sharers: 2,
        pinned: 6,
    }
}

pub(super) const DEVICE_MEMORY: &str = "01\"3\" fb2c01 fb2d01 04 fc00001000 02 06";

const STANDING: &str = "09  0107  00  02 0002 0506  0108  00";

#[test]
fn a_frame() {
    let mut frame = Vec::new();
    write_frame_blocking(&mut frame, &WorkerMessage::Ready { generation: GENERATION }, 16).unwrap();
    assert_eq!(frame, bytes("1000 0000 03000000  01 01 07"));
}

fn identity(hash: StateHash) -> JobIdentity {
    JobIdentity {
        spec: JobSpec {
            name: "ring".to_owned(),
            seed: 250,
            shards: 251,
            steps: Step::new(65_536),
            samples: 1 << 32,
            batch: 64,
            last_batch: LastBatch::Short,
            order: Order::Fast,
            compression: Compression::F16,
            data: DataFingerprint::new(vec![DataPart {
                name: "a".to_owned(),
                hash: DataHash::new([0xda; 32]),
            }])
            .unwrap(),
        },
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            settings: hash,
            processor: "x".to_owned(),
            device: "cpu".to_owned(),
            libraries: String::new(),
            probe: hash,
        },
    }
}

#[test]
fn hello() {
    let job = JobId::new([0xaa; 16]);
    let hash = StateHash::new([0x5c; 32]);
    let hello = WorkerHello {
        job,
        worker: WorkerId::new(0x0123_4567_89ab_cdef),
        identity: identity(hash),
        introduction: Introduction {
            generation: GENERATION,
            incarnation: Incarnation::new(2),
            seat: Some(Seated {
                rank: Rank::new(2),
                world_size: 3,
                digest: MembersDigest::new([0xdd; 32]),
                peers: vec![(Rank::new(0), WorkerId::new(5)), (Rank::new(1), WorkerId::new(6))],
                shards: ShardRange::new(4, 8),
                ring: Ring::Broken,
            }),
            training: true,
            standing: standing(),
        },
        shard_capacity: 16,
        memory: GradientMemory {
            gradient: 1 << 20,
            room: u64::MAX,
            links: 300,
        },
        address: "127.0.0.1:4433".parse().unwrap(),
        auxiliary: vec!["loss".to_owned()],
        call: Call {
            process: [0xbb; 16],
            count: 3,
        },
        device_memory: Some(device_memory()),
        host_hash: Some(HostHash::new([0x4a; 16])),
    };
    let (job_text, hash_text, process) = ("aa".repeat(16), "5c".repeat(32), "bb".repeat(16));
    let (digest, data, host) = ("dd".repeat(32), "da".repeat(32), "4a".repeat(16));
    let text = format!(
        "00 {job_text} fd efcdab8967452301 \
         04\"ring\" fa fbfb00 fc00000100 fd0000000001000000 40 00 01 02 01 01\"a\" {data} \
         {hash_text} {hash_text} {hash_text} {hash_text} 01\"x\" 03\"cpu\" 00 {hash_text} \
         0107 02 01 02 03 {digest} 02 00 05 01 06 04 08 01 01 {STANDING} {TALLY} 10 fc00001000 fdffffffffffffffff fb2c01 00 7f000001 fb5111 01 04\"loss\" {process} 03 01 {DEVICE_MEMORY} 01 {host}"
    );
    golden(&Hello::Worker(Box::new(hello)), &text);
}

#[test]
fn hellos_of_others() {
    let (job, job_text) = (JobId::new([0xaa; 16]), "aa".repeat(16));
    let agent = AgentHello {
        job,
        host: "h".to_owned(),
        children: vec![WorkerId::new(5)],
    };
    golden(&Hello::Agent(agent), &format!("01 {job_text} 01\"h\" 01 05"));
    golden(&Hello::Operator { job }, &format!("02 {job_text}"));
    let rival = Hello::Coordinator { job, newest: GENERATION };
    golden(&rival, &format!("04 {job_text} 0107"));
}

#[test]
fn greeting() {
    golden(&Greeting::Welcome, "00");
    golden(&Greeting::Refused { reason: "no".to_owned() }, "01 02\"no\"");
    golden(&Greeting::Over, "02");
    let joined = Greeting::Joined {
        incarnation: Incarnation::new(1),
        report_from: Step::new(9),
    };
    golden(&joined, "03 01 09");
    golden(&Greeting::Fenced, "04");
    golden(&Greeting::Leads { newest: GENERATION }, "05 0107");
}

#[test]
fn worker_messages() {
    let halted = WorkerMessage::Halted {
        generation: GENERATION,
        standing: standing(),
    };
    golden(&halted, &format!("00 0107 {STANDING} {TALLY}"));
    golden(&WorkerMessage::Ready { generation: GENERATION }, "01 0107");
    let progress = WorkerMessage::Progress {
        generation: GENERATION,
        step: Step::new(9),
        tally: tally(),
        moved: 5,
        pace: Some(Pace::new(Duration::from_micros(300))),
        reports: vec![StepReport {
            step: Step::new(8),
            samples: 64,
            sums: vec![1.5],
        }],
    };
    golden(
        &progress,
        &format!("02 0107 09 {TALLY} 05 01 fb2c01 01 08 40 01 000000000000f83f"),
    );
    let finished = WorkerMessage::Finished {
        generation: GENERATION,
        step: Step::new(10),
        hash: StateHash::new([0xee; 32]),
        results: vec![("loss".to_owned(), -2.0)],
        tally: tally(),
    };
    let hash = "ee".repeat(32);
    golden(
        &finished,
        &format!("03 0107 0a {hash} 01 04\"loss\" 00000000000000c0 {TALLY}"),
    );
    let broken = WorkerMessage::LinkBroken {
        generation: GENERATION,
        peer: WorkerId::new(5),
    };
    golden(&broken, "04 0107 05");
    let given_up = WorkerMessage::GivenUp { generation: GENERATION };
    golden(&given_up, "15 0107");
    golden(&WorkerMessage::Failed { reason: "é".to_owned() }, "11 02c3a9");
}

pub(super) const SNAPSHOT: SnapshotId = SnapshotId {
    generation: GENERATION,
    step: Step::new(9),
};

#[test]
fn a_worker_that_comes_or_goes() {
    let switched = WorkerMessage::Switched {
        generation: GENERATION,
        step: Step::new(9),
    };
    golden(&switched, "05 0107 09");
    let room_made = WorkerMessage::RoomMade { generation: GENERATION };
    golden(&room_made, "06 0107");
    let snapshotted = WorkerMessage::Snapshotted {
        snapshot: SNAPSHOT,
        shares: vec![(1, StateHash::new([0xee; 32])), (2, StateHash::new([0xdd; 32]))],
    };
    let (one, two) = ("ee".repeat(32), "dd".repeat(32));
    golden(&snapshotted, &format!("07 0107 09 02 01 {one} 02 {two}"));
    golden(&WorkerMessage::Dropped { snapshot: SNAPSHOT }, "08 0107 09");
    golden(&WorkerMessage::Hashing { snapshot: SNAPSHOT }, "12 0107 09");
    let caught_up = WorkerMessage::CaughtUp {
        snapshot: SNAPSHOT,
        step: Step::new(300),
    };
    golden(&caught_up, "0d 0107 09 fb2c01");
    let failed = WorkerMessage::CopyFailed {
        snapshot: SNAPSHOT,
        reason: "gone".to_owned(),
    };
    golden(&failed, "0e 0107 09 04\"gone\"");
    golden(
        &WorkerMessage::Leave {
            reason: "SIGTERM".to_owned(),
        },
        "0f 07\"SIGTERM\"",
    );
    golden(&WorkerMessage::Renew { request: vec![1, 2] }, "10 02 0102");
    golden(&WorkerMessage::Copying { snapshot: SNAPSHOT }, "13 0107 09");
}

#[test]
fn what_a_worker_tells_of_its_links() {
    let line = |kind, path| LinkLine {
        peer: WorkerId::new(5),
        kind,
        outgoing: Passed { links: 2, bytes: 300 },
        incoming: Passed { links: 1, bytes: 7 },
        path,
    };
    let path = LinkPath {
        sent_packets: 9,
        lost_packets: 3,
        round_trip: Duration::new(0, 8),
    };
    let report = LinkReport {
        generation: GENERATION,
        at: Duration::new(1, 2),
        lines: vec![line(LinkKind::SharedMemory, None), line(LinkKind::Quic, Some(path))],
        untold: 4,
    };
    let lines = "02  05 00 02fb2c01 0107 00  05 01 02fb2c01 0107 01 09 03 00 08";
    golden(&WorkerMessage::Links(report), &format!("14 0107 01 02 {lines} 04"));
    golden(&LinkKind::InProcess, "02");
    golden(&WorkerMessage::DeviceMemory(device_memory()), &format!("16 {DEVICE_MEMORY}"));
}

#[test]
fn coordinator_messages() {
    golden(&CoordinatorMessage::Halt { generation: GENERATION }, "00 0107");
    let close = |trailer| CoordinatorMessage::CloseWith {
        generation: GENERATION,
        trailer,
    };
    golden(&close(Trailer::Stop), "03 0107 01");
    golden(&close(Trailer::Switch(GENERATION)), "03 0107 03 0107");
    let complete = CoordinatorMessage::Complete {
        step: Step::new(10),
        hash: StateHash::new([0xee; 32]),
    };
    golden(&complete, &format!("0a 0a {}", "ee".repeat(32)));
    golden(&CoordinatorMessage::Dismiss { reason: "no".to_owned() }, "0b 02\"no\"");
}

#[test]
fn what_a_coordinator_says_of_joins_and_leaves() {
    let serve = |joiners, snapshot, shares| {
        CoordinatorMessage::Serve(Serve {
            joiners,
            snapshot,
            shares,
            sums_from: Step::new(4),
        })
    };
    let five = || vec![WorkerId::new(5)];
    let only = Joiners::Only([five(), vec![WorkerId::new(6)]].concat());
    golden(&serve(only, None, Shares::Keep), "04 00 02 05 06 00 00 04");
    let (came, gone) = (five(), vec![]);
    let changed = Joiners::Changed { came, gone };
    golden(
        &serve(changed, Some(SNAPSHOT), Shares::Drop),
        "04 01 01 05 00 01 0107 09 01 04",
    );
    let holder = MemberAddress {
        worker: WorkerId::new(5),
        address: "10.0.0.1:1".parse().unwrap(),
    };
    let copy = CoordinatorMessage::Copy(Box::new(Snapshot {
        id: SNAPSHOT,
        holders: vec![Some(holder), None],
        shares: vec![StateHash::new([0xee; 32]), StateHash::new([0xdd; 32])],
    }));
    let (one, two) = ("ee".repeat(32), "dd".repeat(32));
    golden(&copy, &format!("07 0107 09 02 01 05 00 0a000001 01 00 02 {one} {two}"));
    golden(&CoordinatorMessage::Released { step: Step::new(9) }, "08 09");
    golden(&CoordinatorMessage::Renewed { certificate: vec![1, 2] }, "09 02 0102");
}

#[test]
fn agents_and_trailers() {
    let worker = WorkerId::new(5);
    let certify = AgentMessage::Certify {
        worker,
        request: vec![1, 2],
    };
    golden(&certify, "00 05 02 0102");
    golden(&AgentMessage::ChildStarted { worker, pid: 300 }, "02 05 fb2c01");
    golden(&AgentMessage::CertifyDepot { request: vec![1, 2] }, "01 02 0102");
    let reason = || "spot".to_owned();
    golden(&AgentMessage::Leave { reason: reason() }, "03 04\"spot\"");
    golden(&AgentMessage::Renew { request: vec![1, 2] }, "04 02 0102");
    let exited = AgentMessage::ChildExited {
        worker,
        how: "signal 9".to_owned(),
        tally: Some(tally()),
        restarting: true,
    };
    golden(&exited, &format!("05 05 08\"signal 9\" 01 {TALLY} 01"));
    golden(&AgentMessage::Stay { reason: reason() }, "06 04\"spot\"");
    let moves = |motion| AgentMessage::ChildMotion { worker, motion };
    golden(&moves(Motion::Runs), "07 05 00");
    golden(&moves(Motion::Stopped), "07 05 01");
    golden(&AgentOrder::JobOver, "00");
    let certificate = vec![1, 2];
    golden(&AgentOrder::Certified { worker, certificate }, "01 05 02 0102");
    golden(&AgentOrder::DepotCertified { certificate: vec![3] }, "02 01 03");
    golden(&AgentOrder::Renewed { certificate: vec![3] }, "03 01 03");
    golden(&AgentOrder::Kill { worker }, "04 05");
    golden(&AgentOrder::Start { workers: 2 }, "05 02");
    golden(&Trailer::Continue, "00");
    golden(&Trailer::Stop, "01");
    golden(&Trailer::Snapshot, "02");
    golden(&Trailer::Switch(GENERATION), "03 0107");
}
