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

    use super::or_tell;

    #[tokio::test]
    async fn work_that_ends_well_or_is_dropped_tells_nothing() {
        let told = Cell::new(false);
        assert_eq!(or_tell(async { 7 }, || told.set(true)).await, 7);
        drop(or_tell(async { 7 }, || told.set(true)));
        assert!(!told.get());
    }
}
