//! Links of workers of one host: through memory that they share, and through nothing that another process could get at.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdListener, UnixStream as StdStream};

use sardana_collectives::links::SharedMemory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::peers::near::{NearHello, encoded, send};

/// Where a worker would be met.
fn address_of(peers: &Peers) -> UnixAddress {
    let port = peers.local_address().unwrap().port();
    let name = format!("sardana/{}/{}/{port}", peers.credentials.job(), peers.own);
    UnixAddress::from_abstract_name(name).unwrap()
}

/// Makes the links of a generation of two, and tells how many of them go through shared memory, of how many.
async fn near_of(workers: &[Worker], ring: &Ring) -> (usize, usize) {
    let (one, two) = tokio::join!(link(&workers[0], ring, 0), link(&workers[1], ring, 1));
    let ends = [one.unwrap(), two.unwrap()];
    let senders = || {
        ends.iter()
            .flat_map(|ends| [&ends.first, &ends.steady])
            .flat_map(|plan| plan.outgoing.values())
    };
    let near = senders().filter(|sender| matches!(sender, LinkSender::SharedMemory(_)));
    (near.count(), senders().count())
}

#[tokio::test]
async fn workers_of_one_host_share_memory_unless_they_are_told_not_to() {
    let (near, ring) = workers(2);
    assert_eq!(near_of(&near, &ring).await, (4, 4));
    let (far, ring) = workers_linked(2, LinkChoice::Quic, |_| pieces());
    assert_eq!(near_of(&far, &ring).await, (0, 4));
    // One that listens for none is not met.
    let listening = StdStream::connect_addr(&address_of(&far[0]));
    assert!(listening.is_err());
}

#[tokio::test]
async fn a_process_without_a_secret_of_the_connection_gets_no_link_in() {
    let (workers, ring) = workers(2);
    // There is a connection, of which the stranger knows all that can be seen.
    workers[0].dial(ring.members[1]).await.unwrap();
    let (key, from) = link_to(&ring, 1);
    let hello = NearHello {
        key,
        from,
        proof: [7; 32],
    };
    let stranger = StdStream::connect_addr(&address_of(&workers[1])).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let mut stranger = UnixStream::from_std(stranger).unwrap();
    let (_own, memory) = SharedMemory::create().unwrap();
    send(&stranger, &encoded(&hello).unwrap(), &memory).unwrap();
    let mut answer = Vec::new();
    soon(stranger.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, [0; 0], "nothing is proved to it");
    assert_eq!(workers[1].table.parked(), 0);
}

#[tokio::test]
async fn nonsense_at_the_socket_is_refused_and_others_are_met() {
    let (workers, ring) = workers(2);
    for nonsense in [&[][..], &[0xff; 200]] {
        let stranger = StdStream::connect_addr(&address_of(&workers[1])).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let mut stranger = UnixStream::from_std(stranger).unwrap();
        if !nonsense.is_empty() {
            stranger.write_all(nonsense).await.unwrap();
            let mut answer = Vec::new();
            // It ends, or is reset, since what it sent was not read.
            let _ = soon(stranger.read_to_end(&mut answer)).await;
            assert_eq!(answer, [0; 0]);
        }
    }
    assert_eq!(near_of(&workers, &ring).await, (4, 4));
}

#[tokio::test]
async fn a_process_that_sits_at_a_workers_name_is_found_out() {
    let (workers, ring) = workers(2);
    let (key, from) = link_to(&ring, 1);
    let sender = workers.iter().find(|worker| worker.own == from).unwrap();
    // The right one listens elsewhere: where the sender looks, there is another.
    let impostor = MemberAddress {
        address: SocketAddr::new(ring.members[1].address.ip(), 1),
        ..ring.members[1]
    };
    let name = format!("sardana/{}/{}/1", sender.credentials.job(), impostor.worker);
    let listener = StdListener::bind_addr(&UnixAddress::from_abstract_name(name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = UnixListener::from_std(listener).unwrap();
    let connection = sender.dial(ring.members[1]).await.unwrap();
    let answering = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        socket.writable().await.unwrap();
        socket.try_write(&[7; 32]).unwrap();
        socket
    });
    assert!(sender.open_near(key, impostor, &connection).await.is_none());
    drop(answering.await.unwrap());
}
