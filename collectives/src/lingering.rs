//! Looking again for a moment before a sleep: what is waited for is often about to come, and to sleep and be woken takes longer. Knows nothing of what it
//! waits for. Not for simulated time, which this does not take part in.

use std::thread;
use std::time::Instant;

use tokio::task::yield_now;

use crate::limits::LOOK_AGAIN;

/// Lets others run, so that the caller may look again. Says whether it has; a caller that has waited `since` long ago is to sleep.
pub(crate) async fn lingers(since: Instant) -> bool {
    if since.elapsed() >= LOOK_AGAIN {
        return false;
    }
    // Where ranks share a processor, the one that this one waits for has its turn; and then this runtime's other tasks.
    thread::yield_now();
    yield_now().await;
    true
}
