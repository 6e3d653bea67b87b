//! A depot on the writer's own host: pieces are shown to it in memory, and where it cannot see them they are sent as ever.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use sardana_actors::depot::limits::{PANE_BYTES, WORTH_SHOWING};
use sardana_actors::depot::{Patience, Reach};
use sardana_net::quic::{Door, Purpose, accept, bind_server};
use sardana_net::trust::{Authority, Role, RotatingCredentials};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_storage::store::PinId;

use crate::raw::{Answer, MOST, Raw, Request, WindowAt, offers, put};
use crate::site::{
    LOOPBACK, PATIENCE, Place, WORKER, authority, bytes_of, client, client_at, names, pieces, puts, reads, snapshot, soon,
    until,
};

/// As long as a piece can be, none of them alike.
fn long(seed: u8, count: u8) -> Vec<(PieceHash, Bytes)> {
    let piece = |number| {
        let bytes = Bytes::from([vec![seed, number], vec![0; PIECE_BYTES - 2]].concat());
        (PieceHash::of(&bytes), bytes)
    };
    (0..count).map(piece).collect()
}

/// Between the panes and the mark there is nothing.
const MARK_AT: u64 = 2 * PANE_BYTES as u64;

/// A window that a test fills by hand.
fn window() -> (File, WindowAt) {
    let memory = memfd_create("sardana-window", MemfdFlags::CLOEXEC).unwrap();
    let (file, mark) = (File::from(memory), [0x5a; 16]);
    file.write_all_at(&mark, MARK_AT).unwrap();
    let at = WindowAt {
        process: std::process::id(),
        descriptor: u32::try_from(file.as_raw_fd()).unwrap(),
        mark,
    };
    (file, at)
}

/// Begins to put these, all of which are wanted.
async fn begun(authority: &Authority, place: &Place, (at, looks): (WindowAt, bool), all: &[(PieceHash, Bytes)]) -> Raw {
    let mut raw = Raw::dial(authority, place, &put(all.len() as u32, Some(at))).await;
    raw.say(&offers(all)).await;
    let wanted = Answer::Wanted {
        offers: (0..all.len() as u32).collect(),
        looks,
    };
    assert_eq!(raw.hear().await, wanted);
    raw
}

#[tokio::test]
async fn pieces_are_shown_to_a_depot_on_this_host_and_few_of_them_sent() {
    let authority = authority();
    let shows = client(&authority, WORKER);
    let sends = client_at(&authority, WORKER, (Patience::default(), Reach::Network));
    // Neither of them fills its panes.
    for (count, worth_it) in [(20, false), (200, true)] {
        for (worker, seed) in [(&shows, 1), (&sends, 2)] {
            let place = Place::new(&authority, 1);
            let all = [pieces(seed, count), long(seed, if worth_it { 20 } else { 0 })].concat();
            let bytes = bytes_of(&all);
            assert_eq!(bytes >= WORTH_SHOWING as u64, worth_it);
            let seen = if seed == 1 && worth_it { bytes } else { 0 };
            // The second time nothing is wanted.
            for _ in 0..2 {
                puts(worker, place.at, 5, &all).await;
                assert_eq!((place.server.received(), place.server.seen()), (bytes, seen));
            }
            reads(&sends, &[place.at], &all).await;
        }
    }
}

#[tokio::test]
async fn a_depot_that_does_not_see_the_window_is_sent_the_bytes() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (file, at) = window();
    let short = tempfile::tempfile().unwrap();
    let descriptor = u32::try_from(short.as_raw_fd()).unwrap();
    for (seed, unseen) in [
        WindowAt { mark: [0; 16], ..at },
        WindowAt { process: 0, ..at },
        WindowAt { descriptor, ..at },
    ]
    .into_iter()
    .enumerate()
    {
        let all = pieces(seed as u8, 5);
        let mut raw = begun(&authority, &place, (unseen, false), &all).await;
        for (_, bytes) in &all {
            raw.send.write_all(bytes).await.unwrap();
        }
        assert_eq!(raw.hear().await, Answer::Durable);
        assert_eq!(place.server.seen(), 0);
    }
    drop(file);
}

#[tokio::test]
async fn numbers_of_shown_pieces_beyond_bounds_are_refused() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (_file, at) = window();
    let all = long(1, 10);
    // None, more than there are, and more than a pane holds.
    for shown in [0_u32, 11, u32::MAX, 9] {
        let mut raw = begun(&authority, &place, (at, true), &all).await;
        raw.say(&shown).await;
        let reason = raw.refusal().await;
        let expected = format!("expected 1 to 10 pieces of at most {PANE_BYTES} bytes to be shown, found {shown}");
        assert!(reason.contains(&expected), "{reason}");
    }
    assert_eq!(place.server.seen(), 0);
}

#[tokio::test]
async fn a_writer_is_told_of_a_window_that_is_gone_when_it_is_looked_at() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (file, at) = window();
    let all = long(1, 10);
    let mut raw = begun(&authority, &place, (at, true), &all).await;
    file.set_len(0).unwrap();
    raw.say(&8_u32).await;
    assert_eq!(raw.hear().await, Answer::Unseen);
}

/// A depot that says that it looks, and then that it does not see: it is sent the bytes at once, and shown nothing any more.
#[tokio::test]
async fn who_does_not_see_any_more_is_sent_the_bytes() {
    let authority = authority();
    let own = authority.issue(Role::Checkpoint, 1_001).unwrap();
    let identity = own.identity();
    let endpoint = bind_server(RotatingCredentials::from(own), Purpose::Peer, LOOPBACK).unwrap();
    let at = DepotAddress {
        depot: DepotId::new(1),
        certified: 1_001,
        address: endpoint.local_addr().unwrap(),
    };
    let all = long(1, 8);
    let worker = client(&authority, WORKER);
    let depot = async {
        let knock = Door::new(endpoint.clone()).next().await.unwrap();
        let (connection, _) = accept(knock, identity, PATIENCE).await.unwrap();
        let mut asked = Vec::new();
        for _ in 0..3 {
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            let request: Request = read_frame(&mut receive, MOST).await.unwrap().unwrap();
            let Request::Put { window, .. } = request else {
                panic!("a put")
            };
            let offered: Vec<(PieceHash, u32)> = read_frame(&mut receive, MOST).await.unwrap().unwrap();
            assert_eq!(offered, offers(&all));
            let wanted = Answer::Wanted {
                offers: (0..8).collect(),
                looks: window.is_some(),
            };
            write_frame(&mut send, &wanted, MOST).await.unwrap();
            let last = if window.is_some() {
                let shown: u32 = read_frame(&mut receive, MOST).await.unwrap().unwrap();
                assert_eq!(shown, 8);
                Answer::Unseen
            } else {
                let mut found = vec![0; 8 * PIECE_BYTES];
                receive.read_exact(&mut found).await.unwrap();
                assert!(found.chunks(PIECE_BYTES).eq(all.iter().map(|(_, bytes)| &bytes[..])));
                Answer::Durable
            };
            write_frame(&mut send, &last, MOST).await.unwrap();
            asked.push(window.is_some());
        }
        (asked, connection)
    };
    let putting = async {
        for _ in 0..2 {
            worker.put(at, snapshot(5), &all, || ()).await.unwrap();
        }
    };
    let ((windows, _connection), ()) = soon(async { tokio::join!(depot, putting) }).await;
    assert_eq!(windows, [true, false, false]);
}

/// More pieces than are offered at once, of which the first have come before; one of them is empty.
#[tokio::test]
async fn what_is_offered_in_several_rounds_is_shown_as_far_as_it_is_wanted() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let small = |number: u32| {
        let bytes = Bytes::from([number.to_le_bytes().as_slice(), &[7; 2_000]].concat());
        (PieceHash::of(&bytes), bytes)
    };
    let empty = (PieceHash::of(b""), Bytes::new());
    let all: Vec<_> = (0..9_000).map(small).chain([empty]).chain(long(1, 20)).collect();
    let sends = client_at(&authority, WORKER, (Patience::default(), Reach::Network));
    puts(&sends, place.at, 4, &all[..4_200]).await;
    puts(&client(&authority, WORKER), place.at, 5, &all).await;
    assert_eq!(place.server.seen(), bytes_of(&all[4_200..]));
    for (name, bytes) in &all {
        assert_eq!(place.store.read(*name).unwrap(), bytes[..]);
    }
}

#[tokio::test]
async fn a_writer_that_dies_while_it_shows_leaves_nothing_that_counts_as_durable() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (file, at) = window();
    let all = long(1, 20);
    let mut raw = begun(&authority, &place, (at, true), &all).await;
    for (pane, shown) in all[..16].chunks(8).enumerate() {
        for (number, (_, bytes)) in shown.iter().enumerate() {
            let begin = pane * PANE_BYTES + number * PIECE_BYTES;
            file.write_all_at(bytes, begin as u64).unwrap();
        }
        raw.say(&8_u32).await;
        assert_eq!(raw.hear().await, Answer::Seen);
    }
    assert_eq!(place.server.seen(), bytes_of(&all[..16]));
    until(|| place.server.received() >= bytes_of(&all[..16])).await;
    raw.connection.close(0_u32.into(), b"it dies");
    let pin = PinId::new(99);
    assert_eq!(
        place.store.pin(pin, &names(&all)),
        names(&all),
        "nothing was said to be durable"
    );
    puts(&client(&authority, WORKER), place.at, 5, &all).await;
    assert!(place.store.pin(pin, &names(&all)).is_empty());
}
