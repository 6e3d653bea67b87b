//! What workers say to each other, as any bytes.

use sardana_net::fuzzing::message;
use sardana_storage::fuzzing::kind;

use super::fetch::{Answered, Asking};
use super::limits::STREAM_HELLO_BYTES;
use super::links::LinkHello;

/// The first message of a stream.
pub fn fuzz(bytes: &[u8]) {
    match kind(bytes, 3) {
        (0, rest) => drop(message::<Asking>(rest, STREAM_HELLO_BYTES).map(|asking| asking.request.to_string())),
        (1, rest) => drop(message::<Answered>(rest, STREAM_HELLO_BYTES)),
        (_, rest) => drop(message::<LinkHello>(rest, STREAM_HELLO_BYTES)),
    }
}
