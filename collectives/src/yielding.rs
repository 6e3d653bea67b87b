//! How a future that would go on for long lets those beside it in its task go on. Knows not what they do.

use std::future::poll_fn;
use std::mem::replace;
use std::task::Poll;

/// Ends this turn of the task: the other futures that it has joined go on, and then this one. No runtime is asked: with Tokio's own
/// `yield_now` the task would be woken only after timers and sockets, and until then a thread that [helps](crate::helped) would find nothing to do.
pub(crate) async fn yield_to_others() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::block_on::block_on;

    #[test]
    fn those_beside_it_go_on_before_it_does() {
        let said = RefCell::new(Vec::new());
        let one = async {
            for number in [1, 3] {
                said.borrow_mut().push(number);
                yield_to_others().await;
            }
        };
        let other = async {
            for number in [2, 4] {
                said.borrow_mut().push(number);
                yield_to_others().await;
            }
        };
        block_on(futures_util::future::join(one, other));
        assert_eq!(said.into_inner(), [1, 2, 3, 4]);
    }
}
