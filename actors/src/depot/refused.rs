//! A writer or reader that a depot refuses in the middle of what it says hears why, whatever the depot had answered before.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_net::environment::Environment;
use sardana_net::quic::{Purpose, bind_server};
use sardana_net::refusing::{Manner, Refuser};
use sardana_net::trust::{Authority, Role, RotatingCredentials};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Generation, Incarnation, Step};

use super::client::{Depots, Reach};
use super::error::DepotError;
use super::limits::{LIST_BYTES, PANE_BYTES, REQUEST_BYTES, ROUND_PIECES};
use super::patience::Patience;
use super::talk::{Answer, Offer, Request, Shown};
use super::window::PANES;
use crate::testing::raw::JOB;
use crate::testing::{LOOPBACK, soon};

const WHY: &str = "the disk is full";
const CERTIFIED: u64 = 9;

/// A depot that the test plays.
struct Played {
    endpoint: Endpoint,
    at: DepotAddress,
}

impl Played {
    fn new(authority: &Authority) -> Self {
        let own = authority.issue(Role::Checkpoint, CERTIFIED).unwrap();
        let endpoint = bind_server(&own, Purpose::Peer, LOOPBACK).unwrap();
        let at = at(endpoint.local_addr().unwrap());
        Self { endpoint, at }
    }

    async fn connected(&self) -> Connection {
        let incoming = self.endpoint.accept().await.unwrap();
        incoming.accept().unwrap().await.unwrap()
    }
}

fn at(address: SocketAddr) -> DepotAddress {
    DepotAddress {
        depot: DepotId::new(1),
        certified: CERTIFIED,
        address,
    }
}

fn writer(authority: &Authority, reach: Reach) -> Arc<Depots> {
    let rotating = RotatingCredentials::from(authority.issue(Role::Worker, 7).unwrap());
    let endpoint = bind_server(&rotating, Purpose::Peer, LOOPBACK).unwrap();
    Depots::with(Environment::Host, endpoint, rotating, (Patience::default(), reach))
}

/// Pieces that fill one pane more than there are.
fn pieces() -> Vec<(PieceHash, Bytes)> {
    let piece = |number: usize| {
        let bytes = Bytes::from(vec![number as u8; PIECE_BYTES]);
        (PieceHash::of(&bytes), bytes)
    };
    (0..(PANES + 1) * PANE_BYTES / PIECE_BYTES).map(piece).collect()
}

fn snapshot() -> SnapshotId {
    SnapshotId {
        generation: Generation::new(Incarnation::new(1), 1),
        step: Step::new(5),
    }
}

/// The request and the first offers of a put.
async fn offered(connection: &Connection) -> (SendStream, RecvStream, Vec<Offer>) {
    let (send, mut receive) = connection.accept_bi().await.unwrap();
    let request = read_frame::<Request>(&mut receive, REQUEST_BYTES).await.unwrap();
    assert!(matches!(request, Some(Request::Put { .. })), "{request:?}");
    let offers = read_frame::<Vec<Offer>>(&mut receive, LIST_BYTES).await.unwrap().unwrap();
    (send, receive, offers)
}

async fn say(send: &mut SendStream, answers: &[Answer]) {
    for answer in answers {
        write_frame(send, answer, LIST_BYTES).await.unwrap();
    }
}

/// Looks at both panes, stops the stream, and only then says that it has seen them, and its last word. The writer hears that the first one
/// was seen, fills it anew, and finds the stream stopped.
async fn stops_after_two_panes(connection: &Connection, last: Answer) {
    let (mut send, mut receive, offers) = offered(connection).await;
    let all = (0..offers.len() as u32).collect();
    say(
        &mut send,
        &[Answer::Wanted {
            offers: all,
            looks: true,
        }],
    )
    .await;
    for _ in 0..PANES {
        read_frame::<Shown>(&mut receive, REQUEST_BYTES).await.unwrap().unwrap();
    }
    receive.stop(1_u32.into()).unwrap();
    say(&mut send, &[Answer::Seen, Answer::Seen, last]).await;
    send.finish().unwrap();
    send.stopped().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_shows_pieces_hears_why_no_more_are_taken_though_an_earlier_answer_is_unheard() {
    let authority = Authority::new(JOB).unwrap();
    let (played, writer) = (Played::new(&authority), writer(&authority, Reach::Host));
    let refusing = async {
        let connection = played.connected().await;
        stops_after_two_panes(&connection, Answer::Refused { reason: WHY.to_owned() }).await;
        connection
    };
    let pieces = pieces();
    let put = writer.put(played.at, snapshot(), &pieces, || ());
    let (_connection, put) = soon(async { tokio::join!(refusing, put) }).await;
    let error = put.unwrap_err();
    assert!(matches!(error, DepotError::Refused { .. }), "{error}");
    assert!(error.to_string().contains(WHY), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_depot_sees_no_more_is_sent_though_an_earlier_answer_is_unheard() {
    let authority = Authority::new(JOB).unwrap();
    let (played, writer) = (Played::new(&authority), writer(&authority, Reach::Host));
    let blind = async {
        let connection = played.connected().await;
        stops_after_two_panes(&connection, Answer::Unseen).await;
        let (mut send, receive, offers) = offered(&connection).await;
        let nothing = Answer::Wanted {
            offers: vec![],
            looks: false,
        };
        say(&mut send, &[nothing, Answer::Durable]).await;
        (connection, receive, offers.len())
    };
    let pieces = pieces();
    let put = writer.put(played.at, snapshot(), &pieces, || ());
    let ((_connection, _receive, offered), put) = soon(async { tokio::join!(blind, put) }).await;
    put.unwrap();
    assert_eq!(offered, pieces.len());
}

#[tokio::test]
async fn who_asks_for_pieces_hears_why_there_are_none_though_its_list_was_not_read() {
    let refuser = Refuser::new(Role::Checkpoint, CERTIFIED, Purpose::Peer);
    let refusing = refuser.refuse(Manner::Answers, Answer::Refused { reason: WHY.to_owned() });
    let reader = writer(&refuser.authority, Reach::Network);
    let asked = vec![PieceHash::new([1; 32]); ROUND_PIECES];
    let got = soon(reader.get(at(refuser.address()), &asked, |_, _| {})).await;
    let error = got.unwrap_err();
    assert!(matches!(error, DepotError::Refused { .. }), "{error}");
    assert!(error.to_string().contains(WHY), "{error}");
    drop(reader);
    refusing.abort();
}
