//! The same as in `golden`, of what operators ask and see.

use std::time::Duration;

use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::messages::{LinkKind, LinkPath, StepReport};
use sardana_protocol::status::{
    AgentStatus, CheckpointsView, DepotView, DeviceView, Doing, JobStatus, KindView, LinkView, LinksView, OperatorAnswer,
    OperatorRequest, Overview, Recording, SavedView, Stage, WorkerView,
};
use sardana_protocol::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

use super::golden::{DEVICE_MEMORY, device_memory, golden};

const GENERATION: Generation = Generation::new(Incarnation::new(1), 7);

#[test]
fn what_an_operator_asks() {
    let whom = || "h".to_owned();
    golden(&OperatorRequest::Status, "00");
    golden(&OperatorRequest::Drain { whom: whom() }, "01 01\"h\"");
    golden(&OperatorRequest::Kill { whom: whom() }, "02 01\"h\"");
    golden(&OperatorRequest::Scale { workers: 4 }, "03 04");
    golden(&OperatorRequest::Stop, "04");
    golden(&OperatorAnswer::Done { what: whom() }, "01 01\"h\"");
    golden(&OperatorAnswer::Refused { reason: whom() }, "02 01\"h\"");
}

fn saved_view() -> CheckpointsView {
    CheckpointsView {
        newest: Some(SavedView {
            step: Step::new(7),
            ago: Duration::new(2, 0),
            placed: 3,
            whole: 1,
        }),
        writing: Some((Step::new(8), Duration::new(0, 6))),
        replicas: 2,
        committed: 11,
        given_up: 12,
        merged: 13,
        largest_lag: 14,
        depots: vec![DepotView {
            depot: DepotId::new(5),
            host: "h".to_owned(),
            address: "10.0.0.1:1".parse().unwrap(),
            checkpoints: 4,
        }],
    }
}

fn links_view() -> LinksView {
    LinksView {
        kinds: vec![KindView {
            kind: LinkKind::Quic,
            links: 2,
            sent: 300,
            rate: 1.5,
            sent_packets: 9,
            lost_packets: 3,
        }],
        lines: vec![LinkView {
            from: WorkerId::new(5),
            to: WorkerId::new(6),
            kind: LinkKind::SharedMemory,
            links: 2,
            sent: 300,
            received: Some(7),
            rate: Some(-2.0),
            path: Some(LinkPath {
                sent_packets: 9,
                lost_packets: 3,
                round_trip: Duration::new(0, 8),
            }),
        }],
        unlisted: 10,
        untold: 11,
    }
}

const LINKS_VIEW: &str = "01 01 02fb2c01 000000000000f83f 0903 \
    01 05 06 00 02 fb2c01 0107 01 00000000000000c0 01 0903 0008  0a 0b";

#[test]
fn what_an_operator_sees() {
    let view = WorkerView {
        worker: WorkerId::new(5),
        address: "10.0.0.1:1".parse().unwrap(),
        rank: Some(Rank::new(2)),
        shards: Some(ShardRange::new(0, 3)),
        pace: Some(Pace::new(Duration::from_micros(9))),
        doing: Doing::Training,
        leaving: true,
        step: Step::new(9),
        computed: 70,
        silent: Duration::from_millis(1_000),
    };
    let status = JobStatus {
        job: JobId::new([0xaa; 16]),
        spec: None,
        auxiliary: vec!["loss".to_owned()],
        overview: Overview {
            stage: Stage::Running,
            generation: GENERATION,
            step: Step::new(9),
            workers: vec![view],
            checkpoints: Some(saved_view()),
        },
        last: Some(StepReport {
            step: Step::new(8),
            samples: 64,
            sums: vec![1.5],
        }),
        steps_per_second: -2.0,
        age: Duration::new(3, 7),
        agents: vec![AgentStatus {
            host: "h".to_owned(),
            address: "10.0.0.1:1".parse().unwrap(),
            children: vec![(WorkerId::new(5), Some(300)), (WorkerId::new(6), None)],
        }],
        round_trips: vec![(WorkerId::new(5), Duration::new(0, 8))],
        events: vec![(Duration::new(1, 0), "x".to_owned())],
        recording: Recording::Failing {
            since: Duration::new(2, 1),
            reason: "y".to_owned(),
        },
        links: links_view(),
        devices: vec![DeviceView {
            device: "g".to_owned(),
            workers: vec![WorkerId::new(5), WorkerId::new(6)],
        }],
        device_memory: vec![(WorkerId::new(5), device_memory())],
    };
    let address = "00 0a000001 01";
    let text = format!(
        "00 {} 00 01 04\"loss\" \
         03 0107 09 01 05 {address} 0102 01 0003 01 09 02 01 09 46 01 00 \
         01 01 07 02 00 03 01 01 08 00 06 02 0b 0c 0d 0e 01 05 01\"h\" {address} 04 \
         01 08 40 01 000000000000f83f 00000000000000c0 03 07 \
         01 01\"h\" {address} 02 05 01 fb2c01 06 00 \
         01 05 00 08 01 01 00 01\"x\" 02 02 01 01\"y\" {LINKS_VIEW} \
         01 01\"g\" 02 05 06 01 05 {DEVICE_MEMORY}",
        "aa".repeat(16)
    );
    golden(&OperatorAnswer::Status(Box::new(status)), &text);
}

#[test]
fn what_a_worker_is_doing() {
    for (index, doing) in [
        Doing::Waiting,
        Doing::Answering,
        Doing::Training,
        Doing::Standby,
        Doing::Copying,
        Doing::Following,
        Doing::Finished,
        Doing::Calling,
    ]
    .iter()
    .enumerate()
    {
        golden(doing, &format!("{index:02x}"));
    }
}
