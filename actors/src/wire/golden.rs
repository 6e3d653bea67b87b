//! The bytes of every message, written down by hand: a change of one is a change of the wire format and needs a new version.

use sardana_protocol::job::{Fingerprint, JobIdentity, JobSpec, Order};
use sardana_protocol::messages::{
    AgentHello, AgentMessage, AgentOrder, CatchUp, CoordinatorMessage, Form, Greeting, Hello, MemberAddress, Standing,
    StepReport, Tally, Trailer, Visit, WorkerHello, WorkerMessage,
};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Rank, ShardRange, Step, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::CONTROL_FRAME_BYTES;
use super::{decode, encode, write_frame_blocking};

const GENERATION: Generation = Generation::new(Incarnation::new(1), 7);

/// Checks that `value` is exactly the bytes in `text`: two hex digits each, anything in quotes as it is, spaces ignored.
fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
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
        kept: vec![ShardRange::new(0, 2), ShardRange::new(5, 6)],
        sum: Some(Step::new(8)),
        stop_at: None,
        tally: tally(),
    }
}

const STANDING: &str = "09  02 0002 0506  0108  00";

#[test]
fn a_frame() {
    let mut frame = Vec::new();
    write_frame_blocking(&mut frame, &WorkerMessage::Ready { generation: GENERATION }, 16).unwrap();
    assert_eq!(frame, bytes("0100 0000 03000000  01 01 07"));
}

#[test]
fn hello() {
    let job = JobId::new([0xaa; 16]);
    let hash = StateHash::new([0x5c; 32]);
    let hello = WorkerHello {
        job,
        worker: WorkerId::new(0x0123_4567_89ab_cdef),
        identity: JobIdentity {
            spec: JobSpec {
                name: "ring".to_owned(),
                seed: 250,
                shards: 251,
                steps: Step::new(65_536),
                samples: 1 << 32,
                batch: 64,
                order: Order::Fast,
            },
            state_zero: hash,
            fingerprint: Fingerprint {
                program: hash,
                tensors: hash,
                processor: "x".to_owned(),
                device: "cpu".to_owned(),
                libraries: String::new(),
                probe: hash,
            },
        },
        generation: GENERATION,
        rank: Some(Rank::new(2)),
        world_size: 3,
        training: true,
        standing: standing(),
        shard_capacity: 16,
        address: "127.0.0.1:4433".parse().unwrap(),
        auxiliary: vec!["loss".to_owned()],
    };
    let (job_text, hash_text) = ("aa".repeat(16), "5c".repeat(32));
    let text = format!(
        "00 {job_text} fd efcdab8967452301 \
         04\"ring\" fa fbfb00 fc00000100 fd0000000001000000 40 01 \
         {hash_text} {hash_text} {hash_text} 01\"x\" 03\"cpu\" 00 {hash_text} \
         0107 0102 03 01 {STANDING} {TALLY} 10 00 7f000001 fb5111 01 04\"loss\""
    );
    golden(&Hello::Worker(Box::new(hello)), &text);
    let agent = AgentHello {
        job,
        host: "h".to_owned(),
        children: vec![WorkerId::new(5)],
    };
    golden(&Hello::Agent(agent), &format!("01 {job_text} 01\"h\" 01 05"));
    golden(&Hello::Operator { job }, &format!("02 {job_text}"));
}

#[test]
fn greeting() {
    golden(&Greeting::Welcome, "00");
    golden(&Greeting::Refused { reason: "no".to_owned() }, "01 02\"no\"");
    golden(&Greeting::Over, "02");
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
        reports: vec![StepReport {
            step: Step::new(8),
            samples: 64,
            sums: vec![1.5],
        }],
    };
    golden(&progress, &format!("02 0107 09 {TALLY} 01 08 40 01 000000000000f83f"));
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
    golden(&WorkerMessage::Failed { reason: "é".to_owned() }, "05 02c3a9");
}

#[test]
fn coordinator_messages() {
    golden(&CoordinatorMessage::Halt { generation: GENERATION }, "00 0107");
    let visit = |rank, start, end| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(start, end),
    };
    let form = |catch_up| {
        CoordinatorMessage::Form(Box::new(Form {
            generation: GENERATION,
            rank: Rank::new(1),
            members: vec![
                MemberAddress {
                    worker: WorkerId::new(5),
                    address: "10.0.0.1:1".parse().unwrap(),
                },
                MemberAddress {
                    worker: WorkerId::new(6),
                    address: "[::1]:2".parse().unwrap(),
                },
            ],
            step: Step::new(9),
            first: vec![visit(0, 0, 3), visit(1, 3, 8), visit(0, 8, 9)],
            steady: vec![visit(0, 0, 4), visit(1, 4, 9)],
            catch_up,
            report_from: Step::new(4),
            stop_at: Some(Step::new(12)),
        }))
    };
    let head = "01 0107 01 02 05 00 0a000001 01 06 01 00000000000000000000000000000001 02 \
                09 03 000003 010308 000809 02 000004 010409";
    golden(&form(CatchUp::None), &format!("{head} 00 04 010c"));
    golden(&form(CatchUp::Sum { from: Rank::new(0) }), &format!("{head} 0100 04 010c"));
    golden(&form(CatchUp::State { from: Rank::new(0) }), &format!("{head} 0200 04 010c"));
    golden(
        &CoordinatorMessage::CloseWith {
            generation: GENERATION,
            trailer: sardana_protocol::messages::Trailer::Stop,
        },
        "03 0107 01",
    );
    let complete = CoordinatorMessage::Complete {
        step: Step::new(10),
        hash: StateHash::new([0xee; 32]),
    };
    golden(&complete, &format!("03 0a {}", "ee".repeat(32)));
    golden(&CoordinatorMessage::Dismiss { reason: "no".to_owned() }, "04 02\"no\"");
}

#[test]
fn agents_and_trailers() {
    let exited = AgentMessage::ChildExited {
        worker: WorkerId::new(5),
        how: "signal 9".to_owned(),
        tally: Some(tally()),
        restarting: true,
    };
    golden(&exited, &format!("00 05 08\"signal 9\" 01 {TALLY} 01"));
    golden(&AgentOrder::JobOver, "00");
    golden(&Trailer::Continue, "00");
    golden(&Trailer::Stop, "01");
}
