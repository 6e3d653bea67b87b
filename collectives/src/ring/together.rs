//! Drives futures of one kind together within one task. Knows nothing of what they do.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs all futures at once until all are done or one fails; the others are dropped then. A rank has a handful at most, so each
/// wake-up polls all that are not done.
pub(super) async fn try_all<F, E>(futures: impl IntoIterator<Item = F>) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|context| {
        let mut failed = None;
        waiting.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(error)) => {
                failed.get_or_insert(error);
                false
            }
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if waiting.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
