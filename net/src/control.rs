//! Carries messages over one control stream, both ways, until it breaks. The same for workers, agents and the coordinator.

use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::quic::limits::HANDSHAKE_DEADLINE;
use crate::wire::limits::CONTROL_FRAME_BYTES;
use crate::wire::{FrameError, last_word, read_frame, write_frame};

/// What is sent next.
#[derive(Debug)]
pub enum Item<Out> {
    /// A message, in a frame of its own.
    Message(Out),
    /// Whole frames, as soon as they are made. None if they cannot be.
    Frames(Later<[Bytes]>),
}

/// Something that is made aside, once for several.
pub type Later<T> = watch::Receiver<Option<Arc<T>>>;

/// Where what is sent comes from.
pub trait Queue<Out> {
    /// The next; none when the queue is closed.
    fn next(&mut self) -> impl Future<Output = Option<Item<Out>>>;
}

impl<Out> Queue<Out> for mpsc::UnboundedReceiver<Out> {
    async fn next(&mut self) -> Option<Item<Out>> {
        self.recv().await.map(Item::Message)
    }
}

impl<Out> Queue<Out> for mpsc::Receiver<Item<Out>> {
    async fn next(&mut self) -> Option<Item<Out>> {
        self.recv().await
    }
}

/// Most messages of one connection that arrived and are not yet dealt with. The next is read after one of them is: what more is sent
/// waits in the connection's window, and then at its sender.
const WAITING: usize = 8;

/// A place among the few messages that may wait, until it is dropped: when what arrived with it is dealt with.
#[derive(Debug)]
pub struct Turn {
    _given_back: Option<OwnedSemaphorePermit>,
}

/// The turns of one connection.
#[derive(Debug)]
struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WAITING)))
    }
}

impl Turns {
    async fn next(&self) -> Turn {
        // It is never closed.
        let given_back = Arc::clone(&self.0).acquire_owned().await.ok();
        Turn { _given_back: given_back }
    }
}

/// Sends what comes from `queue`, and hands what arrives to `arrived`, with its turn, until either side ends: this one when `arrived` says
/// that it wants no more. Returns why it ended. What was queued before the queue was closed is delivered first. Where the other end gives up
/// the stream and closes `connection` with a reason, that is why.
pub async fn carry<In: DeserializeOwned, Out: Serialize>(
    connection: &Connection,
    (mut send, mut receive): (SendStream, RecvStream),
    mut queue: impl Queue<Out>,
    mut arrived: impl FnMut(In, Turn) -> bool,
    sent: impl Fn(&Out),
) -> String {
    let turns = Turns::default();
    let reading = async {
        loop {
            let turn = turns.next().await;
            match read_frame::<In>(&mut receive, CONTROL_FRAME_BYTES).await {
                Ok(Some(message)) => {
                    if !arrived(message, turn) {
                        return "this side ends".to_owned();
                    }
                }
                Ok(None) => return given_up(connection, "the other side closed it".to_owned()).await,
                Err(error @ (FrameError::Stream { .. } | FrameError::Truncated { .. })) => {
                    return given_up(connection, error.to_string()).await;
                }
                Err(error) => return error.to_string(),
            }
        }
    };
    let writing = async {
        while let Some(item) = queue.next().await {
            let written = match item {
                Item::Message(message) => {
                    let written = write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await;
                    written.map(|()| sent(&message))
                }
                Item::Frames(frames) => write_frames(&mut send, frames).await,
            };
            match written {
                Ok(()) => {}
                Err(error @ FrameError::Stream { .. }) => return given_up(connection, error.to_string()).await,
                Err(error) => return error.to_string(),
            }
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

async fn write_frames(send: &mut SendStream, mut frames: Later<[Bytes]>) -> Result<(), FrameError> {
    // Where nothing came of making them there is nothing to be sent.
    let made = frames.wait_for(Option::is_some).await.ok().and_then(|made| made.clone());
    for frame in made.iter().flat_map(|frames| frames.iter()) {
        send.write_chunk(frame.clone()).await?;
    }
    Ok(())
}

/// Why the other end gave up the stream, as far as it says so; else `otherwise`.
async fn given_up(connection: &Connection, otherwise: String) -> String {
    match last_word(connection).await {
        Err(reason) => reason.to_string(),
        Ok(()) => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::quic::limits::CONTROL_WINDOW_BYTES;
    use crate::quic::tests::{JOB, authority, meet};
    use crate::trust::Role;
    use crate::wire::framed;

    /// What has not gone out by then does not go out.
    const NOTHING_MORE: Duration = Duration::from_millis(500);

    /// Sends until nothing goes out any more. Returns how many bytes did.
    async fn flood(send: &mut SendStream, frame: &[u8]) -> usize {
        let mut sent = 0;
        while sent < 10 * WAITING * frame.len()
            && let Ok(written) = timeout(NOTHING_MORE, send.write(&frame[sent % frame.len()..])).await
        {
            sent += written.unwrap();
        }
        sent
    }

    #[tokio::test]
    async fn who_is_greeted_costs_its_messages_that_wait_and_its_window() {
        let authority = authority(JOB);
        let own = authority.issue(Role::Coordinator, 0).unwrap();
        let peer = authority.issue(Role::Worker, 1).unwrap();
        let (dialled, accepted, _endpoints) = meet(&own, &peer, own.identity()).await;
        let (dialled, greeted) = (dialled.unwrap(), accepted.unwrap().0);
        let (mut send, _receive) = dialled.open_bi().await.unwrap();
        send.write_all(&framed(&(), CONTROL_FRAME_BYTES).unwrap()).await.unwrap();
        let (own_send, mut own_receive) = greeted.accept_bi().await.unwrap();
        assert_eq!(read_frame(&mut own_receive, CONTROL_FRAME_BYTES).await.unwrap(), Some(()));
        greeted.set_receive_window(CONTROL_WINDOW_BYTES.into());
        let frame = framed(&vec![7_u8; 1 << 17], CONTROL_FRAME_BYTES).unwrap();
        let mut kept = Vec::new();
        let (_queue, outgoing) = mpsc::unbounded_channel::<()>();
        let keeping = carry(
            &greeted,
            (own_send, own_receive),
            outgoing,
            |message: Vec<u8>, turn| {
                kept.push((message, turn));
                true
            },
            |()| {},
        );
        let sent = tokio::select! {
            sent = flood(&mut send, &frame) => sent,
            why = keeping => panic!("{why}"),
        };
        let waiting = WAITING * frame.len();
        assert_eq!(kept.len(), WAITING);
        let most = waiting + CONTROL_WINDOW_BYTES as usize;
        assert!(
            (waiting..=most).contains(&sent),
            "{sent} bytes were taken in, expected {waiting} to {most}"
        );
    }

    #[tokio::test]
    async fn no_more_is_read_than_is_dealt_with() {
        let turns = Turns::default();
        let mut waiting = Vec::new();
        for _ in 0..WAITING {
            waiting.push(turns.next().await);
        }
        let mut next = pin!(turns.next());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending(), "so many wait already");
        waiting.pop();
        assert!(matches!(
            next.as_mut().poll(&mut context),
            Poll::Ready(Turn { _given_back: Some(_) })
        ));
    }
}
