//! Frames over real QUIC streams: what arrives, what is refused, and how an end looks.

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_protocol::codec::CodecError;
use sardana_protocol::limits::WIRE_VERSION;
use sardana_protocol::messages::{Greeting, WorkerMessage};
use sardana_protocol::words::{Generation, Incarnation};

use super::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use super::{FrameError, read_frame, write_frame};
use crate::quic::tests::{JOB, OTHER_JOB, authority, meet};
use crate::trust::Role;

/// A worker's and a coordinator's end of one control connection, and what must outlive it.
struct Pair {
    worker: Connection,
    coordinator: Connection,
    _endpoints: [Endpoint; 2],
}

impl Pair {
    async fn new() -> Self {
        let authority = authority(JOB);
        let own = authority.issue(Role::Coordinator, 0).unwrap();
        let worker = authority.issue(Role::Worker, 1).unwrap();
        let (worker, accepted, endpoints) = meet(&own, &worker, own.identity()).await;
        Self {
            worker: worker.unwrap(),
            coordinator: accepted.unwrap().0,
            _endpoints: endpoints,
        }
    }

    /// The coordinator's end of a stream on which the worker has sent exactly `bytes` and finished.
    async fn sent(&self, bytes: &[u8]) -> RecvStream {
        let (mut send, _) = self.worker.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
        self.coordinator.accept_bi().await.unwrap().1
    }
}

fn ready(count: u64) -> WorkerMessage {
    WorkerMessage::Ready {
        generation: Generation::new(Incarnation::new(1), count),
    }
}

#[tokio::test]
async fn messages_arrive_in_order_and_answers_come_back() {
    let pair = Pair::new().await;
    let (mut to_coordinator, mut from_coordinator) = pair.worker.open_bi().await.unwrap();
    for count in 0..100 {
        write_frame(&mut to_coordinator, &ready(count), CONTROL_FRAME_BYTES)
            .await
            .unwrap();
    }
    to_coordinator.finish().unwrap();
    let (mut to_worker, mut from_worker): (SendStream, RecvStream) = pair.coordinator.accept_bi().await.unwrap();
    for count in 0..100 {
        let found = read_frame(&mut from_worker, CONTROL_FRAME_BYTES).await.unwrap();
        assert_eq!(found, Some(ready(count)));
    }
    let end: Option<WorkerMessage> = read_frame(&mut from_worker, CONTROL_FRAME_BYTES).await.unwrap();
    assert_eq!(end, None);
    write_frame(&mut to_worker, &Greeting::Welcome, HELLO_FRAME_BYTES)
        .await
        .unwrap();
    assert_eq!(
        read_frame(&mut from_coordinator, HELLO_FRAME_BYTES).await.unwrap(),
        Some(Greeting::Welcome)
    );
}

#[tokio::test]
async fn bad_frames_are_refused() {
    let version = WIRE_VERSION.to_le_bytes();
    let frame =
        |version: [u8; 2], length: u32, payload: &[u8]| [&version[..], &[0, 0], &length.to_le_bytes(), payload].concat();
    let read = async |bytes: Vec<u8>| {
        let pair = Pair::new().await;
        let mut stream = pair.sent(&bytes).await;
        read_frame::<WorkerMessage>(&mut stream, 64).await
    };
    assert_eq!(read(frame(version, 3, &[1, 1, 7])).await.unwrap(), Some(ready(7)));
    let error = read(frame([8, 0], 3, &[1, 1, 7])).await.unwrap_err();
    assert!(matches!(error, FrameError::Version { theirs: 8, .. }), "{error}");
    // Nothing follows: had the length been believed, the end would be `Truncated`.
    for length in [65, 1 << 31, u32::MAX] {
        let error = read(frame(version, length, &[])).await.unwrap_err();
        assert!(
            matches!(error, FrameError::Payload(CodecError::TooLong { limit: 64, .. })),
            "{error}"
        );
    }
    let error = read(frame(version, 4, &[1, 1, 7])).await.unwrap_err();
    assert!(matches!(error, FrameError::Truncated { expected: 4, found: 3 }), "{error}");
    let error = read(version.to_vec()).await.unwrap_err();
    assert!(matches!(error, FrameError::Truncated { expected: 8, found: 2 }), "{error}");
    let error = read(frame(version, 4, &[1, 1, 7, 0])).await.unwrap_err();
    assert!(
        matches!(error, FrameError::Payload(CodecError::Trailing { extra: 1 })),
        "{error}"
    );
}

#[tokio::test]
async fn a_closed_connection_gives_the_peers_reason() {
    let pair = Pair::new().await;
    let (mut send, mut receive) = pair.worker.open_bi().await.unwrap();
    pair.coordinator.close(1_u32.into(), b"the job is over");
    let error = read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await.unwrap_err();
    assert!(matches!(error, FrameError::Connection(_)), "{error}");
    assert!(error.to_string().contains("the job is over"), "{error}");
    let error = write_frame(&mut send, &ready(1), CONTROL_FRAME_BYTES).await.unwrap_err();
    assert!(matches!(error, FrameError::Connection(_)), "{error}");
}

#[tokio::test]
async fn a_refused_certificate_shows_at_the_first_answer() {
    let own = authority(JOB).issue(Role::Coordinator, 0).unwrap();
    let stranger = authority(OTHER_JOB).issue(Role::Worker, 1).unwrap().believing(&own);
    let (dialled, accepted, _endpoints) = meet(&own, &stranger, own.identity()).await;
    accepted.unwrap_err();
    let error = match dialled.unwrap().open_bi().await {
        Ok((mut send, mut receive)) => {
            let _ = write_frame(&mut send, &ready(1), CONTROL_FRAME_BYTES).await;
            read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await.unwrap_err()
        }
        Err(error) => FrameError::Connection(error),
    };
    assert!(error.to_string().contains("another job"), "{error}");
}

#[tokio::test]
async fn a_stream_that_one_side_ends_is_told_from_a_lost_connection() {
    let pair = Pair::new().await;
    let (mut send, _receive) = pair.worker.open_bi().await.unwrap();
    write_frame(&mut send, &ready(1), CONTROL_FRAME_BYTES).await.unwrap();
    let (_send, mut receive) = pair.coordinator.accept_bi().await.unwrap();
    receive.stop(7_u32.into()).unwrap();
    send.stopped().await.unwrap();
    let error = write_frame(&mut send, &ready(2), CONTROL_FRAME_BYTES).await.unwrap_err();
    assert!(matches!(error, FrameError::Stream { .. }), "{error}");
}
