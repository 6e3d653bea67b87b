//! Tasks that others wait for: one that panics tells them. Must not know what it does.

use std::thread;

/// Tells where the task itself cannot.
struct Teller<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Teller<F> {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(tell) = self.0.take()
        {
            tell();
        }
    }
}

/// Does `work`, and calls `tell` if that panics. It goes on panicking then.
pub(crate) async fn or_tell<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let _teller = Teller(Some(tell));
    work.await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;

    use super::or_tell;

    #[tokio::test]
    async fn work_that_panics_tells_and_goes_on_panicking() {
        let told = Cell::new(false);
        let work = async {
            tokio::task::yield_now().await;
            panic!("as the test wants")
        };
        let work = AssertUnwindSafe(or_tell(work, || told.set(true)));
        let panicked: Result<(), _> = work.catch_unwind().await;
        assert!(panicked.is_err() && told.get());
    }

    #[tokio::test]
    async fn work_that_ends_well_or_is_dropped_tells_nothing() {
        let told = Cell::new(false);
        assert_eq!(or_tell(async { 7 }, || told.set(true)).await, 7);
        drop(or_tell(async { 7 }, || told.set(true)));
        assert!(!told.get());
    }
}
