//! Carries messages over one control stream, both ways, until it breaks. The same for workers, agents and the coordinator.

use quinn::{RecvStream, SendStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::quic::limits::HANDSHAKE_DEADLINE;
use crate::wire::limits::CONTROL_FRAME_BYTES;
use crate::wire::{read_frame, write_frame};

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Message,
    Stop,
}

/// Sends what comes from `queue`, and hands what arrives to `arrived`, until either side ends. Returns why it ended. What was
/// queued before the queue was closed is delivered first.
pub(crate) async fn carry<In: DeserializeOwned, Out: Serialize>(
    mut send: SendStream,
    mut receive: RecvStream,
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
                Ok(None) => return "the other side closed it".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    };
    let writing = async {
        while let Some(message) = queue.recv().await {
            if let Err(error) = write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await {
                return error.to_string();
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
