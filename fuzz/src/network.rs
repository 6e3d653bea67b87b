//! What comes over a network: frames and messages, headers of links, requests for certificates, and what clouds answer.

use std::sync::LazyLock;

use sardana_actors::agent::Bundle;
use sardana_actors::fuzzing;
use sardana_actors::operator::limits::{ANSWER_BYTES, REQUEST_BYTES};
use sardana_collectives::group::{CALL_BYTES, Call};
use sardana_collectives::links::frame::{
    FrameHeader, FrameKind, HEADER_BYTES, PlanSlot, TRAILER_BYTES, decode_trailer, encode_trailer,
};
use sardana_net::enrol::limits::ENROL_FRAME_BYTES;
use sardana_net::enrol::{EnrolAnswer, EnrolRequest, Moment, Registrar};
use sardana_net::fuzzing::message;
use sardana_net::trust::{Authority, PendingKey, Role};
use sardana_net::wire::limits::{BUNDLE_BYTES, CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{read_frame_blocking, write_frame_blocking};
use sardana_protocol::admission::{Acquaintance, admit, has_memory};
use sardana_protocol::codec::{LARGEST_LIMIT, decode};
use sardana_protocol::job::JobIdentity;
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::membership::{EarlierRecord, JobRecord, WorkerRecord};
use sardana_protocol::messages::{
    AgentMessage, AgentOrder, CoordinatorMessage, DepotMessage, DepotOrder, Greeting, Hello, WorkerMessage,
};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::{Generation, Incarnation, JobId, Step};
use sardana_storage::fuzzing::kind;

const JOB: JobId = JobId::new([1; 16]);

/// Any bytes as frames on a stream, as they are and of the present version, and as one whose header is right.
pub(crate) fn frames(bytes: &[u8]) {
    stream(bytes);
    // What is kept would be refused for its version after each change of that, before anything else of it is read.
    if let Some((_, rest)) = bytes.split_first_chunk::<2>() {
        stream(&[&WIRE_VERSION.to_le_bytes()[..], rest].concat());
    }
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let header = [&WIRE_VERSION.to_le_bytes()[..], &[0, 0], &length.to_le_bytes()].concat();
    drop(read_frame_blocking::<Greeting>(
        &mut [&header[..], bytes].concat().as_slice(),
        HELLO_FRAME_BYTES,
    ));
}

fn stream(mut stream: &[u8]) {
    while let Ok(Some(message)) = read_frame_blocking::<WorkerMessage>(&mut stream, CONTROL_FRAME_BYTES) {
        let mut written = Vec::new();
        write_frame_blocking(&mut written, &message, CONTROL_FRAME_BYTES).expect("what was read can be written");
        let again = read_frame_blocking::<WorkerMessage>(&mut written.as_slice(), CONTROL_FRAME_BYTES);
        assert!(matches!(again, Ok(Some(_))), "{message:?}");
    }
}

/// The payload of each kind of frame.
pub(crate) fn messages(bytes: &[u8]) {
    match kind(bytes, 15) {
        (0, rest) => {
            if let Some(Hello::Worker(hello)) = message::<Hello>(rest, HELLO_FRAME_BYTES) {
                let newest = Generation::new(Incarnation::new(1), 1);
                // It may well be refused.
                let _ = has_memory(&hello, 8).map_err(|lack| lack.to_string());
                let _ = admit(hello.job, None, newest, Acquaintance::Greeted, &hello);
                let _ = admit(hello.job, Some(&hello.identity), newest, Acquaintance::None, &hello);
            }
        }
        (1, rest) => drop(message::<Greeting>(rest, HELLO_FRAME_BYTES)),
        (2, rest) => drop(message::<WorkerMessage>(rest, CONTROL_FRAME_BYTES)),
        (3, rest) => drop(message::<CoordinatorMessage>(rest, CONTROL_FRAME_BYTES)),
        (4, rest) => drop(message::<AgentMessage>(rest, CONTROL_FRAME_BYTES)),
        (5, rest) => drop(message::<AgentOrder>(rest, CONTROL_FRAME_BYTES)),
        (6, rest) => drop(message::<DepotMessage>(rest, CONTROL_FRAME_BYTES)),
        (7, rest) => drop(message::<DepotOrder>(rest, CONTROL_FRAME_BYTES)),
        (8, rest) => drop(message::<OperatorRequest>(rest, REQUEST_BYTES)),
        (9, rest) => drop(message::<OperatorAnswer>(rest, ANSWER_BYTES)),
        (10, rest) => drop(message::<Bundle>(rest, BUNDLE_BYTES)),
        (11, rest) => drop(message::<(JobIdentity, Vec<String>)>(rest, LARGEST_LIMIT)),
        (12, rest) => drop(message::<JobRecord>(rest, LARGEST_LIMIT)),
        (13, rest) => drop(message::<WorkerRecord>(rest, LARGEST_LIMIT)),
        (_, rest) => drop(decode::<EarlierRecord>(rest, LARGEST_LIMIT)),
    }
}

/// What workers ask of each other, and answer.
pub(crate) fn transfers(bytes: &[u8]) {
    fuzzing::peers(bytes);
}

/// Headers and trailers on the links of a ring, and calls on those of a group.
pub(crate) fn links(bytes: &[u8]) {
    let expected = FrameHeader {
        generation: Generation::new(Incarnation::new(1), 7),
        step: Step::new(9),
        plan: PlanSlot::Steady,
        hop: 3,
        kind: FrameKind::Sum,
        chunk: 2,
        payload_bytes: 1 << 17,
    };
    if let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let same = expected.encode() == header.as_slice();
        assert_eq!(expected.check(header).is_ok(), same);
    }
    let payload = &bytes[..bytes.len().min(TRAILER_BYTES as usize)];
    if let Ok(trailer) = decode_trailer(payload) {
        assert_eq!(encode_trailer(trailer), payload);
    }
    let payload = &bytes[..bytes.len().min(CALL_BYTES)];
    if let Some(call) = Call::decode(payload) {
        assert_eq!(call.encode(), payload);
        assert!(!call.to_string().is_empty());
    }
}

/// A request for a certificate from a stranger.
pub(crate) fn enrolment(bytes: &[u8]) {
    static REGISTRAR: LazyLock<Registrar> = LazyLock::new(|| {
        let authority = Authority::new(JOB).expect("the system gives keys");
        Registrar::new(authority.into())
    });
    match kind(bytes, 3) {
        (0, rest) => {
            if let Some(request) = message::<EnrolRequest>(rest, ENROL_FRAME_BYTES) {
                // No input has the authority's secret.
                REGISTRAR.enrol(&request, Moment::new(1)).expect_err("it was not invited");
            }
        }
        (1, rest) => drop(message::<EnrolAnswer>(rest, ENROL_FRAME_BYTES)),
        (_, rest) => {
            static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new(JOB).expect("the system gives keys"));
            drop(AUTHORITY.certify(Role::Worker, 1, rest));
        }
    }
}

/// A certificate, as it comes in a handshake, or as the answer to a request.
pub(crate) fn certificates(bytes: &[u8]) {
    static ASKED: LazyLock<(PendingKey, Authority)> = LazyLock::new(|| {
        let authority = Authority::new(JOB).expect("the system gives keys");
        (PendingKey::generate().expect("the system gives keys"), authority)
    });
    sardana_net::fuzzing::certificates(bytes);
    let (key, authority) = &*ASKED;
    let credentials = key.certified(authority.certificate(), bytes.to_vec());
    assert!(credentials.is_err(), "somebody has guessed a key");
}

/// What the metadata services of clouds answer.
pub(crate) fn notices(bytes: &[u8]) {
    fuzzing::notices(bytes);
}
