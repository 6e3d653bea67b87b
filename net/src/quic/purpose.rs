//! What a connection is for: it decides the protocol that both ends must name, and how much the other end may open.

use std::fmt;

use quinn::{Connection, TransportConfig, VarInt};

use super::limits::{
    CONTROL_STREAM_WINDOW_BYTES, CONTROL_WINDOW_BYTES, PEER_BIDI_STREAMS, PEER_UNI_STREAMS, STRANGER_WINDOW_BYTES,
    UNNAMED_STREAMS,
};
use super::reach::Reach;

/// What a connection is for. Both ends must mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Between a worker or agent and the coordinator: messages.
    Control,
    /// Between two workers: links.
    Peer,
    /// Between a process without a certificate and the coordinator: one request for one.
    Enrolment,
}

impl Purpose {
    /// The protocol's name in the TLS handshake (ALPN). Its number changes when older processes could not follow.
    #[must_use]
    pub const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Control => b"sardana-control/1",
            Self::Peer => b"sardana-peer/1",
            Self::Enrolment => b"sardana-enrol/1",
        }
    }

    /// Bounds what the other end may open and send unread. `stream_bytes` is what a peer may send on one stream, `reach` how far peers are.
    pub(super) fn bound(self, transport: &mut TransportConfig, stream_bytes: u32, reach: Reach) {
        let (bidi, uni, stream, connection) = match self {
            Self::Control => (1, 0, CONTROL_STREAM_WINDOW_BYTES, CONTROL_WINDOW_BYTES),
            Self::Peer => (PEER_BIDI_STREAMS, PEER_UNI_STREAMS, stream_bytes, reach.connection_bytes()),
            Self::Enrolment => (1, 0, STRANGER_WINDOW_BYTES, STRANGER_WINDOW_BYTES),
        };
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(bidi))
            .max_concurrent_uni_streams(VarInt::from_u32(uni))
            .stream_receive_window(VarInt::from_u32(stream))
            .receive_window(VarInt::from_u32(connection))
            .datagram_receive_buffer_size(None);
    }

    /// The same for a client that is not known yet.
    pub(super) fn bound_newcomers(self, transport: &mut TransportConfig, stream_bytes: u32) {
        self.bound(transport, stream_bytes, Reach::default());
        transport.receive_window(VarInt::from_u32(STRANGER_WINDOW_BYTES));
        if self == Self::Peer {
            transport
                .max_concurrent_bidi_streams(VarInt::from_u32(UNNAMED_STREAMS))
                .max_concurrent_uni_streams(VarInt::from_u32(UNNAMED_STREAMS));
        }
    }
}

/// The peer at the other end is named: it may send and open as much as one that was dialled. `reach` is that of this end's endpoint.
pub fn widen(connection: &Connection, reach: Reach) {
    connection.set_receive_window(VarInt::from_u32(reach.connection_bytes()));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(PEER_BIDI_STREAMS));
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(PEER_UNI_STREAMS));
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Peer => "peer",
            Self::Enrolment => "enrolment",
        })
    }
}
