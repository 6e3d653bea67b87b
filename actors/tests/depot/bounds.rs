//! Peers that say what they must not, spoken by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sardana_actors::depot::{DepotError, Patience, Reach};
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::PIECE_BYTES;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::raw::{Answer, Raw, Request, connection, offers, put};
use crate::site::{Place, WORKER, authority, client, client_at, names, pieces, puts, snapshot, soon, until};

#[tokio::test]
async fn numbers_and_lengths_beyond_bounds_are_refused() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let reason = Raw::dial(&authority, &place, &put(u32::MAX, None)).await.refusal().await;
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
        let mut raw = Raw::dial(&authority, &place, &put(1, None)).await;
        raw.say(&offers).await;
        let reason = raw.refusal().await;
        assert!(reason.contains("expected"), "{reason}");
    }
    let mut raw = Raw::dial(&authority, &place, &put(100_000, None)).await;
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
    for (reach, seed) in [(Reach::Network, 1), (Reach::Host, 2)] {
        let worker = client_at(&authority, WORKER, (Patience::default(), reach));
        let mut wrong = pieces(seed, 60);
        wrong[40].1 = Bytes::from(wrong[40].1.iter().map(|byte| !byte).collect::<Vec<u8>>());
        let putting = worker.put(place.at, snapshot(5), &wrong, || ());
        let error = soon(putting).await.unwrap_err();
        assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
        let expected = format!("expected the bytes of piece {}", wrong[40].0);
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(place.store.read(wrong[40].0).is_err());
        assert_eq!(place.server.seen() > 0, reach == Reach::Host && cfg!(target_os = "linux"));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_put_leaves_nothing_that_counts_as_durable() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let all = pieces(1, 200);
    let mut raw = Raw::dial(&authority, &place, &put(all.len() as u32, None)).await;
    raw.say(&offers(&all)).await;
    let wanted = Answer::Wanted {
        offers: (0..all.len() as u32).collect(),
        looks: false,
    };
    assert_eq!(raw.hear().await, wanted);
    for (_, bytes) in &all[..190] {
        raw.send.write_all(bytes).await.unwrap();
    }
    raw.connection.close(0_u32.into(), b"it dies");
    until(|| place.server.received() > 0).await;
    let pin = sardana_storage::store::PinId::new(99);
    assert_eq!(
        place.store.pin(pin, &names(&all)),
        names(&all),
        "nothing was said to be durable, and nothing is"
    );
    // Another try finishes it.
    puts(&client(&authority, WORKER), place.at, 5, &all).await;
    assert!(place.store.pin(pin, &names(&all)).is_empty());
}

/// Counts the lines that say that a stream broke.
struct Broken(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Broken {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().module_path() == Some("sardana_actors::depot::server") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn who_breaks_off_what_it_began_fills_no_log() {
    let lines = Arc::new(AtomicUsize::new(0));
    let layer = Broken(Arc::clone(&lines));
    let _until = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (connection, _endpoint) = connection(&authority, &place, WORKER).await;
    for _ in 0..2_000 {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        // A frame of nothing, and then no more.
        send.write_all(&[0; 4]).await.unwrap();
        send.finish().unwrap();
        let _ = soon(receive.read_to_end(1_000)).await;
    }
    let lines = lines.load(Ordering::Relaxed);
    assert!((1..1_000).contains(&lines), "{lines} lines");
}
