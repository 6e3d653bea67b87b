//! One question and its answer over a stream, for the end that asks.

use std::pin::pin;

use quinn::{Connection, RecvStream, SendStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::frame::{FrameError, read_frame, write_frame};
use super::limits::LAST_WORD;

/// Says `question`, of at most so many bytes, and hears the answer; none if the other end has ended the stream without one.
///
/// The other end may refuse before it has read all: it stops the stream and answers, or it closes the connection with the reason. That is
/// what is heard then, and not that the stream was stopped. Not cancellation-safe.
///
/// # Errors
/// When the question is too long, the answer is no `In`, or the stream or connection is gone. After an answer that came while the question
/// was still being said, the stream is out of step: it is a refusal.
pub async fn exchange<Out: Serialize, In: DeserializeOwned>(
    connection: &Connection,
    (send, receive): (&mut SendStream, &mut RecvStream),
    (question, most): (&Out, usize),
    most_answered: usize,
) -> Result<Option<In>, FrameError> {
    let mut said = None;
    let heard = {
        let mut saying = pin!(write_frame(send, question, most));
        let mut hearing = pin!(read_frame::<In>(receive, most_answered));
        loop {
            tokio::select! {
                biased;
                done = &mut saying, if said.is_none() => match done {
                    Err(unsaid @ FrameError::Payload(_)) => return Err(unsaid),
                    done => said = Some(done),
                },
                heard = &mut hearing => break heard,
            }
        }
    };
    match heard {
        Ok(None) | Err(FrameError::Stream { .. } | FrameError::Truncated { .. }) => {
            last_word(connection).await?;
            said.unwrap_or(Ok(())).and(heard)
        }
        Ok(Some(_)) | Err(_) => heard,
    }
}

/// Why the connection ends, if the other end closes it now that it has given up a stream: which of both came first need not be known.
///
/// # Errors
/// When it ends.
pub async fn last_word(connection: &Connection) -> Result<(), FrameError> {
    match timeout(LAST_WORD, connection.closed()).await {
        Ok(reason) => Err(FrameError::Connection(reason)),
        Err(_) => Ok(()),
    }
}
