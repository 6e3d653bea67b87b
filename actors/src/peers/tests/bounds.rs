//! What a worker with a certificate may cost another worker that never reads what it is sent.

use std::time::Instant;

use quinn::VarInt;
use sardana_net::quic::limits::{PEER_WINDOW_BYTES, STRANGER_WINDOW_BYTES, UNNAMED_STREAMS};
use sardana_protocol::limits::MAX_LIVES_AHEAD;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::limits::{MAX_GENERATIONS_AHEAD, MAX_PARKED, PARKED_FOR};
use super::*;

/// What has gone out by then is all that goes out.
const NOTHING_MORE: Duration = Duration::from_secs(1);

/// So long a busy host may need to send anything, before all has gone that may.
const NOTHING_AT_ALL: Duration = Duration::from_secs(10);

fn key(generation: Generation) -> LinkKey {
    let (slot, hop) = (Which::First, 0);
    LinkKey { generation, slot, hop }
}

fn name_all(of: &Peers, ring: &Ring) {
    of.name(PeerGroup::Present, ring.members.iter().map(|member| member.worker));
}

#[tokio::test]
async fn a_worker_parks_links_in_its_own_room_alone() {
    let (workers, ring) = workers(3);
    name_all(&workers[0], &ring);
    let mut streams = Vec::new();
    for count in 0..MAX_PARKED as u64 {
        streams.push(claim(&workers[1], ring.members[0], key(generation(count + 7)), workers[1].own).await);
    }
    until(|| workers[0].table.parked() == MAX_PARKED).await;
    // Over another connection: one has no more streams.
    workers[1].slot(workers[0].own).doubt();
    let one_more = claim(&workers[1], ring.members[0], key(generation(5)), workers[1].own).await;
    soon(one_more.stopped()).await.unwrap();
    // The other worker's links have room nevertheless, and so do those of the generation that all are about to make.
    let _others = claim(&workers[2], ring.members[0], key(generation(6)), workers[2].own).await;
    until(|| workers[0].table.parked() == MAX_PARKED + 1).await;
    // The fence frees the room.
    workers[0].fence(generation(MAX_PARKED as u64 + 7));
    assert_eq!(workers[0].table.parked(), 0);
}

#[tokio::test]
async fn a_link_of_a_generation_that_can_never_come_is_refused() {
    let (workers, ring) = workers(2);
    let from = |generation| claim(&workers[1], ring.members[0], key(generation), workers[1].own);
    workers[0].fence(generation(5));
    let life = |lives, count| Generation::new(Incarnation::new(1 + lives), count);
    for refused in [
        life(0, u64::MAX),
        life(0, 5 + MAX_GENERATIONS_AHEAD + 1),
        life(1, u64::MAX),
        life(MAX_LIVES_AHEAD + 1, 1),
        life(u64::MAX - 1, 1),
    ] {
        let stream = from(refused).await;
        let code = soon(stream.stopped()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(1)), "{refused}");
    }
    let mut kept = Vec::new();
    for parked in [life(0, 5 + MAX_GENERATIONS_AHEAD), life(1, 1), life(MAX_LIVES_AHEAD, 3)] {
        kept.push(from(parked).await);
    }
    until(|| workers[0].table.parked() == kept.len()).await;
}

#[tokio::test]
async fn a_link_that_nobody_expects_is_not_kept_for_ever() {
    let (workers, ring) = workers(2);
    let old = claim(&workers[1], ring.members[0], key(generation(7)), workers[1].own).await;
    until(|| workers[0].table.parked() == 1).await;
    name_all(&workers[0], &ring);
    tokio::time::pause();
    tokio::time::advance(PARKED_FOR).await;
    tokio::time::resume();
    workers[1].slot(workers[0].own).doubt();
    let _new = claim(&workers[1], ring.members[0], key(generation(8)), workers[1].own).await;
    // It ends, whether it is stopped or its connection was idle for so long.
    let _ = soon(old.stopped()).await;
    until(|| workers[0].table.parked() == 1).await;
}

/// Opens as many links as it may, of generations to come, and sends as much on each as goes, once `admitted` of them have said what they are: a first message could
/// wait behind what others send until its link is refused. Over the connection that there is, if there is one. Returns how many links, how many bytes in all, and whether no more goes: a busy host may not have come to that by the time at which links are
/// given up for their age.
async fn flood(workers: &[Worker], ring: &Ring, (links, admitted): (usize, usize), enough: usize) -> (usize, usize, bool) {
    let parked_until = Instant::now() + PARKED_FOR;
    let connection = workers[1].dial(ring.members[0]).await.unwrap();
    let (told, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let mut sending = JoinSet::new();
    let all = Arc::new(Barrier::new(admitted));
    for count in 0..links as u64 {
        let (connection, told, all) = (connection.clone(), told.clone(), Arc::clone(&all));
        let hello = LinkHello {
            job: workers[1].credentials.job(),
            key: key(generation(count + 7)),
            from: workers[1].own,
        };
        sending.spawn(async move {
            let mut stream = connection.open_uni().await.unwrap();
            // One that is given up before it has said what it is costs nothing.
            if write_frame(&mut stream, &hello, STREAM_HELLO_BYTES).await.is_err() {
                return;
            }
            told.send((1, 0)).unwrap();
            all.wait().await;
            let chunk = vec![0; 1 << 16];
            while let Ok(bytes) = stream.write(&chunk).await {
                told.send((0, bytes)).unwrap();
            }
        });
    }
    let (mut opened, mut bytes) = (0, 0);
    while Instant::now() < parked_until {
        // By the time at which links are given up none goes, and tells nothing.
        let until = Instant::now() + if bytes < enough { NOTHING_AT_ALL } else { NOTHING_MORE };
        let left = until.min(parked_until).saturating_duration_since(Instant::now());
        match timeout(left, sent.recv()).await {
            Ok(Some((links, more))) => (opened, bytes) = (opened + links, bytes + more),
            Err(_) if until > parked_until => break,
            Ok(None) | Err(_) => return (opened, bytes, true),
        }
    }
    (opened, bytes, false)
}

#[tokio::test]
async fn who_is_not_named_costs_what_a_stranger_does() {
    let (workers, ring) = workers(2);
    // First messages are read, and so no longer count.
    let window = STRANGER_WINDOW_BYTES as usize;
    let admitted = UNNAMED_STREAMS as usize;
    let (opened, bytes, _) = flood(&workers, &ring, (2 * admitted, admitted), window / 2).await;
    assert!(opened <= UNNAMED_STREAMS as usize, "{opened} links were opened");
    assert!(
        bytes > 0 && bytes <= window + opened * STREAM_HELLO_BYTES,
        "{bytes} bytes were taken in"
    );
}

#[tokio::test]
async fn who_is_named_costs_its_window_whatever_it_opens() {
    // Whether it has dialled, or was dialled.
    for dialled in [false, true] {
        let (workers, ring) = workers(2);
        for worker in &workers {
            name_all(worker, &ring);
        }
        if dialled {
            workers[0].dial(ring.members[1]).await.unwrap();
            until(|| workers[1].slot(workers[0].own).live.read(Option::is_some)).await;
        }
        let window = PEER_WINDOW_BYTES as usize;
        // First messages are read, and count or not.
        let hellos = MAX_PARKED * STREAM_HELLO_BYTES;
        let (least, most) = (window - hellos, window + hellos);
        let (opened, bytes, is_all) = flood(&workers, &ring, (MAX_PARKED, MAX_PARKED), least).await;
        let least = if is_all { least } else { 1 };
        assert!(opened > 0);
        assert!(
            (least..=most).contains(&bytes),
            "{bytes} bytes were taken in, expected {least} to {most}, dialled: {dialled}"
        );
        assert_eq!(workers[0].connections(), 1, "over that one");
    }
}

#[tokio::test]
async fn connections_of_one_worker_are_bounded_and_the_oldest_goes_first() {
    let (workers, ring) = workers(2);
    name_all(&workers[0], &ring);
    let mut dialled = Vec::new();
    for _ in 0..CONNECTIONS_OF_PEER + 2 {
        workers[1].slot(workers[0].own).doubt();
        dialled.push(
            connect(
                &workers[1].endpoint,
                ring.members[0].address,
                PeerIdentity::worker(workers[1].credentials.job(), workers[0].own),
                CONNECT_DEADLINE,
            )
            .await
            .unwrap(),
        );
    }
    for oldest in &dialled[..2] {
        soon(oldest.closed()).await;
    }
    assert!(dialled[2..].iter().all(|connection| connection.close_reason().is_none()));
}

#[tokio::test]
async fn of_one_who_is_not_named_nothing_stays() {
    let (workers, ring) = workers(2);
    let connection = workers[1].dial(ring.members[0]).await.unwrap();
    until(|| workers[0].unnamed.taken() == 1).await;
    tokio::time::pause();
    timeout(2 * UNNAMED_DEADLINE, connection.closed()).await.unwrap();
    until(|| workers[0].unnamed.taken() == 0 && workers[0].slots.lock().unwrap().is_empty()).await;
}

/// As of a donor that a joiner is told of, and no member of its first generation.
#[tokio::test]
async fn of_one_who_was_dialled_and_is_not_named_nothing_stays() {
    let (workers, ring) = workers(2);
    let connection = workers[1].dial(ring.members[0]).await.unwrap();
    assert_eq!(workers[1].slots.lock().unwrap().len(), 1);
    connection.close(0_u32.into(), b"");
    until(|| workers[1].slots.lock().unwrap().is_empty()).await;
}
