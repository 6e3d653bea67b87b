//! What a process with a certificate may cost a checkpoint actor that never reads what it sends.

use std::time::Duration;

use quinn::Connection;
use sardana_net::quic::limits::{PEER_UNI_STREAMS, PEER_WINDOW_BYTES, STRANGER_WINDOW_BYTES, UNNAMED_STREAMS};
use sardana_protocol::words::WorkerId;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::raw::connection;
use crate::site::{Place, WORKER, authority};

/// What has not gone out by then does not go out.
const NOTHING_MORE: Duration = Duration::from_millis(500);

/// Opens streams that no checkpoint actor reads, and sends as much on each as goes. Returns how many streams and bytes.
async fn flood(connection: &Connection, streams: u32) -> (usize, usize) {
    let (told, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let mut sending = JoinSet::new();
    for _ in 0..streams {
        let (connection, told) = (connection.clone(), told.clone());
        sending.spawn(async move {
            let mut stream = connection.open_uni().await.unwrap();
            told.send((1, 0)).unwrap();
            let chunk = vec![0; 1 << 16];
            while let Ok(bytes) = stream.write(&chunk).await {
                told.send((0, bytes)).unwrap();
            }
        });
    }
    let (mut opened, mut bytes) = (0, 0);
    while let Ok(Some((streams, more))) = timeout(NOTHING_MORE, sent.recv()).await {
        (opened, bytes) = (opened + streams, bytes + more);
    }
    (opened, bytes)
}

#[tokio::test]
async fn who_is_not_named_costs_what_a_stranger_does() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (connection, _endpoint) = connection(&authority, &place, WorkerId::new(WORKER.get() + 1)).await;
    let (opened, bytes) = flood(&connection, 2 * UNNAMED_STREAMS).await;
    assert!(opened <= UNNAMED_STREAMS as usize, "{opened} streams were opened");
    let window = STRANGER_WINDOW_BYTES as usize;
    assert!(bytes > 0 && bytes <= window, "{bytes} bytes were taken in");
}

#[tokio::test]
async fn who_is_named_costs_its_window_whatever_it_opens() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let (connection, _endpoint) = connection(&authority, &place, WORKER).await;
    let (opened, bytes) = flood(&connection, PEER_UNI_STREAMS).await;
    assert!(opened > 0);
    let window = PEER_WINDOW_BYTES as usize;
    assert!(
        (window / 8 * 7..=window).contains(&bytes),
        "{bytes} bytes were taken in, expected about {window}"
    );
}
