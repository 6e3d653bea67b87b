//! Counts panics: a task that panics is only missing, and the cluster may not notice.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// From now on panics of this process are counted, each for its own thread, and reported as before.
pub(super) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            SEEN.set(SEEN.get() + 1);
            before(panic);
        }));
    });
}

/// How many panics this thread has seen since it was asked last. A run is one thread.
pub(super) fn seen() -> u64 {
    SEEN.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_panics_is_counted() {
        watch();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime.block_on(async { tokio::spawn(async { panic!("counted") }).await });
        assert!(ended.unwrap_err().is_panic());
        assert_eq!((seen(), seen()), (1, 0));
    }
}
