//! Several futures at once, in one task: so that they may borrow.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// A future among others.
pub(super) type Part<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What all of them give, in their order.
pub(super) async fn all<T>(mut parts: Vec<Part<'_, T>>) -> Vec<T> {
    let mut given: Vec<Option<T>> = parts.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (part, given) in parts.iter_mut().zip(&mut given) {
            if given.is_none()
                && let Poll::Ready(value) = part.as_mut().poll(context)
            {
                *given = Some(value);
            }
        }
        if given.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    given.into_iter().flatten().collect()
}
