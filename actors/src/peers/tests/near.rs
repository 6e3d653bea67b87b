//! Links of workers of one host: through memory that they share, and through nothing that another process could get at.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdListener, UnixStream as StdStream};

use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::SharedMemory;
use sardana_collectives::links::descriptors::send_with_memory;
use sardana_protocol::member::Member;
use sardana_protocol::messages::{LinkKind, Passed};
use sardana_protocol::snapshot::Share;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::fetching::donate;
use super::*;
use crate::peers::fetch::Request;
use crate::peers::limits::NEAR_PARKED;
use crate::peers::load::Load;
use crate::peers::meters::Traffic;
use crate::peers::near::{Carries, NearHello, encoded, hash_of};

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
    let near = senders().filter(|sender| sender.kind() == LinkKind::SharedMemory);
    (near.count(), senders().count())
}

#[tokio::test]
async fn workers_of_one_host_share_memory_unless_they_are_told_not_to() {
    let (near, ring) = workers(2);
    assert_eq!(near_of(&near, &ring).await, (4, 4));
    let (far, ring) = workers_linked(2, LinkChoice::Quic, |_| pieces());
    assert_eq!(near_of(&far, &ring).await, (0, 4));
    let hashes = |workers: &[Worker]| workers.iter().map(|worker| worker.peers.host_hash()).collect::<Vec<_>>();
    assert!(hashes(&near)[0].is_some());
    assert_eq!(hashes(&near)[0], hashes(&near)[1]);
    assert_eq!(hashes(&far), [None, None], "and none is told that they could");
    // One that listens for none is not met.
    let listening = StdStream::connect_addr(&address_of(&far[0]));
    assert!(listening.is_err());
}

#[test]
fn processes_that_cannot_share_memory_say_so() {
    let own = hash_of(b"boot", [1, 2], 3);
    assert_eq!(own, hash_of(b"boot", [1, 2], 3));
    let others = [
        hash_of(b"root", [1, 2], 3),
        hash_of(b"boot", [9, 2], 3),
        hash_of(b"boot", [1, 9], 3),
        hash_of(b"boot", [2, 1], 3),
        hash_of(b"boot", [1, 2], 9),
    ];
    assert!(others.iter().all(|other| *other != own), "{others:?}");
}

/// A frame of three bytes over each link of the steady plan; what each end then says of it, but for the path.
async fn traffic_of(workers: &[Worker], ring: &Ring) -> Vec<Traffic> {
    let (one, two) = tokio::join!(link(&workers[0], ring, 0), link(&workers[1], ring, 1));
    let mut ends = [one.unwrap(), two.unwrap()];
    for hop in ring.plan().hops() {
        let header = header(hop.id, PlanSlot::Steady);
        let from = links_of(&mut ends[hop.from.index()], PlanSlot::Steady)
            .outgoing
            .get_mut(&hop.id)
            .unwrap();
        from.send(&header, |payload| payload.copy_from_slice(b"sum")).await.unwrap();
        let to = links_of(&mut ends[hop.to.index()], PlanSlot::Steady)
            .incoming
            .get_mut(&hop.id)
            .unwrap();
        to.receive(&header).await.unwrap();
    }
    workers.iter().map(|worker| worker.traffic().unwrap()).collect()
}

#[tokio::test]
async fn what_passes_the_links_of_two_workers_is_counted_by_kind() {
    for (links, kind) in [(LinkChoice::Auto, LinkKind::SharedMemory), (LinkChoice::Quic, LinkKind::Quic)] {
        let (workers, ring) = workers_linked(2, links, |_| pieces());
        assert_eq!(workers[0].traffic(), None);
        let all = traffic_of(&workers, &ring).await;
        // One hop there and one back, in each of the two plans.
        let passed = Passed { links: 2, bytes: 48 + 3 };
        for (traffic, peer) in all.iter().zip([1, 0]) {
            assert_eq!((traffic.generation, traffic.untold), (generation(1), 0));
            let [line] = traffic.lines[..] else { panic!("{traffic:?}") };
            assert_eq!((line.peer, line.kind), (WorkerId::new(peer), kind));
            assert_eq!((line.outgoing, line.incoming), (passed, passed));
            match line.path {
                Some(path) => assert!(kind == LinkKind::Quic && path.sent_packets > 0 && !path.round_trip.is_zero()),
                None => assert_eq!(kind, LinkKind::SharedMemory),
            }
        }
        // What is over is not told.
        workers[0].fence(generation(2));
        assert_eq!(workers[0].traffic(), None);
    }
}

#[tokio::test]
async fn a_process_without_a_secret_of_the_connection_gets_no_link_in() {
    let (workers, ring) = workers(2);
    // There is a connection, of which the stranger knows all that can be seen.
    workers[0].dial(ring.members[1]).await.unwrap();
    let (key, from) = link_to(&ring, 1);
    let hello = NearHello {
        carries: Carries::Link(key),
        from,
        proof: [7; 32],
    };
    let stranger = StdStream::connect_addr(&address_of(&workers[1])).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let mut stranger = UnixStream::from_std(stranger).unwrap();
    let (_own, memory) = SharedMemory::create().unwrap();
    send_with_memory(&stranger, &encoded(&hello).unwrap(), &memory).unwrap();
    let mut answer = Vec::new();
    soon(stranger.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, [0; 0], "nothing is proved to it");
    assert_eq!(workers[1].table.parked(), 0);
}

/// Only root can become another user: else this is left out.
#[tokio::test]
async fn a_process_of_another_user_gets_no_link_in_though_it_has_the_secret() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root can become another user");
        return;
    }
    let (workers, ring) = workers(2);
    let connection = workers[0].dial(ring.members[1]).await.unwrap();
    let (key, _) = link_to(&ring, 1);
    for is_other in [true, false] {
        let address = address_of(&workers[1]);
        let connected = std::thread::spawn(move || {
            if is_other {
                // Of this thread alone, which ends with it.
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).ok()?;
            }
            Some(StdStream::connect_addr(&address).unwrap())
        });
        let Some(socket) = connected.join().unwrap() else {
            println!("left out: there is no other user that this one may become");
            return;
        };
        socket.set_nonblocking(true).unwrap();
        let mut socket = UnixStream::from_std(socket).unwrap();
        let greeted = soon(workers[0].greet(Carries::Link(key), &mut socket, &connection)).await;
        assert_eq!(greeted.is_err(), is_other, "{greeted:?}");
        if is_other {
            assert_eq!(workers[1].table.parked(), 0);
        }
    }
    until(|| workers[1].table.parked() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_state_is_had_through_memory_within_a_host_and_over_quic_where_that_is_wanted() {
    for links in [LinkChoice::Auto, LinkChoice::Quic] {
        let (pieces, state) = large();
        let (workers, ring) = workers_linked(2, links, |_| Arc::clone(&pieces));
        workers[0].name(PeerGroup::Present, [WorkerId::new(1)]);
        let (donor, driver) = (ring.members[0], &workers[0].driver);
        let training = donate(driver, &ring, state.clone());
        until(|| driver.read(Member::step) == Step::new(1)).await;
        let (step, share) = (Step::new(1), Share::WHOLE);
        let opened = workers[1]
            .open_share(donor, Request::Share { step, share }, state.len())
            .await;
        let (_, load) = opened.unwrap();
        assert_eq!(matches!(load, Load::InMemory(..)), links == LinkChoice::Auto);
        // A transfer that is given up keeps none from the next.
        drop(load);
        let before = workers[1].moved_so_far();
        let found = soon(workers[1].fetch_state(donor, step)).await.unwrap();
        assert!(found == state);
        assert_eq!(
            workers[1].moved_so_far() - before,
            2 * state.len() as u64,
            "fetched, and hashed"
        );
        assert_eq!(workers[1].loads.waiting(), 0);
        driver.end();
        training.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_transfer_through_memory_ends_with_its_donor_and_when_it_is_no_longer_named() {
    for closes in [true, false] {
        let (pieces, state) = large();
        let (workers, ring) = workers_linked(2, LinkChoice::Auto, |_| Arc::clone(&pieces));
        workers[0].name(PeerGroup::Present, [WorkerId::new(1)]);
        let (donor, driver) = (ring.members[0], &workers[0].driver);
        let training = donate(driver, &ring, state.clone());
        until(|| driver.read(Member::step) == Step::new(1)).await;
        let (step, share) = (Step::new(1), Share::WHOLE);
        let opened = workers[1]
            .open_share(donor, Request::Share { step, share }, state.len())
            .await;
        let (_, mut load) = opened.unwrap();
        let mut some = vec![0; CHUNK_BYTES];
        load.receive(donor.worker, &mut some, |_| ()).await.unwrap();
        assert!(some == state[..CHUNK_BYTES]);
        if closes {
            workers[0].close("it ends").await;
        } else {
            workers[0].name(PeerGroup::Present, []);
        }
        // What was on its way comes, and then the end.
        let mut rest = vec![0; state.len()];
        let error = soon(load.receive(donor.worker, &mut rest, |_| ())).await.unwrap_err();
        assert!(matches!(error, FetchError::Broken { .. }), "{error}");
        driver.end();
        training.join().unwrap();
    }
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

/// A worker that is frozen, or has no descriptor left.
#[tokio::test]
async fn a_socket_at_which_nothing_is_answered_keeps_no_link_from_being_made() {
    let (workers, ring) = workers(2);
    let (job, peer) = (workers[0].credentials.job(), ring.members[1].worker);
    let name = UnixAddress::from_abstract_name(format!("sardana/{job}/{peer}/2")).unwrap();
    let _silent = StdListener::bind_addr(&name).unwrap();
    let connection = workers[0].dial(ring.members[1]).await.unwrap();
    let (key, _) = link_to(&ring, 1);
    let opened = workers[0].open_near(Carries::Link(key), (peer, 2), &connection).await;
    assert!(opened.is_none(), "it is given up, and made over QUIC");
}

#[tokio::test]
async fn links_that_wait_for_their_generation_are_few() {
    let (workers, ring) = workers(2);
    let connection = workers[0].dial(ring.members[1]).await.unwrap();
    let (key, _) = link_to(&ring, 1);
    let place = (ring.members[1].worker, ring.members[1].address.port());
    let mut kept = Vec::new();
    for ahead in 0..2 * NEAR_PARKED as u64 {
        let key = LinkKey {
            generation: generation(10 + ahead),
            ..key
        };
        kept.extend(workers[0].open_near(Carries::Link(key), place, &connection).await);
    }
    until(|| workers[1].table.parked() == NEAR_PARKED).await;
    assert_eq!(kept.len(), NEAR_PARKED, "the others are made over QUIC");
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
    let place = (impostor.worker, impostor.address.port());
    let opened = sender.open_near(Carries::Link(key), place, &connection).await;
    assert!(opened.is_none());
    drop(answering.await.unwrap());
}
