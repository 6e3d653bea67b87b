//! Files to begin with, for formats that no fuzzer guesses: written by what writes them. Kept files stay as they are; after a change of a
//! format `cargo test -p sardana-fuzz --test seeds -- --ignored` adds what is written now.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use flate2::write::GzEncoder;
use image::{ImageFormat, RgbImage};
use sardana::hosts::state::{ADDRESS_FILE, FENCE_FILE, Fence, INCARNATION_FILE, StateDirectory};
use sardana::hosts::{Existing, JoinFile, Missing, PrivateFolder};
use sardana_collectives::group::{Call, Compression, ElementType, Order, Reduced, Reduction};
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot, encode_trailer};
use sardana_data::formats::tfrecords::framing::Writer;
use sardana_data::formats::tfrecords::{Example, Feature, Verify, index_file};
use sardana_data::formats::{Part, cifar10, mnist};
use sardana_fuzz::TARGETS;
use sardana_net::enrol::{EnrolRequest, Moment, Terms, USES_FILE, Uses, invite};
use sardana_net::trust::{AUTHORITY_FILE, Authority, KeyDigest, PendingKey, Role};
use sardana_net::wire::write_frame_blocking;
use sardana_protocol::codec::encode;
use sardana_protocol::messages::{Greeting, LinkKind, LinkLine, LinkPath, LinkReport, Passed, Trailer, WorkerMessage};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, Incarnation, JobId, Step, WorkerId};
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

fn link_report() -> LinkReport {
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
        round_trip: Duration::from_micros(8),
    };
    LinkReport {
        generation: generation(),
        at: Duration::from_millis(1_500),
        lines: vec![line(LinkKind::SharedMemory, None), line(LinkKind::Quic, Some(path))],
        untold: 4,
    }
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
    keep(
        "messages",
        "links",
        Some(2),
        &encode(&WorkerMessage::Links(link_report()), 256).unwrap(),
    );
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
    let call = Call::AllReduce(Reduced {
        element: ElementType::Bf16,
        length: 1 << 40,
        reduction: Reduction::Mean,
        order: Order::Fast,
        compression: Compression::None,
    });
    keep("links", "call", None, &call.encode());
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

/// Digits and batches, each whole, and cut or damaged.
#[test]
#[ignore = "it writes into the corpus"]
fn data_in_binary_files() {
    let folder = private_folder();
    let file = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let packed = |bytes: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    mnist::write(folder.path(), Part::Test, 2, 3, &[vec![1; 6], vec![9; 6]], &[3, 8]).unwrap();
    let (images, labels) = (file("t10k-images-idx3-ubyte"), file("t10k-labels-idx1-ubyte"));
    for (kind, bytes) in [(0, &images), (1, &labels), (2, &images), (3, &labels)] {
        keep("digits", &format!("whole-{kind}"), Some(kind), bytes);
    }
    keep("digits", "packed-images", Some(4), &packed(&images));
    keep("digits", "packed-labels", Some(5), &packed(&labels));
    keep("digits", "short", Some(0), &images[..images.len() - 1]);
    keep("digits", "packed-short", Some(4), &packed(&images)[..20]);
    let huge = [&images[..4], &[0xff; 12]].concat();
    keep("digits", "huge", Some(0), &huge);
    keep("digits", "packed-huge", Some(2), &huge);
    keep(
        "digits",
        "no-rows",
        Some(0),
        &[0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    );
    let batch = folder.path().join(cifar10::TEST_FILE);
    cifar10::write_batch(&batch, &[vec![7; 3_072]], &[9]).unwrap();
    keep("batches", "whole", Some(0), &fs::read(batch).unwrap());
    keep("batches", "labels", Some(1), &[0, 9, 4]);
    keep("batches", "no-label", Some(1), &[3, 10]);
    keep("batches", "short", Some(0), &[0; 100]);
}

/// Tables, arrays and tensors: a header in text, and numbers.
#[test]
#[ignore = "it writes into the corpus"]
fn data_with_headers() {
    let table = "a,b,\"the, label\"\n1, -2.5,1e3\n\"4\",5,6\n";
    keep("tables", "whole", Some(0), table.as_bytes());
    keep("tables", "rows", Some(1), b"1,2\r\n3,4\r\n");
    keep("tables", "named", Some(2), b"x;y;z\n1;2;3\n");
    keep("tables", "tabs", Some(3), b"1\t2\tword\t4\n5\t6\t\t8\n");
    keep("tables", "uneven", Some(1), b"1,2\n3\n");
    keep("tables", "no-number", Some(0), b"a,b\n1,NaN\n");
    keep("tables", "quoted", Some(0), b"a,b\n1,\"2\n");
    for (kind, name) in [(0, "<f4"), (1, "|u1"), (2, "<i8"), (3, "<f8")] {
        let text = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': (3, 1), }}\n");
        let bytes = 3 * [4, 1, 8, 8][usize::from(kind)];
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        let whole = [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), &vec![1; bytes]].concat();
        keep("arrays", &format!("whole-{kind}"), Some(2 * kind), &whole);
        keep("arrays", &format!("short-{kind}"), Some(2 * kind), &whole[..whole.len() - 1]);
        let text = text.replace("(3, 1)", &format!("({}, )", 24 / (bytes / 3)));
        keep("arrays", &format!("header-{kind}"), Some(2 * kind + 1), text.as_bytes());
    }
    let header = "{'descr':'<f4','fortran_order':False,'shape':(SHAPE)}";
    let with = |shape: &str| header.replace("SHAPE", shape);
    keep("arrays", "huge", Some(1), with("18446744073709551615,4").as_bytes());
    keep("arrays", "many-axes", Some(1), with(&"1,".repeat(900)).as_bytes());
    let json = br#"{"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"y":{"dtype":"I64","shape":[2],"data_offsets":[16,32]}}"#;
    keep("tensor_rows", "header", Some(1), json);
    let whole = [&(json.len() as u64).to_le_bytes()[..], json, &[1; 32]].concat();
    keep("tensor_rows", "whole", Some(0), &whole);
    keep("tensor_rows", "short", Some(0), &whole[..whole.len() - 1]);
    keep("tensor_rows", "long-header", Some(0), &[0xff; 9]);
    let json = br#"{"x":{"dtype":"U8","shape":[2,16],"data_offsets":[0,32]}}"#;
    keep("tensor_rows", "bytes", Some(1), json);
    let axes = format!(
        r#"{{"x":{{"dtype":"U8","shape":[{}32],"data_offsets":[0,31]}}}}"#,
        "1,".repeat(450)
    );
    keep("tensor_rows", "many-axes", Some(1), axes.as_bytes());
}

/// Records with their index, what they hold, and pictures.
#[test]
#[ignore = "it writes into the corpus"]
fn data_by_its_own_writers() {
    let framed = |records: &[&[u8]]| {
        let mut writer = Writer::new(Vec::new());
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.into_inner()
    };
    // The records of the target, whose index this is.
    let records = framed(&[b"one", b"", b"the third"]);
    keep("records", "whole", Some(0), &records);
    keep("records", "made", Some(1), &(0..40).collect::<Vec<u8>>());
    keep("records", "short", Some(0), &records[..records.len() - 1]);
    let mut damaged = records.clone();
    damaged[13] ^= 1;
    keep("records", "damaged", Some(0), &damaged);
    keep("records", "gzip", Some(0), &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let folder = private_folder();
    let path = folder.path().join("data.tfrecord");
    fs::write(&path, &records).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    index_file(&path, Verify::Payloads, &mut |_| {}).unwrap();
    let index = fs::read(path.with_extension("tfrecord.index")).unwrap();
    keep("record_indexes", "whole", Some(0), &index);
    let mut unsealed = index[..index.len() - 32].to_vec();
    keep("record_indexes", "sealed", Some(1), &unsealed);
    unsealed.truncate(index.len() - 40);
    keep("record_indexes", "far", Some(1), &[&unsealed[..], &[0xff; 8]].concat());
    keep("record_indexes", "foreign", Some(0), b"0 19\n19 16\n35 25\n");
    let strings = vec![b"picture".to_vec(), Vec::new()];
    let example = Example::new()
        .with("image", Feature::Bytes(strings))
        .with("label", Feature::Ints(vec![-1, 7]))
        .with("weights", Feature::Floats(vec![0.5, f32::NAN]))
        .with("lacks", Feature::Nothing)
        .encode();
    keep("examples", "whole", None, &example);
    keep("examples", "short", None, &example[..example.len() - 3]);
    keep("examples", "sequence", None, &[0x12, 0]);
    keep("pictures", "jpeg-of-nothing", Some(0), &[0xff, 0xd8, 0xff, 0xd0, 0xff, 0xd9]);
    let picture = RgbImage::from_fn(5, 4, |x, y| image::Rgb([(x * 50) as u8, (y * 60) as u8, 100]));
    for (name, format) in [("png", ImageFormat::Png), ("jpeg", ImageFormat::Jpeg)] {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        let bytes = bytes.into_inner();
        keep("pictures", name, Some(0), &bytes);
        keep("pictures", &format!("{name}-short"), Some(1), &bytes[..bytes.len() / 2]);
        if format == ImageFormat::Png {
            keep("pictures", "png-summed", Some(1), &bytes);
            // Of 65,535 pixels by as many.
            let huge = [&bytes[..16], &[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff], &bytes[24..]].concat();
            keep("pictures", "png-huge", Some(1), &huge);
        }
    }
}
