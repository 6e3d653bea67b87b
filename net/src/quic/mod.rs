//! QUIC as this job uses it: endpoints with mutual TLS under the job's authority, dialling and accepting with the other end's
//! identity checked, and plain words for what went wrong.
//!
//! Before a peer's certificate is verified it gets a bounded buffer, a deadline and nothing else (SEC-2). Nothing here knows what
//! is said over a connection.

mod connect;
mod connection_ids;
mod crypto;
mod discerning;
mod door;
mod endpoint;
mod explain;
pub mod limits;
mod path;
mod places;
mod purpose;
mod reach;
mod reset;

#[cfg(test)]
pub(crate) mod tests;

pub use connect::{AcceptError, ConnectError, REFUSED, Visitor, Whose, accept, connect, receive};
pub(crate) use door::network;
pub use door::{Door, Knock};
#[cfg(any(test, feature = "refusing"))]
pub(crate) use endpoint::bind_narrow;
pub(crate) use endpoint::bind_stranger_on;
pub use endpoint::{
    BindError, bind_client, bind_client_on, bind_coordinator, bind_peer_on, bind_server, bind_server_on, bind_stranger,
    close, towards,
};
pub use explain::{explain, is_refusal, is_run_out};
pub use places::{Place, Places, Room};
pub use purpose::{Purpose, widen};
pub use reach::Reach;
pub use reset::ResetKey;
