//! Carries messages over one control stream, both ways, until it breaks. The same for workers, agents and the coordinator.

use quinn::{Connection, RecvStream, SendStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::quic::limits::HANDSHAKE_DEADLINE;
use crate::wire::limits::CONTROL_FRAME_BYTES;
use crate::wire::{FrameError, last_word, read_frame, write_frame};

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Message,
    Stop,
}

/// Sends what comes from `queue`, and hands what arrives to `arrived`, until either side ends. Returns why it ended. What was
/// queued before the queue was closed is delivered first. Where the other end gives up the stream and closes `connection` with a reason, that
/// is why.
pub(crate) async fn carry<In: DeserializeOwned, Out: Serialize>(
    connection: &Connection,
    (mut send, mut receive): (SendStream, RecvStream),
    mut queue: mpsc::UnboundedReceiver<Out>,
    mut arrived: impl FnMut(In) -> Next,
    sent: impl Fn(&Out),
) -> String {
    let reading = async {
        loop {
            match read_frame::<In>(&mut receive, CONTROL_FRAME_BYTES).await {
                Ok(Some(message)) => match arrived(message) {
                    Next::Message => {}
                    Next::Stop => return "this side ends".to_owned(),
                },
                Ok(None) => return given_up(connection, "the other side closed it".to_owned()).await,
                Err(error @ (FrameError::Stream { .. } | FrameError::Truncated { .. })) => {
                    return given_up(connection, error.to_string()).await;
                }
                Err(error) => return error.to_string(),
            }
        }
    };
    let writing = async {
        while let Some(message) = queue.recv().await {
            match write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await {
                Ok(()) => {}
                Err(error @ FrameError::Stream { .. }) => return given_up(connection, error.to_string()).await,
                Err(error) => return error.to_string(),
            }
            sent(&message);
        }
        // Only fails when the stream has ended already.
        let _ = send.finish();
        let _ = timeout(HANDSHAKE_DEADLINE, send.stopped()).await;
        "this side ends".to_owned()
    };
    tokio::select! {
        biased;
        why = reading => why,
        why = writing => why,
    }
}

/// Why the other end gave up the stream, as far as it says so; else `otherwise`.
async fn given_up(connection: &Connection, otherwise: String) -> String {
    match last_word(connection).await {
        Err(reason) => reason.to_string(),
        Ok(()) => otherwise,
    }
}
