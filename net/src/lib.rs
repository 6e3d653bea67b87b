//! How the processes of a job reach each other: QUIC between ends that know each other by certificates, and messages on its streams.
//!
//! Must not know actors, nor what is done with what is said. Nothing here is kept on a disk but keys and certificates.
//!
//! - [`trust`]: the job's authority, what a peer is and which peers it may dial; [`enrol`]: how a process from outside gets a certificate.
//! - [`quic`]: endpoints, dialling and accepting; [`environment`]: the sockets and threads that all stand on.
//! - [`wire`]: messages in frames; [`control`]: a stream of them in both directions, until it breaks.
//! - [`whereabouts`]: where a coordinator may be found; [`dialler`]: how it is dialled, and greets.
//! - [`log`]: what is logged of what other processes do, each kind of line only so often.

pub mod control;
pub mod dialler;
pub mod enrol;
pub mod environment;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod log;
pub mod quic;
#[cfg(test)]
mod refused;
#[cfg(any(test, feature = "refusing"))]
pub mod refusing;
pub mod trust;
pub mod whereabouts;
pub mod wire;
