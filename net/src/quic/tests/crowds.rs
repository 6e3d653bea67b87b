//! Doors whose room for strangers is full of handshakes that are never finished: which clients get in all the same, and which keep places.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::*;
use crate::quic::places::Room;

/// So many strangers' handshakes fill the room: fewer than those at which newcomers have to prove their address.
const MOST: usize = 4;

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// The other end's part of a handshake is at least as long as this; a refusal is shorter.
const ANSWER_BYTES: usize = 1_000;

const _: () = assert!(2 * MOST < crate::quic::limits::RETRY_ABOVE_HANDSHAKES);

/// A room in which a handshake may stay for `fair_time` beside others of the same sender.
fn room(fair_time: Duration) -> Room {
    Room {
        most: MOST,
        each: MOST,
        fair_time,
        leaving: 4 * MOST,
    }
}

/// What the other end does with a stranger's first datagram.
#[derive(Debug, PartialEq)]
enum Answer {
    /// The handshake goes on, and has a place until it is given up.
    Begun,
    Refused,
}

/// A coordinator that lets in every peer that finishes a handshake.
struct House {
    authority: Authority,
    coordinator: PeerIdentity,
    address: SocketAddr,
    door: Arc<Door>,
    came: UnboundedReceiver<(PeerIdentity, Connection)>,
    serving: JoinHandle<()>,
    strangers: JoinSet<()>,
}

impl House {
    fn new(room: Room) -> Self {
        let authority = authority(JOB);
        let credentials = authority.issue(Role::Coordinator, 0).unwrap();
        let (listening, address) = server(&credentials, Purpose::Control);
        let door = Arc::new(Door::with_room(listening, room));
        let (tell, came) = unbounded_channel();
        let coordinator = credentials.identity();
        let at = Arc::clone(&door);
        let serving = tokio::spawn(async move {
            let serve = move |peer, connection| {
                tell.send((peer, connection)).unwrap();
                ready(())
            };
            at.let_in(coordinator, serve).await;
        });
        Self {
            authority,
            coordinator,
            address,
            door,
            came,
            serving,
            strangers: JoinSet::new(),
        }
    }

    /// A worker's endpoint at 127.0.0.1.
    fn worker(&self, id: u64) -> Endpoint {
        let credentials = self.authority.issue(Role::Worker, id).unwrap();
        bind_client(credentials, Purpose::Control, self.address).unwrap()
    }

    /// The worker dials, and the house says which peer has come.
    async fn comes(&mut self, id: u64) -> Result<PeerIdentity, ConnectError> {
        let endpoint = self.worker(id);
        let connection = connect(&endpoint, self.address, self.coordinator, CONNECT_DEADLINE).await?;
        let (peer, _) = timeout(PATIENCE, self.came.recv()).await.unwrap().unwrap();
        drop(connection);
        Ok(peer)
    }

    /// A stranger begins a handshake from `ip` and never goes on. Its socket stays: else the door would be told that nothing listens there.
    async fn stranger(&mut self, ip: [u8; 4]) -> Answer {
        let first = first_datagram(self.worker(0)).await;
        let socket = UdpSocket::bind((IpAddr::from(ip), 0)).await.unwrap();
        socket.send_to(&first, self.address).await.unwrap();
        let mut heard = vec![0; 1 << 16];
        let bytes = timeout(PATIENCE, socket.recv(&mut heard)).await.unwrap().unwrap();
        self.strangers
            .spawn(async move { while socket.recv(&mut heard).await.is_ok() {} });
        if bytes < ANSWER_BYTES {
            Answer::Refused
        } else {
            Answer::Begun
        }
    }

    /// That many of them, each from the same address.
    async fn crowd(&mut self, ip: [u8; 4], number: usize) {
        for at in 0..number {
            assert_eq!(self.stranger(ip).await, Answer::Begun, "the one numbered {at} of {ip:?}");
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// With which a handshake begins: a whole hello.
async fn first_datagram(from: Endpoint) -> Vec<u8> {
    let front = UdpSocket::bind(ANY_PORT).await.unwrap();
    let name = PeerIdentity::coordinator(JOB).server_name();
    let dialling = from.connect(front.local_addr().unwrap(), &name).unwrap();
    let mut first = vec![0; 1 << 16];
    let bytes = timeout(PATIENCE, front.recv(&mut first)).await.unwrap().unwrap();
    drop(dialling);
    first.truncate(bytes);
    first
}

/// Carries datagrams between a client and the door, which sees them come from another address.
struct Detour {
    front: UdpSocket,
    back: UdpSocket,
    dialling: SocketAddr,
    door: SocketAddr,
}

impl Detour {
    async fn new(by: [u8; 4], dialling: &Endpoint, door: SocketAddr) -> Self {
        Self {
            front: UdpSocket::bind(ANY_PORT).await.unwrap(),
            back: UdpSocket::bind((IpAddr::from(by), 0)).await.unwrap(),
            dialling: dialling.local_addr().unwrap(),
            door,
        }
    }

    /// Brings the first datagram to the door, and returns what that answers; the client has yet to hear it.
    async fn begin(&self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let sent = timeout(PATIENCE, self.front.recv(&mut bytes)).await.unwrap().unwrap();
        self.back.send_to(&bytes[..sent], self.door).await.unwrap();
        let heard = timeout(PATIENCE, self.back.recv(&mut bytes)).await.unwrap().unwrap();
        bytes.truncate(heard);
        bytes
    }

    /// Brings everything both ways, after `first`.
    async fn go_on(self, first: Vec<u8>) {
        self.front.send_to(&first, self.dialling).await.unwrap();
        let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                sent = self.front.recv(&mut there) => self.back.send_to(&there[..sent.unwrap()], self.door).await.unwrap(),
                heard = self.back.recv(&mut back) => self.front.send_to(&back[..heard.unwrap()], self.dialling).await.unwrap(),
            };
        }
    }
}

const AN_HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_newcomer_gets_in_where_the_strangers_of_another_address_fill_the_room() {
    let mut house = House::new(room(AN_HOUR));
    house.crowd([127, 0, 0, 2], MOST).await;
    assert_eq!(house.stranger([127, 0, 0, 2]).await, Answer::Refused, "the room is full");
    assert_eq!(house.comes(7).await.unwrap().id, 7);
}

#[tokio::test]
async fn a_known_address_gets_in_where_strangers_of_many_addresses_fill_the_room() {
    let mut house = House::new(room(AN_HOUR));
    for last in 2..2 + MOST as u8 {
        house.crowd([127, 0, 0, last], 1).await;
    }
    let address = house.address;
    assert_eq!(
        house.comes(7).await,
        Err(ConnectError::Busy { address }),
        "it is one more of many"
    );
    house.door.know([ANY_PORT]);
    assert_eq!(house.comes(7).await.unwrap().id, 7);
}

#[tokio::test]
async fn the_crowd_of_one_address_does_not_take_the_place_of_another() {
    let mut house = House::new(room(Duration::ZERO));
    // The oldest of all is in no hurry.
    let slow = house.worker(9);
    let detour = Detour::new([127, 0, 0, 3], &slow, house.address).await;
    let front = detour.front.local_addr().unwrap();
    let coordinator = house.coordinator;
    let dialling = tokio::spawn(async move { connect(&slow, front, coordinator, PATIENCE).await });
    let first = detour.begin().await;
    assert!(first.len() >= ANSWER_BYTES, "its handshake is begun");
    house.crowd([127, 0, 0, 2], 2 * MOST).await;
    let mut carrying = JoinSet::new();
    carrying.spawn(detour.go_on(first));
    dialling.await.unwrap().unwrap();
    let (peer, _) = timeout(PATIENCE, house.came.recv()).await.unwrap().unwrap();
    assert_eq!(peer.id, 9);
}
