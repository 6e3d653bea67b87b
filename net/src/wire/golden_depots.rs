//! The same as in `golden`, of messages about checkpoints.

use sardana_protocol::checkpoint::{
    Condition, DepotAddress, DepotId, Head, ManifestId, ManifestKey, Part, PieceHash, Placing,
};
use sardana_protocol::data::DataHash;
use sardana_protocol::job::Task;
use sardana_protocol::messages::{
    CoordinatorMessage, DepotHello, DepotMessage, DepotOrder, Hello, MemberAddress, Peer, Restore, Save, WorkerMessage,
};
use sardana_protocol::state::{StateHash, StateSize};
use sardana_protocol::words::{Generation, Incarnation, JobId, Rank, Step, WorkerId};

use super::golden::{SNAPSHOT, golden};

const GENERATION: Generation = Generation::new(Incarnation::new(1), 7);

fn piece(byte: u8) -> PieceHash {
    PieceHash::new([byte; 32])
}

fn key() -> ManifestKey {
    ManifestKey {
        step: Step::new(9),
        id: ManifestId::new([0xab; 32]),
    }
}

fn key_text() -> String {
    format!("09 {}", "ab".repeat(32))
}

fn depots() -> Vec<DepotAddress> {
    vec![DepotAddress {
        depot: DepotId::new(251),
        certified: 8,
        address: "10.0.0.1:1".parse().unwrap(),
    }]
}

const DEPOTS: &str = "01 fbfb00 08 00 0a000001 01";

pub(super) fn restore() -> Restore {
    Restore {
        key: key(),
        depots: depots(),
        members: vec![Peer {
            rank: Rank::ZERO,
            member: MemberAddress {
                worker: WorkerId::new(5),
                address: "10.0.0.2:2".parse().unwrap(),
            },
        }],
        readers: vec![Rank::ZERO],
    }
}

pub(super) fn restore_text() -> String {
    format!("{} {DEPOTS} 01 00 05 00 0a000002 02 01 00", key_text())
}

#[test]
fn what_is_said_of_writing() {
    let saved = WorkerMessage::Saved {
        snapshot: SNAPSHOT,
        attempt: 2,
        share: 3,
        bytes: 300,
        description: vec![piece(0xcc)],
        state: StateSize { pieces: 9, bytes: 900 },
        start: 4,
        pieces: vec![piece(0xdd)],
        is_last: true,
    };
    let (one, two) = ("cc".repeat(32), "dd".repeat(32));
    golden(&saved, &format!("09 0107 09 02 03 fb2c01 01 {one} 09 fb8403 04 01 {two} 01"));
    let (snapshot, attempt) = (SNAPSHOT, 2);
    golden(&WorkerMessage::Saving { snapshot, attempt }, "0a 0107 09 02");
    let not_saved = |depot| WorkerMessage::NotSaved {
        snapshot,
        attempt,
        depot,
        reason: "no".to_owned(),
    };
    golden(&not_saved(None), "0b 0107 09 02 00 02\"no\"");
    golden(&not_saved(Some(DepotId::new(5))), "0b 0107 09 02 01 05 02\"no\"");
    let not_restored = WorkerMessage::NotRestored {
        generation: GENERATION,
        reason: "no".to_owned(),
    };
    golden(&not_restored, "0c 0107 02\"no\"");
    let save = CoordinatorMessage::Save(Box::new(Save {
        snapshot,
        attempt,
        shares: vec![0, 3],
        depots: depots(),
        replicas: 2,
    }));
    golden(&save, &format!("05 0107 09 02 02 00 03 {DEPOTS} 02"));
    golden(&CoordinatorMessage::SaveOver { snapshot }, "06 0107 09");
}

#[test]
fn hello() {
    let depot = DepotHello {
        job: JobId::new([0xaa; 16]),
        depot: DepotId::new(5),
        host: "h".to_owned(),
        address: "10.0.0.1:1".parse().unwrap(),
        incarnation: Incarnation::new(2),
    };
    let job = "aa".repeat(16);
    golden(&Hello::Depot(depot), &format!("03 {job} 05 01\"h\" 00 0a000001 01 02"));
}

const PLACING: Placing = Placing {
    incarnation: Incarnation::new(3),
    number: 9,
};

fn head(condition: Condition) -> Head {
    Head {
        key: key(),
        run: JobId::new([0xaa; 16]),
        snapshot: SNAPSHOT,
        task: Task {
            settings: StateHash::new([0xcc; 32]),
            data: DataHash::new([0xda; 32]),
        },
        build: StateHash::new([0xdd; 32]),
        replicas: 2,
        depots: vec![DepotId::new(5)],
        placing: PLACING,
        condition,
    }
}

fn head_text(condition: &str) -> String {
    let (run, task, build) = ("aa".repeat(16), "cc".repeat(32) + &"da".repeat(32), "dd".repeat(32));
    format!("{} {run} 0107 09 {task} {build} 02 01 05 03 09 {condition}", key_text())
}

#[test]
fn what_a_depot_says() {
    let holds = |heads, is_last, unreadable| DepotMessage::Holds {
        heads,
        is_last,
        unreadable,
    };
    golden(&holds(vec![], false, vec![]), "00 00 00 00");
    let heads = vec![head(Condition::Whole), head(Condition::Lacking)];
    let text = format!("00 02 {} {} 01 01 {}", head_text("00"), head_text("01"), key_text());
    golden(&holds(heads, true, vec![key()]), &text);
    golden(&DepotMessage::Deleted { key: key() }, &format!("01 {}", key_text()));
    let committed = DepotMessage::Committed {
        snapshot: SNAPSHOT,
        head: head(Condition::Whole),
    };
    golden(&committed, &format!("02 0107 09 {}", head_text("00")));
    let refused = DepotMessage::Refused {
        snapshot: SNAPSHOT,
        placing: PLACING,
        reason: "no".to_owned(),
    };
    golden(&refused, "03 0107 09 03 09 02\"no\"");
    golden(&DepotMessage::Renew { request: vec![1, 2] }, "04 02 0102");
    let fetching = DepotMessage::Fetching {
        snapshot: SNAPSHOT,
        placing: PLACING,
    };
    golden(&fetching, "05 0107 09 03 09");
}

#[test]
fn what_a_depot_is_ordered() {
    let serve = DepotOrder::Serve {
        workers: vec![WorkerId::new(5)],
        depots: vec![6, 7],
    };
    golden(&serve, "00 01 05 02 06 07");
    let commit = DepotOrder::Commit {
        snapshot: SNAPSHOT,
        depots: vec![DepotId::new(6)],
        placing: PLACING,
        part: Part { start: 3, of: 300 },
        bytes: vec![1, 2],
    };
    golden(&commit, "01 0107 09 01 06 03 09 03 fb2c01 02 0102");
    golden(&DepotOrder::Release { snapshot: SNAPSHOT }, "02 0107 09");
    golden(&DepotOrder::Delete { key: key() }, &format!("03 {}", key_text()));
    let fetch = DepotOrder::Fetch {
        snapshot: SNAPSHOT,
        key: key(),
        depots: depots(),
        placing: PLACING,
    };
    golden(&fetch, &format!("04 0107 09 {} {DEPOTS} 03 09", key_text()));
    golden(&DepotOrder::Renewed { certificate: vec![3] }, "05 01 03");
    golden(&DepotOrder::JobOver, "06");
}
