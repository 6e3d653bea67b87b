//! What workers say to each other, as any bytes.

use sardana_net::fuzzing::message;
use sardana_storage::fuzzing::kind;

use super::fetch::{Answer, Request};
use super::limits::STREAM_HELLO_BYTES;
use super::links::LinkHello;

/// The first message of a stream.
pub fn fuzz(bytes: &[u8]) {
    match kind(bytes, 3) {
        (0, rest) => drop(message::<Request>(rest, STREAM_HELLO_BYTES).map(|request| request.to_string())),
        (1, rest) => drop(message::<Answer>(rest, STREAM_HELLO_BYTES)),
        (_, rest) => drop(message::<LinkHello>(rest, STREAM_HELLO_BYTES)),
    }
}
