//! The screen of a job, without a terminal.

use std::net::SocketAddr;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, JobSpec, LastBatch, Order};
use sardana_protocol::messages::{LinkKind, LinkPath, StepReport};
use sardana_protocol::status::{
    AgentStatus, CheckpointsView, DepotView, Doing, JobStatus, KindView, LinkView, LinksView, Overview, Recording,
    SavedView, Stage, WorkerView,
};
use sardana_protocol::words::{Generation, Incarnation, JobId, Pace, Rank, ShardRange, Step, WorkerId};

use super::{History, draw};
use crate::operator::{LinksShown, json, table as shown_table};

fn saved(address: SocketAddr) -> CheckpointsView {
    CheckpointsView {
        newest: Some(SavedView {
            step: Step::new(100),
            ago: Duration::from_secs(2),
            placed: 1,
            whole: 1,
        }),
        writing: Some((Step::new(118), Duration::from_millis(6))),
        replicas: 2,
        committed: 7,
        given_up: 1,
        merged: 3,
        largest_lag: 4,
        depots: vec![DepotView {
            depot: DepotId::new(5),
            host: "be\x07ta".to_owned(),
            address,
            checkpoints: 3,
        }],
    }
}

pub(super) fn table(status: &JobStatus) -> String {
    shown_table(status, LinksShown::Worst)
}

/// From the first worker to the second through memory, and from the third, which has no rank, to the first over QUIC.
fn linked() -> LinksView {
    let line = |from: u64, to: u64, kind, path| LinkView {
        from: WorkerId::new(from << 48),
        to: WorkerId::new(to << 48),
        kind,
        links: 2,
        sent: 3 << 20,
        received: None,
        rate: Some(1_536.0),
        path,
    };
    let path = LinkPath {
        sent_packets: 400,
        lost_packets: 6,
        round_trip: Duration::from_micros(700),
    };
    let sum = |kind, sent_packets, lost_packets| KindView {
        kind,
        links: 2,
        sent: 3 << 20,
        rate: 1_536.0,
        sent_packets,
        lost_packets,
    };
    LinksView {
        kinds: vec![sum(LinkKind::SharedMemory, 0, 0), sum(LinkKind::Quic, 400, 6)],
        lines: vec![
            line(0xc3, 0xa1, LinkKind::Quic, Some(path)),
            line(0xa1, 0xb2, LinkKind::SharedMemory, None),
        ],
        unlisted: 0,
        untold: 0,
    }
}

pub(super) fn status() -> JobStatus {
    let address = SocketAddr::from(([127, 0, 0, 1], 4_000));
    let worker = |id: u64, rank: Option<u32>, doing| WorkerView {
        worker: WorkerId::new(id << 48),
        address,
        rank: rank.map(Rank::new),
        shards: rank.map(|rank| ShardRange::new(rank * 4, rank * 4 + 4)),
        pace: rank.map(|rank| Pace::new(Duration::from_micros(2_500 * (1 + u64::from(rank))))),
        doing,
        leaving: id == 0xc3,
        step: Step::new(120),
        computed: 960,
        silent: Duration::from_millis(12),
    };
    JobStatus {
        job: JobId::new([7; 16]),
        spec: Some(JobSpec {
            name: "dig\x1b[31mits".to_owned(),
            seed: u64::MAX,
            shards: 8,
            steps: Step::new(1_000),
            samples: 64,
            batch: 16,
            last_batch: LastBatch::Short,
            order: Order::Exact,
            compression: Compression::None,
            data: DataFingerprint::default(),
        }),
        auxiliary: vec!["loss".to_owned()],
        overview: Overview {
            stage: Stage::Running,
            generation: Generation::new(Incarnation::new(1), 4),
            step: Step::new(120),
            workers: vec![
                worker(0xa1, Some(0), Doing::Training),
                worker(0xb2, Some(1), Doing::Training),
                worker(0xc3, None, Doing::Waiting),
                worker(0xd4, None, Doing::Copying),
            ],
            checkpoints: Some(saved(address)),
        },
        last: Some(StepReport {
            step: Step::new(119),
            samples: 16,
            sums: vec![8.0, 3.0],
        }),
        steps_per_second: 12.5,
        age: Duration::from_secs(63),
        agents: vec![AgentStatus {
            host: "alpha".to_owned(),
            address,
            children: vec![(WorkerId::new(0xa1 << 48), Some(77)), (WorkerId::new(0xb2 << 48), None)],
        }],
        round_trips: vec![(WorkerId::new(0xa1 << 48), Duration::from_micros(300))],
        events: vec![(Duration::from_secs(12), "w00d4 joined\r\nat s100".to_owned())],
        recording: Recording::On,
        links: linked(),
        devices: vec![],
        device_memory: vec![],
    }
}

/// An empty job.
fn nothing() -> JobStatus {
    let status = status();
    JobStatus {
        spec: None,
        auxiliary: vec![],
        last: None,
        agents: vec![],
        round_trips: vec![],
        events: vec![],
        links: LinksView::default(),
        overview: Overview {
            stage: Stage::Gathering,
            step: Step::ZERO,
            workers: vec![],
            checkpoints: None,
            ..status.overview
        },
        ..status
    }
}

fn screen(status: &JobStatus, note: Option<&str>, width: u16, height: u16) -> String {
    let mut history = History::default();
    let mut earlier = status.clone();
    if let Some(last) = &mut earlier.last {
        last.step = Step::new(118);
        last.sums[0] = 16.0;
    }
    history.note(&earlier);
    history.note(status);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, status, &history, note)).unwrap();
    terminal.backend().to_string()
}

pub(super) fn holds(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is missing from\n{text}");
    }
}

#[test]
fn a_screen_shows_ring_sums_agents_and_events() {
    let text = screen(&status(), None, 160, 30);
    holds(
        &text,
        &[
            "running in g1.4",
            "s120 of s1000",
            "12 %",
            "4 workers, in ring order",
            "w00a1",
            "0..4",
            "2.50 ms",
            "a shard",
            "training",
        ],
    );
    holds(
        &text,
        &[
            "leaving",
            "copying",
            "12.5 steps/s",
            "loss 0.500000",
            "sum 1 0.187500",
            "alpha: 2 workers",
            "300 µs",
        ],
    );
    holds(&text, &["12 s ago  w00d4 joined  at s100", "q or Esc", "█"]);
    holds(
        &text,
        &[
            "checkpoints: s100 saved 2 s ago, whole on 1 of 1 host (2 asked for); s118 being written for 6 ms",
            "7 committed, 3 merged, 1 given up, lag at most 4 steps",
            "1 agent, 1 checkpoint actor",
            "checkpoint actor of be ta",
        ],
    );
    let place = |word: &str| text.find(word).unwrap();
    assert!(place("w00a1") < place("w00b2") && place("w00b2") < place("w00c3"), "{text}");
    assert!(!text.contains('\x1b'));
    let text = screen(&status(), Some("no coordinator answered"), 160, 30);
    holds(&text, &["not up to date: no coordinator answered"]);
}

#[test]
fn any_screen_and_any_job_can_be_drawn() {
    for (width, height) in [(1, 1), (3, 40), (20, 4), (80, 24), (300, 100)] {
        screen(&status(), None, width, height);
        screen(&nothing(), Some("x"), width, height);
    }
    holds(&screen(&nothing(), None, 120, 24), &["no worker has come yet", "0 workers"]);
    let mut odd = status();
    odd.last = Some(StepReport {
        step: Step::ZERO,
        samples: 0,
        sums: vec![f64::NAN, f64::INFINITY],
    });
    odd.steps_per_second = f64::NAN;
    odd.overview.step = Step::new(u64::MAX);
    screen(&odd, None, 120, 24);
    holds(&table(&odd), &["loss NaN"]);
    assert_eq!(json(&odd)["means"]["loss"], serde_json::Value::Null);
}

#[test]
fn a_group_has_no_bar_since_its_work_has_no_steps() {
    let mut group = status();
    group.spec = Some(JobSpec::group("mine".to_owned()));
    let bar = |status: &JobStatus| screen(status, None, 120, 24).contains('%');
    assert!(bar(&status()) && !bar(&group), "{}", screen(&group, None, 120, 24));
}

#[test]
fn a_table_is_aligned_and_plain() {
    let text = table(&status());
    holds(
        &text,
        &[
            "running in g1.4, s120 of s1000 (12 %), 12.5 steps/s",
            "up 1 min 3 s",
            "1 min 10 s to go",
            "loss 0.500000",
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    let column = |word: &str, line: &str| line.find(word).unwrap_or_else(|| panic!("{word} is missing from {line}"));
    let head = lines.iter().find(|line| line.starts_with("rank")).unwrap();
    let first = lines.iter().find(|line| line.starts_with("r0")).unwrap();
    assert_eq!(column("worker", head), column("w00a1", first));
    assert_eq!(column("a shard", head), column("2.50 ms", first));
    assert_eq!(column("doing", head), column("training", first));
    assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
    holds(
        &text,
        &[
            "; s118 being written",
            "be ta at 127.0.0.1:4000, 3 checkpoints, d0000000000000005",
        ],
    );
    assert!(!table(&nothing()).contains("checkpoints"));
    let mut bare = status();
    bare.overview.checkpoints = bare.overview.checkpoints.map(|view| CheckpointsView {
        newest: None,
        writing: None,
        depots: vec![],
        ..view
    });
    holds(
        &table(&bare),
        &["checkpoints: none yet; 7 committed", "NO CHECKPOINT ACTOR IS CONNECTED"],
    );
    holds(&table(&nothing()), &["no worker has come yet", "no workers"]);
}

#[test]
fn links_are_shown_the_worst_first_and_all_where_that_is_wanted() {
    let text = table(&status());
    let sums = "links: 2 shared memory, 3.00 MiB sent, 1.50 KiB/s; 2 QUIC, 3.00 MiB sent, 1.50 KiB/s, 6 of 400 packets lost";
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("links")).collect();
    assert_eq!(lines[0], sums);
    let cells = |line: &str| -> Vec<String> {
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        cells(lines[1]),
        ["from", "to", "kind", "links", "sent", "rate", "lost", "trip"]
    );
    let over_quic = [
        "w00c3000000000000",
        "r0",
        "QUIC",
        "2",
        "3.00 MiB",
        "1.50 KiB/s",
        "6 (1.50 %)",
        "700 µs",
    ];
    assert_eq!(cells(lines[2]), over_quic);
    assert_eq!(
        cells(lines[3]),
        ["r0", "r1", "shared memory", "2", "3.00 MiB", "1.50 KiB/s", "-", "-"]
    );
    assert_eq!(lines[4], "", "there are no more");

    let mut many = status();
    many.links.lines = vec![many.links.lines[1]; 2_000];
    many.links.unlisted = 3;
    let of_links = |text: &str| text.lines().filter(|line| line.contains("  shared memory  ")).count();
    let (worst, all) = (table(&many), shown_table(&many, LinksShown::All));
    assert_eq!((of_links(&worst), of_links(&all)), (8, 2_000));
    holds(&worst, &["1992 more lines are not as bad: --links shows them"]);
    holds(&all, &["3 more lines are not as bad, and too many to be told"]);
    assert!(!table(&nothing()).contains("links"));
    let screen = screen(&status(), None, 240, 40);
    holds(&screen, &["6 of 400 packets lost", "6 (1.50 %)", "shared memory", "700 µs"]);
    let mut odd = status();
    odd.links.lines[0].rate = Some(f64::NAN);
    holds(&table(&odd), &["0 B/s"]);
}

#[test]
fn json_says_the_same_to_programs() {
    let found = json(&status());
    assert_eq!(found["step"], 120);
    assert_eq!(found["spec"]["seed"], u64::MAX.to_string());
    assert_eq!(found["means"]["loss"], 0.5);
    assert_eq!(found["workers"][0]["worker"], "w00a1000000000000");
    assert_eq!(found["workers"][0]["shards"], serde_json::json!([0, 4]));
    assert_eq!(found["workers"][0]["ms_per_shard"], 2.5);
    assert_eq!(found["workers"][2]["ms_per_shard"], serde_json::Value::Null);
    assert_eq!(found["workers"][0]["pid"], 77);
    assert_eq!(found["workers"][2]["rank"], serde_json::Value::Null);
    assert_eq!(found["workers"][2]["leaving"], true);
    assert_eq!(found["agents"][0]["host"], "alpha");
    assert_eq!(found["links"]["kinds"][1]["lost_packets"], 6);
    assert_eq!(found["links"]["lines"][0]["kind"], "QUIC");
    assert_eq!(found["links"]["lines"][0]["round_trip_ms"], 0.7);
    assert_eq!(found["links"]["lines"][1]["to"], "w00b2000000000000");
    assert_eq!(found["links"]["lines"][1]["sent_bytes"], 3 << 20);
    assert_eq!(found["links"]["lines"][1]["lost_packets"], serde_json::Value::Null);
    assert_eq!(found["checkpoints"]["newest"]["step"], 100);
    assert_eq!(found["checkpoints"]["largest_lag_steps"], 4);
    assert_eq!(found["checkpoints"]["depots"][0]["checkpoints"], 3);
    assert_eq!(json(&nothing())["checkpoints"], serde_json::Value::Null);
    assert_eq!(json(&nothing())["spec"], serde_json::Value::Null);
}
