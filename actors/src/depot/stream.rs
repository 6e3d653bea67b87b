//! One stream to a depot, at the depot's end: what is said and heard on it, how long it may stand still, and how it ends.

use std::pin::{Pin, pin};
use std::sync::Arc;

use quinn::{RecvStream, SendStream};
use sardana_net::wire::{FrameError, read_frame, write_frame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::limits::{LIST_BYTES, MOST_WAITS, STALL};
use super::server::Server;
use super::talk::Answer;

/// How a stream ended otherwise than well.
#[derive(Debug)]
pub(super) enum End {
    /// The client is told why.
    Refused(String),
    /// There is no coordinator to be told.
    Broken(String),
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Version { .. } | FrameError::Header { .. } | FrameError::Payload(_) => {
                Self::Refused(error.to_string())
            }
            FrameError::Truncated { .. } | FrameError::Connection(_) | FrameError::Stream { .. } | FrameError::Io(_) => {
                Self::Broken(error.to_string())
            }
        }
    }
}

/// Both directions of a stream.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) send: SendStream,
    pub(super) receive: RecvStream,
    pub(super) server: Arc<Server>,
}

impl Talk {
    pub(super) async fn say(&mut self, answer: &Answer) -> Result<(), End> {
        // `Wanted` and `Places` are long.
        let saying = write_frame(&mut self.send, answer, LIST_BYTES);
        moving(saying).await?.map_err(End::from)
    }

    /// The next frame, which must come.
    pub(super) async fn hear<T: DeserializeOwned + Serialize>(&mut self, limit: usize) -> Result<T, End> {
        let frame = moving(read_frame::<T>(&mut self.receive, limit)).await??;
        frame.ok_or_else(|| End::Broken("it ended before all was said".to_owned()))
    }

    /// Waits for `work` of the disk, and tells the other end from time to time that it does; not for a disk that hangs.
    pub(super) async fn waiting<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        let after = self.server.patience.wait_every * MOST_WAITS;
        let worked = timeout(after, self.waiting_its_turn(work)).await;
        worked.unwrap_or_else(|_| {
            Err(End::Refused(format!(
                "expected the disk to be done within {after:?}; see whether it is broken"
            )))
        })
    }

    /// The same for a turn that others have: for as long as they move and the disk does not hang.
    pub(super) async fn waiting_its_turn<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(work);
        let wait_every = self.server.patience.wait_every;
        loop {
            match timeout(wait_every, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) => {
                    self.server.unless_it_hangs()?;
                    self.say(&Answer::Wait).await?;
                }
            }
        }
    }

    /// Ends the stream, and waits until the other end has all of it, or wants no more.
    pub(super) async fn delivered(&mut self) {
        // Finishing fails only if the other end has given up.
        let _ = self.send.finish();
        let _ = timeout(STALL, self.send.stopped()).await;
    }
}

/// What comes of moving something over the stream, unless nothing moves for too long.
pub(super) async fn moving<T>(work: impl Future<Output = T>) -> Result<T, End> {
    let moved = timeout(STALL, work).await;
    moved.map_err(|_| End::Broken(format!("nothing moved for {STALL:?}")))
}

/// What comes of `talking`; `work` goes on meanwhile: what comes of that, if it is done by then.
pub(super) async fn meanwhile<A, B>(
    talking: impl Future<Output = A>,
    mut work: Pin<&mut impl Future<Output = B>>,
) -> (A, Option<B>) {
    let mut talking = pin!(talking);
    let mut done = None;
    loop {
        tokio::select! {
            biased;
            value = &mut work, if done.is_none() => done = Some(value),
            talked = &mut talking => return (talked, done),
        }
    }
}
