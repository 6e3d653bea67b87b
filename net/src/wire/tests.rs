//! What the codec refuses, and that nothing hostile makes it panic or take more than it may.

use std::time::Duration;

use proptest::prelude::*;
use sardana_protocol::checkpoint::{DepotAddress, DepotId, ManifestId, ManifestKey};
use sardana_protocol::codec::{CodecError, LARGEST_LIMIT, decode, encode};
use sardana_protocol::data::{DataFingerprint, DataHash, DataPart};
use sardana_protocol::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use sardana_protocol::limits::{
    AUXILIARY_NAME_BYTES, LINKS_TOLD, MAX_AUXILIARY, MAX_DATA_NAME_BYTES, MAX_DATA_PARTS, MAX_DEPOTS, MAX_GPU_BYTES,
    MAX_REPORTS, MAX_SHARDS, MAX_TEXT_BYTES, MAX_WORKERS, WIRE_VERSION,
};
use sardana_protocol::lineage::Lineage;
use sardana_protocol::memory::{DeviceMemory, GradientMemory};
use sardana_protocol::messages::{
    AgentMessage, AgentOrder, Call, CatchUp, CoordinatorMessage, Form, Greeting, Hello, HostHash, Introduction, Last,
    LinkKind, LinkLine, LinkPath, LinkReport, MemberAddress, MembersDigest, Passed, Peer, Restore, Ring, Seated, Standing,
    StepReport, Tally, WorkerHello, WorkerMessage,
};
use sardana_protocol::plan::{HopEnd, HopId, OrderedPart, Part, VisitPart};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

use super::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use super::{FrameError, read_frame_blocking, write_frame_blocking};
use crate::trust::Credentials;

const GENERATION: Generation = Generation::new(Incarnation::new(u64::MAX), u64::MAX);
const STEP: Step = Step::new(u64::MAX);
const LINEAGE: Lineage = Lineage {
    last: GENERATION,
    before: Some(GENERATION),
};

fn header(version: u16, reserved: u16, length: u32) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(reserved.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes
}

fn read(bytes: &[u8], limit: usize) -> Result<Option<WorkerMessage>, FrameError> {
    read_frame_blocking(&mut &bytes[..], limit)
}

fn largest_form() -> CoordinatorMessage {
    let end = HopEnd {
        hop: HopId::MAX,
        peer: Rank::new(MAX_WORKERS),
    };
    let visit = VisitPart {
        shards: ShardRange::new(MAX_SHARDS - 1, MAX_SHARDS),
        from: Some(end),
        to: Some(end),
    };
    let part = Part::Ordered(OrderedPart {
        visits: vec![visit; MAX_SHARDS as usize],
        sum_from: Some(end),
        sum_to: Some(end),
    });
    let rank = Rank::new(MAX_WORKERS);
    let member = MemberAddress {
        worker: WorkerId::new(u64::MAX),
        address: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(),
    };
    CoordinatorMessage::Form(Box::new(Form {
        generation: GENERATION,
        rank: Rank::new(MAX_WORKERS),
        world_size: MAX_WORKERS,
        digest: MembersDigest::new([0xff; 32]),
        peers: vec![Peer { rank, member }; MAX_WORKERS as usize],
        step: STEP,
        lineage: LINEAGE,
        first: part.clone(),
        steady: part,
        catch_up: CatchUp::State {
            from: Rank::new(MAX_WORKERS),
        },
        restore: Some(Box::new(Restore {
            key: ManifestKey {
                step: STEP,
                id: ManifestId::new([0xff; 32]),
            },
            depots: vec![
                DepotAddress {
                    depot: DepotId::new(u64::MAX),
                    certified: u64::MAX,
                    address: member.address,
                };
                MAX_DEPOTS
            ],
            members: vec![Peer { rank, member }; MAX_WORKERS as usize],
            readers: vec![Rank::new(MAX_WORKERS); MAX_WORKERS as usize],
        })),
        report_from: STEP,
        stop_at: Some(STEP),
        last: Last::Snapshot,
    }))
}

fn largest_standing() -> Standing {
    Standing {
        step: STEP,
        lineage: LINEAGE,
        kept: vec![ShardRange::new(MAX_SHARDS - 1, MAX_SHARDS); MAX_SHARDS as usize],
        sum: Some(STEP),
        stop_at: Some(STEP),
        tally: Tally {
            total: u64::MAX,
            step: STEP,
            this_step: u32::MAX,
            previous_step: u32::MAX,
        },
    }
}

fn largest_hello() -> Hello {
    let text = "x".repeat(MAX_TEXT_BYTES);
    let hash = StateHash::new([0xff; 32]);
    Hello::Worker(Box::new(WorkerHello {
        job: JobId::new([0xff; 16]),
        worker: WorkerId::new(u64::MAX),
        identity: JobIdentity {
            spec: JobSpec {
                name: text.clone(),
                seed: u64::MAX,
                shards: MAX_SHARDS,
                steps: STEP,
                samples: u64::MAX,
                batch: u64::MAX,
                last_batch: LastBatch::Short,
                order: Order::Exact,
                compression: Compression::None,
                data: DataFingerprint::new(vec![
                    DataPart {
                        name: "n".repeat(MAX_DATA_NAME_BYTES),
                        hash: DataHash::new([0xff; 32]),
                    };
                    MAX_DATA_PARTS
                ])
                .unwrap(),
            },
            state_zero: hash,
            fingerprint: Fingerprint {
                program: hash,
                tensors: hash,
                settings: hash,
                processor: text.clone(),
                device: text.clone(),
                libraries: text,
                probe: hash,
            },
        },
        introduction: Introduction {
            generation: GENERATION,
            incarnation: Incarnation::new(u64::MAX),
            seat: Some(Seated {
                rank: Rank::new(MAX_WORKERS),
                world_size: MAX_WORKERS,
                digest: MembersDigest::new([0xff; 32]),
                peers: vec![(Rank::new(MAX_WORKERS), WorkerId::new(u64::MAX)); MAX_WORKERS as usize],
                shards: ShardRange::new(MAX_SHARDS, MAX_SHARDS),
                ring: Ring::Whole,
            }),
            training: false,
            standing: largest_standing(),
        },
        shard_capacity: MAX_SHARDS,
        memory: GradientMemory::unbounded(1),
        address: "[ffff::1]:65535".parse().unwrap(),
        auxiliary: vec!["x".repeat(AUXILIARY_NAME_BYTES); MAX_AUXILIARY],
        call: Call {
            process: [0xff; 16],
            count: u64::MAX,
        },
        device_memory: Some(largest_device_memory()),
        host_hash: Some(HostHash::new([0xff; 16])),
    }))
}

fn largest_device_memory() -> DeviceMemory {
    let most = DeviceMemory {
        held: u64::MAX,
        peak: u64::MAX,
        needed: u64::MAX,
        total: u64::MAX,
        sharers: u32::MAX,
        pinned: u64::MAX,
        ..DeviceMemory::default()
    };
    most.named(&"x".repeat(MAX_GPU_BYTES))
}

fn largest_line() -> LinkLine {
    let passed = Passed {
        links: u32::MAX,
        bytes: u64::MAX,
    };
    LinkLine {
        peer: WorkerId::new(u64::MAX),
        kind: LinkKind::Quic,
        outgoing: passed,
        incoming: passed,
        path: Some(LinkPath {
            sent_packets: u64::MAX,
            lost_packets: u64::MAX,
            round_trip: Duration::MAX,
        }),
    }
}

#[test]
fn the_largest_messages_fit_their_frames() {
    encode(&largest_hello(), HELLO_FRAME_BYTES).unwrap();
    encode(&largest_form(), CONTROL_FRAME_BYTES).unwrap();
    let report = StepReport {
        step: STEP,
        samples: u64::MAX,
        sums: vec![1.0; MAX_AUXILIARY],
    };
    let progress = WorkerMessage::Progress {
        generation: GENERATION,
        step: STEP,
        tally: largest_standing().tally,
        moved: u64::MAX,
        pace: Some(Pace::new(Duration::MAX)),
        reports: vec![report; MAX_REPORTS],
    };
    encode(&progress, CONTROL_FRAME_BYTES).unwrap();
    let links = WorkerMessage::Links(LinkReport {
        generation: GENERATION,
        at: Duration::MAX,
        lines: vec![largest_line(); LINKS_TOLD],
        untold: u32::MAX,
    });
    encode(&links, CONTROL_FRAME_BYTES / 8).unwrap();
    encode(&WorkerMessage::DeviceMemory(largest_device_memory()), CONTROL_FRAME_BYTES / 8).unwrap();
    let finished = WorkerMessage::Finished {
        generation: GENERATION,
        step: STEP,
        hash: StateHash::new([0xff; 32]),
        results: vec![("x".repeat(MAX_TEXT_BYTES), 1.0); MAX_AUXILIARY],
        tally: largest_standing().tally,
    };
    encode(&finished, CONTROL_FRAME_BYTES).unwrap();
}

#[test]
fn frames_follow_each_other_to_a_clean_end() {
    let messages = [
        WorkerMessage::Ready { generation: GENERATION },
        WorkerMessage::Failed { reason: "no".to_owned() },
    ];
    let mut pipe = Vec::new();
    for message in &messages {
        write_frame_blocking(&mut pipe, message, CONTROL_FRAME_BYTES).unwrap();
    }
    let mut pipe = &pipe[..];
    for message in messages {
        assert_eq!(read_frame_blocking(&mut pipe, CONTROL_FRAME_BYTES).unwrap(), Some(message));
    }
    assert_eq!(
        read_frame_blocking::<WorkerMessage>(&mut pipe, CONTROL_FRAME_BYTES).unwrap(),
        None
    );
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let error = read(&header(WIRE_VERSION + 1, 0, 3), 16).unwrap_err();
    assert!(matches!(error, FrameError::Version { ours: WIRE_VERSION, theirs } if theirs == WIRE_VERSION + 1));
    let message = error.to_string();
    let versions = format!("version {}, expected {WIRE_VERSION}", WIRE_VERSION + 1);
    assert!(message.contains(&versions) && message.contains("same release"), "{message}");
    let error = read(&header(WIRE_VERSION, 0x0a0d, 3), 16).unwrap_err();
    assert!(matches!(error, FrameError::Header { reserved: 0x0a0d }), "{error}");
}

#[test]
fn a_length_beyond_the_limit_is_refused_from_the_header_alone() {
    // Nothing follows the headers: reading on would end in `Truncated`.
    for length in [17, 1 << 31, u32::MAX] {
        let error = read(&header(WIRE_VERSION, 0, length), 16).unwrap_err();
        assert!(
            matches!(error, FrameError::Payload(CodecError::TooLong { limit: 16, length: found }) if found == length as usize),
            "{error}"
        );
    }
    let error = read(&header(WIRE_VERSION, 0, u32::MAX), usize::MAX).unwrap_err();
    assert!(
        matches!(
            error,
            FrameError::Payload(CodecError::TooLong {
                limit: LARGEST_LIMIT,
                ..
            })
        ),
        "no caller lifts the last limit: {error}"
    );
}

#[test]
fn a_length_inside_the_payload_is_not_believed() {
    for length in [1_u64 << 31, 1 << 63, u64::MAX] {
        // `Failed` with a reason, `Progress` with reports: both as long as `length` says.
        let text = [&[5, 0xfd][..], &length.to_le_bytes(), b"x"].concat();
        let list = [&[2, 1, 7, 9, 0, 0, 0, 0, 0xfd][..], &length.to_le_bytes(), &[1]].concat();
        for payload in [text, list] {
            let mut frame = header(WIRE_VERSION, 0, payload.len() as u32);
            frame.extend(payload);
            let error = read(&frame, CONTROL_FRAME_BYTES).unwrap_err();
            assert!(matches!(error, FrameError::Payload(CodecError::Malformed { .. })), "{error}");
        }
    }
}

#[test]
fn what_is_too_long_is_not_written() {
    let message = WorkerMessage::Failed { reason: "x".repeat(100) };
    let mut pipe = Vec::new();
    let error = write_frame_blocking(&mut pipe, &message, 101).unwrap_err();
    assert!(
        matches!(error, FrameError::Payload(CodecError::TooLong { length: 102, limit: 101 })),
        "{error}"
    );
    assert!(pipe.is_empty(), "not even the header");
    write_frame_blocking(&mut pipe, &message, 102).unwrap();
    assert_eq!(read(&pipe, 102).unwrap(), Some(message));
}

#[test]
fn every_cut_and_every_addition_is_noticed() {
    let message = WorkerMessage::Halted {
        generation: GENERATION,
        standing: Standing {
            kept: vec![ShardRange::new(1, 300); 3],
            ..largest_standing()
        },
    };
    let mut frame = Vec::new();
    write_frame_blocking(&mut frame, &message, CONTROL_FRAME_BYTES).unwrap();
    for end in 1..frame.len() {
        let error = read(&frame[..end], CONTROL_FRAME_BYTES).unwrap_err();
        assert!(matches!(error, FrameError::Truncated { .. }), "cut at {end}: {error}");
    }
    let payload = &frame[8..];
    for end in 0..payload.len() {
        assert!(
            decode::<WorkerMessage>(&payload[..end], CONTROL_FRAME_BYTES).is_err(),
            "cut at {end}"
        );
    }
    let longer = [payload, &[0, 0]].concat();
    let error = decode::<WorkerMessage>(&longer, CONTROL_FRAME_BYTES).unwrap_err();
    assert!(matches!(error, CodecError::Trailing { extra: 2 }), "{error}");
}

/// Decodes `bytes` as everything that may come over a stream or pipe. What decodes must encode to at most as much again.
fn swallow(bytes: &[u8]) {
    fn one<T: serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) {
        let mut framed = header(WIRE_VERSION, 0, bytes.len() as u32);
        framed.extend(bytes);
        let decoded = decode::<T>(bytes, CONTROL_FRAME_BYTES).ok();
        let read = read_frame_blocking::<T>(&mut &framed[..], CONTROL_FRAME_BYTES).ok().flatten();
        assert_eq!(decoded.is_some(), read.is_some());
        if let Some(value) = decoded {
            // A number may have come in a longer spelling than ours, never in a shorter one.
            assert!(encode(&value, CONTROL_FRAME_BYTES).unwrap().len() <= bytes.len());
        }
    }
    one::<Hello>(bytes);
    one::<Greeting>(bytes);
    one::<WorkerMessage>(bytes);
    one::<CoordinatorMessage>(bytes);
    one::<AgentMessage>(bytes);
    one::<AgentOrder>(bytes);
    one::<Credentials>(bytes);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        swallow(&bytes);
        let _ = read(&bytes, CONTROL_FRAME_BYTES);
    }

    #[test]
    fn damaged_messages_never_panic(which in 0..3_usize, flips in prop::collection::vec((any::<u16>(), 0..8_u8), 1..4), cut: u16) {
        let mut bytes = match which {
            0 => encode(&largest_hello(), HELLO_FRAME_BYTES),
            1 => encode(&largest_form(), CONTROL_FRAME_BYTES),
            _ => encode(
                &WorkerMessage::Halted { generation: GENERATION, standing: largest_standing() },
                CONTROL_FRAME_BYTES,
            ),
        }
        .unwrap();
        bytes.truncate(usize::from(cut).max(1));
        for (at, bit) in flips {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= 1 << bit;
        }
        swallow(&bytes);
    }
}
