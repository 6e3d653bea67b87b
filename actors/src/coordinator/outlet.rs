//! What the coordinator says to one session. It never waits: a peer that does not read what it is told loses its connection.

use bytes::Bytes;
use quinn::Connection;
use sardana_net::control::{Item, Later};
use sardana_net::log::bounded;
use tokio::sync::mpsc;

use super::session::SessionId;

/// What the coordinator keeps of a session.
#[derive(Debug)]
pub(super) struct Outlet<Out> {
    queue: mpsc::Sender<Item<Out>>,
    pub(super) connection: Connection,
}

impl<Out> Outlet<Out> {
    /// The outlet of the session over `connection`, and what is said through it, of which at most `most` may wait.
    pub(super) fn new(connection: Connection, most: usize) -> (Self, mpsc::Receiver<Item<Out>>) {
        let (queue, said) = mpsc::channel(most);
        (Self { queue, connection }, said)
    }

    pub(super) fn session(&self) -> SessionId {
        SessionId::of(&self.connection)
    }

    /// Bytes that have come over its connection.
    pub(super) fn received(&self) -> u64 {
        self.connection.stats().udp_rx.bytes
    }

    /// Says this. False if the session is over, or does not read.
    pub(super) fn say(&self, message: Out) -> bool {
        self.put(Item::Message(message))
    }

    /// Says these frames in their turn, once they are made. Frames that are said to several are shared.
    pub(super) fn say_frames(&self, frames: Later<[Bytes]>) -> bool {
        self.put(Item::Frames(frames))
    }

    fn put(&self, item: Item<Out>) -> bool {
        match self.queue.try_send(item) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                bounded!(
                    warn,
                    peer = %self.connection.remote_address(), waiting = self.queue.max_capacity(),
                    "a connection is closed, since what it is told is not read"
                );
                self.connection
                    .close(0_u32.into(), b"what you are told is not read: connect again");
                false
            }
        }
    }
}
