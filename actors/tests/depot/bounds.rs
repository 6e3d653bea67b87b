//! Peers that say what they must not, spoken by hand.

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_actors::depot::DepotError;
use sardana_actors::quic::limits::CONNECT_DEADLINE;
use sardana_actors::quic::{Purpose, bind_client, connect};
use sardana_actors::trust::{Authority, PeerIdentity, Role};
use sardana_actors::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::snapshot::SnapshotId;
use serde::{Deserialize, Serialize};

use crate::site::{JOB, Place, WORKER, authority, client, names, pieces, snapshot, soon};

/// As a depot reads it.
#[derive(Serialize)]
enum Request {
    Put {
        snapshot: SnapshotId,
        pieces: u32,
    },
    Get {
        pieces: u32,
    },
    #[expect(dead_code, reason = "for the number of the others")]
    Manifest {
        key: ManifestKey,
    },
}

/// As a depot writes it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
enum Answer {
    Wait,
    Wanted { offers: Vec<u32> },
    Durable,
    Bytes { bytes: u64 },
    NotHere,
    Damaged { reason: String },
    Refused { reason: String },
}

const MOST: usize = 1 << 20;

struct Raw {
    send: SendStream,
    receive: RecvStream,
    connection: Connection,
    _endpoint: Endpoint,
}

impl Raw {
    async fn dial(authority: &Authority, place: &Place, request: &Request) -> Self {
        let credentials = authority.issue(Role::Worker, WORKER.get()).unwrap();
        let endpoint = bind_client(&credentials, Purpose::Peer, place.at.address).unwrap();
        let expected = PeerIdentity {
            job: JOB,
            role: Role::Checkpoint,
            id: place.at.certified,
        };
        let connection = connect(&endpoint, place.at.address, expected, CONNECT_DEADLINE)
            .await
            .unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut raw = Self {
            send,
            receive,
            connection,
            _endpoint: endpoint,
        };
        raw.say(request).await;
        raw
    }

    async fn say<T: Serialize>(&mut self, what: &T) {
        write_frame(&mut self.send, what, MOST).await.unwrap();
    }

    async fn hear(&mut self) -> Answer {
        soon(read_frame(&mut self.receive, MOST)).await.unwrap().unwrap()
    }

    async fn refusal(mut self) -> String {
        match self.hear().await {
            Answer::Refused { reason } => reason,
            other @ (Answer::Wait
            | Answer::Wanted { .. }
            | Answer::Durable
            | Answer::Bytes { .. }
            | Answer::NotHere
            | Answer::Damaged { .. }) => panic!("expected a refusal, found {other:?}"),
        }
    }
}

const fn put(pieces: u32) -> Request {
    Request::Put {
        snapshot: SnapshotId {
            generation: sardana_protocol::words::Generation::NONE,
            step: sardana_protocol::words::Step::new(5),
        },
        pieces,
    }
}

#[tokio::test]
async fn numbers_and_lengths_beyond_bounds_are_refused() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let reason = Raw::dial(&authority, &place, &put(u32::MAX)).await.refusal().await;
    assert!(reason.contains("expected at most"), "{reason}");
    let request = Request::Get { pieces: 4_097 };
    let reason = Raw::dial(&authority, &place, &request).await.refusal().await;
    assert!(reason.contains("expected at most 4096 pieces"), "{reason}");
    let piece = PieceHash::of(b"x");
    for offers in [
        vec![(piece, 3_u32); 2],
        vec![],
        vec![(piece, u32::MAX)],
        vec![(piece, PIECE_BYTES as u32 + 1)],
    ] {
        let mut raw = Raw::dial(&authority, &place, &put(1)).await;
        raw.say(&offers).await;
        let reason = raw.refusal().await;
        assert!(reason.contains("expected"), "{reason}");
    }
    let mut raw = Raw::dial(&authority, &place, &put(100_000)).await;
    raw.say(&vec![(piece, 3_u32); 4_097]).await;
    let reason = raw.refusal().await;
    assert!(reason.contains("4096") || reason.contains("at most"), "{reason}");
    let mut raw = Raw::dial(&authority, &place, &Request::Get { pieces: 2 }).await;
    raw.say(&vec![piece]).await;
    let reason = raw.refusal().await;
    assert!(reason.contains("expected 2 pieces, found 1"), "{reason}");
    let long = Bytes::from(vec![0; PIECE_BYTES + 1]);
    let long = [(PieceHash::of(&long), long)];
    let error = soon(client(&authority, WORKER).put(place.at, snapshot(5), &long, || ()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cut it into several"), "{error}");
    assert_eq!(place.store.usage().pieces, 0);
}

#[tokio::test]
async fn bytes_of_another_name_are_refused() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let mut wrong = pieces(1, 30);
    wrong[20].1 = Bytes::from_static(b"something else");
    let error = soon(client(&authority, WORKER).put(place.at, snapshot(5), &wrong, || ()))
        .await
        .unwrap_err();
    assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("expected the bytes of piece {}", wrong[20].0)),
        "{error}"
    );
    assert!(place.store.read(wrong[20].0).is_err());
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_put_leaves_nothing_that_counts_as_durable() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let all = pieces(1, 200);
    let offers: Vec<(PieceHash, u32)> = all.iter().map(|(name, bytes)| (*name, bytes.len() as u32)).collect();
    let mut raw = Raw::dial(&authority, &place, &put(offers.len() as u32)).await;
    raw.say(&offers).await;
    let wanted = Answer::Wanted {
        offers: (0..offers.len() as u32).collect(),
    };
    assert_eq!(raw.hear().await, wanted);
    for (_, bytes) in &all[..190] {
        raw.send.write_all(bytes).await.unwrap();
    }
    raw.connection.close(0_u32.into(), b"it dies");
    soon(async {
        while place.server.received() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let pin = sardana_actors::store::PinId::new(99);
    assert_eq!(
        place.store.pin(pin, &names(&all)),
        names(&all),
        "nothing was said to be durable, and nothing is"
    );
    // Another try finishes it.
    soon(client(&authority, WORKER).put(place.at, snapshot(5), &all, || ()))
        .await
        .unwrap();
    assert!(place.store.pin(pin, &names(&all)).is_empty());
}
