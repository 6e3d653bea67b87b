//! Runs one future on the thread that waits for it, whatever that thread is. Knows nothing of what it waits for.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    // Called within a task of tokio's it would otherwise wait for ever for the turn that the task gets when it returns.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // Returns at once if it was woken meanwhile.
            Poll::Pending => thread::park(),
        }
    }
}
