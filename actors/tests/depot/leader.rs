//! A coordinator that says what a test wants it to say.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_actors::depot::{Depot, DepotConfig, Opener, start_with};
use sardana_net::quic::limits::HANDSHAKE_DEADLINE;
use sardana_net::quic::{Door, Purpose, accept, bind_server};
use sardana_net::trust::{Authority, PeerIdentity, Role, RotatingCredentials};
use sardana_net::wire::limits::CONTROL_FRAME_BYTES;
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{DepotAddress, Head, Manifest, ManifestKey, Part};
use sardana_protocol::messages::{DepotHello, DepotMessage, DepotOrder, Greeting, Hello};
use sardana_protocol::words::{Incarnation, Step};

use crate::site::{JOB, LOOPBACK, WORKER, encoded, soon};

/// Leads the job, as far as depots can tell.
pub(crate) struct Leader {
    endpoint: Endpoint,
    own: PeerIdentity,
}

/// A depot that has come.
pub(crate) struct Session {
    pub(crate) hello: DepotHello,
    certified: u64,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

impl Leader {
    pub(crate) fn new(authority: &Authority) -> Self {
        let credentials = authority.issue(Role::Coordinator, 0).unwrap();
        let endpoint = bind_server(&credentials, Purpose::Control, LOOPBACK).unwrap();
        let own = PeerIdentity::coordinator(JOB);
        Self { endpoint, own }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// The next depot that says hello, which is answered so.
    pub(crate) async fn greet(&self, greeting: &Greeting) -> Session {
        let knock = soon(Door::new(self.endpoint.clone()).next()).await.unwrap();
        let (connection, peer) = soon(accept(knock, self.own, HANDSHAKE_DEADLINE)).await.unwrap();
        let (send, mut receive) = soon(connection.accept_bi()).await.unwrap();
        let hello = soon(read_frame(&mut receive, CONTROL_FRAME_BYTES)).await.unwrap().unwrap();
        let Hello::Depot(hello) = hello else { panic!("{hello:?}") };
        let mut session = Session {
            hello,
            certified: peer.id,
            connection,
            send,
            receive,
        };
        write_frame(&mut session.send, greeting, CONTROL_FRAME_BYTES).await.unwrap();
        session
    }

    /// The next depot, which is taken in, and what it keeps.
    pub(crate) async fn lead(&self, incarnation: u64) -> (Session, Vec<Head>) {
        let mut session = self.greet(&joined(incarnation)).await;
        let held = session.held().await;
        session.serve(&[]).await;
        (session, held)
    }
}

pub(crate) fn joined(incarnation: u64) -> Greeting {
    Greeting::Joined {
        incarnation: Incarnation::new(incarnation),
        report_from: Step::ZERO,
    }
}

impl Session {
    pub(crate) async fn say(&mut self, order: &DepotOrder) {
        write_frame(&mut self.send, order, CONTROL_FRAME_BYTES).await.unwrap();
    }

    /// None once the depot has closed. That it is not done yet is not news.
    pub(crate) async fn next(&mut self) -> Option<DepotMessage> {
        loop {
            let message = self.next_of_all().await?;
            if !matches!(message, DepotMessage::Fetching { .. }) {
                return Some(message);
            }
        }
    }

    pub(crate) async fn next_of_all(&mut self) -> Option<DepotMessage> {
        soon(read_frame(&mut self.receive, CONTROL_FRAME_BYTES)).await.ok().flatten()
    }

    pub(crate) async fn hear(&mut self) -> DepotMessage {
        self.next().await.expect("the depot says something")
    }

    /// All that it keeps.
    pub(crate) async fn held(&mut self) -> Vec<Head> {
        let mut held = Vec::new();
        loop {
            let message = self.hear().await;
            let DepotMessage::Holds { heads, is_last, .. } = message else {
                panic!("{message:?}");
            };
            held.extend(heads);
            if is_last {
                return held;
            }
        }
    }

    /// It serves [`WORKER`] and these.
    pub(crate) async fn serve(&mut self, depots: &[DepotAddress]) {
        let depots = depots.iter().map(|depot| depot.certified).collect();
        let workers = vec![WORKER];
        self.say(&DepotOrder::Serve { workers, depots }).await;
    }

    pub(crate) async fn commit(&mut self, manifest: &Manifest) -> DepotMessage {
        for order in orders_of(manifest, 500) {
            self.say(&order).await;
        }
        self.hear().await
    }

    /// Orders that this is committed, and that is deleted. There may be no coordinator to hear it.
    pub(crate) async fn order_vainly(&mut self, manifest: &Manifest, key: ManifestKey) {
        for order in orders_of(manifest, usize::MAX)
            .into_iter()
            .chain([DepotOrder::Delete { key }])
        {
            let _ = write_frame(&mut self.send, &order, CONTROL_FRAME_BYTES).await;
        }
    }

    pub(crate) fn address(&self) -> DepotAddress {
        DepotAddress {
            depot: self.hello.depot,
            certified: self.certified,
            address: self.hello.address,
        }
    }

    pub(crate) fn cut(&self) {
        self.connection.close(0_u32.into(), b"cut");
    }
}

/// To commit this manifest, so many bytes of it at a time.
fn orders_of(manifest: &Manifest, at_once: usize) -> Vec<DepotOrder> {
    let bytes = encoded(manifest);
    let order = |(index, chunk): (usize, &[u8])| DepotOrder::Commit {
        snapshot: manifest.snapshot,
        depots: manifest.depots.clone(),
        placing: manifest.placing,
        part: Part {
            start: (index * at_once) as u64,
            of: bytes.len() as u64,
        },
        bytes: chunk.to_vec(),
    };
    bytes.chunks(at_once).enumerate().map(order).collect()
}

/// A number that no other process in a test has: certificates do not outlive processes.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn config(folder: &Path, credentials: RotatingCredentials, coordinator: SocketAddr) -> DepotConfig {
    DepotConfig {
        folder: folder.to_owned(),
        credentials,
        coordinator: coordinator.into(),
        host: "h".to_owned(),
        listen: LOOPBACK,
        advertise: None,
    }
}

/// A depot in this folder, which may have been in use a moment ago.
pub(crate) async fn depot(authority: &Authority, folder: &Path, leader: SocketAddr) -> Depot {
    depot_with(authority, folder, leader, Opener::default()).await
}

/// The same with a store that is opened like this.
pub(crate) async fn depot_with(authority: &Authority, folder: &Path, leader: SocketAddr, opener: Opener) -> Depot {
    let credentials = RotatingCredentials::from(authority.issue(Role::Checkpoint, fresh()).unwrap());
    let attempt = || start_with(config(folder, credentials.clone(), leader), opener.clone());
    soon(async {
        loop {
            match attempt().await {
                Ok(depot) => return depot,
                Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
            }
        }
    })
    .await
}
