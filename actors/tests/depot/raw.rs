//! A peer that speaks to a depot by hand.

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::WorkerId;
use serde::{Deserialize, Serialize};

use crate::site::{JOB, Place, WORKER, snapshot, soon};

/// As a depot reads it.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    Put {
        snapshot: SnapshotId,
        pieces: u32,
        window: Option<WindowAt>,
    },
    Get {
        pieces: u32,
    },
    Manifest {
        key: ManifestKey,
    },
}

/// Where a window is, as a depot reads it.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct WindowAt {
    pub(crate) process: u32,
    pub(crate) descriptor: u32,
    pub(crate) mark: [u8; 16],
}

/// As a depot writes it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Wait,
    Wanted { offers: Vec<u32>, looks: bool },
    Durable,
    Bytes { bytes: u64 },
    NotHere,
    Damaged { reason: String },
    Refused { reason: String },
    Places { segments: String, places: Vec<()> },
    Seen,
    Unseen,
}

pub(crate) const MOST: usize = 1 << 20;

pub(crate) struct Raw {
    pub(crate) send: SendStream,
    receive: RecvStream,
    pub(crate) connection: Connection,
    endpoint: Endpoint,
}

/// A worker's connection to a depot.
pub(crate) async fn connection(authority: &Authority, place: &Place, worker: WorkerId) -> (Connection, Endpoint) {
    let credentials = authority.issue(Role::Worker, worker.get()).unwrap();
    let endpoint = bind_client(&credentials, Purpose::Peer, place.at.address).unwrap();
    let expected = PeerIdentity {
        job: JOB,
        role: Role::Checkpoint,
        id: place.at.certified,
    };
    let connected = connect(&endpoint, place.at.address, expected, CONNECT_DEADLINE).await;
    (connected.unwrap(), endpoint)
}

impl Raw {
    pub(crate) async fn dial(authority: &Authority, place: &Place, request: &Request) -> Self {
        let (connection, endpoint) = connection(authority, place, WORKER).await;
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut raw = Self {
            send,
            receive,
            connection,
            endpoint,
        };
        raw.say(request).await;
        raw
    }

    /// Another stream of the same connection.
    pub(crate) async fn beside(&self, request: &Request) -> Self {
        let connection = self.connection.clone();
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut raw = Self {
            send,
            receive,
            connection,
            endpoint: self.endpoint.clone(),
        };
        raw.say(request).await;
        raw
    }

    pub(crate) async fn say<T: Serialize>(&mut self, what: &T) {
        write_frame(&mut self.send, what, MOST).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Answer {
        soon(read_frame(&mut self.receive, MOST)).await.unwrap().unwrap()
    }

    /// The next answer but that it is to wait.
    pub(crate) async fn heard(&mut self) -> Answer {
        loop {
            let answer = self.hear().await;
            if answer != Answer::Wait {
                return answer;
            }
        }
    }

    pub(crate) async fn refusal(mut self) -> String {
        let answer = self.hear().await;
        let Answer::Refused { reason } = answer else {
            panic!("expected a refusal, found {answer:?}");
        };
        reason
    }
}

/// So many pieces, of which some may be shown.
pub(crate) fn put(pieces: u32, window: Option<WindowAt>) -> Request {
    Request::Put {
        snapshot: snapshot(5),
        pieces,
        window,
    }
}

/// All of these.
pub(crate) fn offers(pieces: &[(PieceHash, Bytes)]) -> Vec<(PieceHash, u32)> {
    pieces.iter().map(|(name, bytes)| (*name, bytes.len() as u32)).collect()
}
