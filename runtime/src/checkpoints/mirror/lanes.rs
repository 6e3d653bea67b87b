//! Several things at a time, and no more.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::{JoinError, JoinSet, spawn_blocking};

/// What `start` makes of each item, so many at a time; `done` is shown what comes of it. The first error ends all.
pub(super) async fn several<T, R, E, F>(
    lanes: usize,
    items: impl IntoIterator<Item = T>,
    start: impl Fn(T) -> F,
    mut done: impl FnMut(R),
) -> Result<(), E>
where
    F: Future<Output = Result<R, E>> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    let mut items = items.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < lanes
            && let Some(item) = items.next()
        {
            running.spawn(start(item));
        }
        let Some(ended) = running.join_next().await else {
            return Ok(());
        };
        done(joined(ended).await?);
    }
}

/// What `work` gives, on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(spawn_blocking(work).await).await
}

async fn joined<T>(ended: Result<T, JoinError>) -> T {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime ends, and its caller does not wait any more.
        Err(Err(_)) => pending().await,
    }
}
