//! Files to begin with, for formats that no fuzzer guesses: written by what writes them. Kept files stay as they are; after a change of a
//! format `cargo test -p sardana-fuzz --test seeds -- --ignored` adds what is written now.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use sardana::hosts::state::{ADDRESS_FILE, FENCE_FILE, Fence, INCARNATION_FILE, StateDirectory};
use sardana::hosts::{Existing, JoinFile, Missing, PrivateFolder};
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot, encode_trailer};
use sardana_fuzz::TARGETS;
use sardana_net::enrol::{EnrolRequest, Moment, Terms, USES_FILE, Uses, invite};
use sardana_net::trust::{AUTHORITY_FILE, Authority, KeyDigest, PendingKey, Role};
use sardana_net::wire::write_frame_blocking;
use sardana_protocol::codec::encode;
use sardana_protocol::messages::{Greeting, Trailer, WorkerMessage};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, JobId, Step};
use sardana_storage::catalogue::{Batch, Catalogue, MARKER_FILE};
use sardana_storage::manifest;
use sardana_storage::store::{PinId, Store};
use tempfile::TempDir;

const JOB: JobId = JobId::new([1; 16]);

/// Adds a file to a target's folder, after the byte that says of which kind it is, and shows it to the target.
fn keep(target: &str, name: &str, kind: Option<u8>, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    let bytes: Vec<u8> = kind.into_iter().chain(bytes.iter().copied()).collect();
    TARGETS.iter().find(|(other, _)| *other == target).unwrap().1(&bytes);
    fs::write(folder.join(name), bytes).unwrap();
}

/// A folder that others cannot enter.
fn private_folder() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

/// A join file for an agent, of a coordinator at these addresses.
fn join_file(authority: &Authority, addresses: &[&str]) -> JoinFile {
    let now = Moment::of(SystemTime::now());
    let terms = Terms {
        role: Role::Agent,
        expires: Moment::new(now.seconds() + 3_600),
        uses: 3,
    };
    let invitation = invite(authority, terms, now).unwrap();
    let addresses = addresses.iter().map(|address| address.parse().unwrap());
    JoinFile::new(invitation, authority, addresses.collect())
}

fn generation() -> Generation {
    Generation::new(Incarnation::new(1), 7)
}

#[test]
#[ignore = "it writes into the corpus"]
fn said_over_a_network() {
    let mut frame = Vec::new();
    let ready = WorkerMessage::Ready {
        generation: generation(),
    };
    write_frame_blocking(&mut frame, &ready, 64).unwrap();
    keep("frames", "ready", None, &frame);
    keep("frames", "two", None, &frame.repeat(2));
    let greeting = Greeting::Refused { reason: "no".to_owned() };
    keep("messages", "greeting", Some(1), &encode(&greeting, 64).unwrap());
    keep("messages", "ready", Some(2), &encode(&ready, 64).unwrap());
    let header = FrameHeader {
        generation: generation(),
        step: Step::new(9),
        plan: PlanSlot::Steady,
        hop: 3,
        kind: FrameKind::Sum,
        chunk: 2,
        payload_bytes: 1 << 17,
    };
    keep("links", "header", None, &header.encode());
    keep("links", "switch", None, &encode_trailer(Trailer::Switch(generation())));
    for (kind, text) in [
        (0, r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#),
        (
            1,
            r#"{"DocumentIncarnation": 1, "Events": [{"EventId": "7", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["machine"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT", "DurationInSeconds": -1}]}"#,
        ),
        (2, "TERMINATE_ON_HOST_MAINTENANCE"),
        (3, "2017-09-18T08:22:00Z"),
        (4 + 3, "Mon, 19 Sep 2016 18:29:47 GMT"),
        (8 + 3, "http://127.0.0.1:80"),
    ] {
        keep("notices", &format!("answer-{kind}"), Some(kind), text.as_bytes());
    }
}

#[test]
#[ignore = "it writes into the corpus"]
fn trusted() {
    let folder = private_folder();
    let private = PrivateFolder::open(folder.path(), Missing::Refuse).unwrap();
    let authority = Authority::load_or_create(&private, JOB).unwrap();
    let file = |name: &str| fs::read(folder.path().join(name)).unwrap();
    keep("state_directories", "authority", Some(3), &file(AUTHORITY_FILE));
    keep("certificates", "authority", None, authority.certificate());
    keep(
        "certificates",
        "worker",
        None,
        &authority.issue(Role::Worker, 7).unwrap().certificate(),
    );
    let request = PendingKey::generate().unwrap().request().unwrap();
    keep("enrolment", "request", Some(2), &request);
    let join = join_file(&authority, &["127.0.0.1:4000", "[::1]:4000"]);
    join.write(&folder.path().join("join"), Existing::Refuse).unwrap();
    keep("join_files", "agent", None, &file("join"));
    let mut uses = Uses::kept(&private).unwrap();
    for key in [1, 2] {
        uses.note(&join.invitation, KeyDigest::new([key; 16]), Moment::of(SystemTime::now()))
            .unwrap();
    }
    keep("uses", "two", None, &file(USES_FILE));
    let line = file(USES_FILE);
    let body = line.split(|&byte| byte == b'\n').next().unwrap();
    keep("uses", "unsealed", None, &body[..body.len() - 65]);
    let invitation = join.invitation;
    let asked = EnrolRequest::Invited { invitation, request };
    keep("enrolment", "asked", Some(0), &encode(&asked, 4_096).unwrap());
}

/// Keys of a join file that is kept beside them.
#[test]
#[ignore = "it writes into the corpus"]
fn in_a_keyring() {
    let folder = private_folder();
    let authority = Authority::new(JOB).unwrap();
    let join = join_file(&authority, &["127.0.0.1:4000"]);
    join.write(&folder.path().join("join"), Existing::Refuse).unwrap();
    keep("join_files", "keyring", None, &fs::read(folder.path().join("join")).unwrap());
    let [new, certified] = sardana_net::fuzzing::key_files(&authority, &join, &folder.path().join("key"));
    let text = String::from_utf8(certified.clone()).unwrap();
    // Kept before this program shows them to the target, which has been built with the join file of before.
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join("keyrings");
    fs::create_dir_all(&kept).unwrap();
    for (name, bytes) in [
        ("new", new),
        ("certified", certified),
        ("short", text.as_bytes()[..text.len() / 2].to_vec()),
        ("later", text.replace("\"version\": 1", "\"version\": 2").into_bytes()),
        ("never", text.replace("1073741824", "18446744073709551615").into_bytes()),
        (
            "other_role",
            text.replace("agent", "worker").replace("Agent", "Worker").into_bytes(),
        ),
    ] {
        fs::write(kept.join(name), bytes).unwrap();
    }
}

#[test]
#[ignore = "it writes into the corpus"]
fn on_a_disk() {
    let folder = private_folder();
    let file = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let state = StateDirectory::open(folder.path()).unwrap();
    state.next_incarnation(Incarnation::new(3)).unwrap();
    state.write_addresses(&["127.0.0.1:4000".parse().unwrap()]).unwrap();
    let (own, by) = (Incarnation::new(1), Incarnation::new(2));
    state.write_fence(Fence { own, by }).unwrap();
    for (kind, name) in [(0, INCARNATION_FILE), (1, FENCE_FILE), (2, ADDRESS_FILE)] {
        keep("state_directories", name, Some(kind), &file(name));
    }
    let catalogue = Catalogue::open(&folder.path().join("catalogue")).unwrap().catalogue;
    catalogue.commit(&Batch::default().put("t", b"key", b"value")).unwrap();
    keep("catalogues", "marker", Some(0), &file(&format!("catalogue/{MARKER_FILE}")));
    drop(catalogue);
    let store = Store::open(&folder.path().join("store")).unwrap().store;
    let pieces = store.put(PinId::new(1), &[b"one", b"two and more"]).unwrap();
    store.sync().unwrap();
    let segments = folder.path().join("store").join(sardana_storage::store::SEGMENTS_FOLDER);
    let segment = fs::read_dir(segments).unwrap().next().unwrap().unwrap();
    let bytes = fs::read(segment.path()).unwrap();
    keep("segments", "segment", Some(0), &bytes[..bytes.len().min(1_024)]);
    keep("segments", "sealed", Some(1), &bytes[..bytes.len().min(1_024)]);
    keep("segments", "name", Some(4), segment.file_name().as_encoded_bytes());
    keep("segments", "format", Some(3), b"sardana-store 1 index=0000000000000007");
    assert_eq!(pieces.len(), 2);
    let tensors = vec![
        TensorSpec::new("w", Dtype::F32, &[2, 3]),
        TensorSpec::new("n", Dtype::U64, &[]),
    ];
    keep(
        "manifests",
        "description",
        Some(1),
        &manifest::encode_description(&tensors).unwrap(),
    );
    let json = br#"{"__metadata__":{"step":"7"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"n":{"dtype":"U64","shape":[],"data_offsets":[8,16]}}"#;
    keep("safetensors", "header", None, json);
    let whole = [&(json.len() as u64).to_le_bytes()[..], json, &[1; 16]].concat();
    keep("safetensors", "whole", None, &whole);
    keep("saved_states", "whole", None, &(0..20).collect::<Vec<u8>>());
    keep("saved_states", "short", None, &[0; 19]);
    let tally: Vec<u8> = [70_u64, 9, 3 | 4 << 32]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    keep("tallies", "whole", None, &tally);
    keep("tallies", "short", None, &tally[..23]);
    keep("tallies", "long", None, &[&tally[..], &[0]].concat());
    keep("tallies", "full", None, &[0xff; 24]);
}
