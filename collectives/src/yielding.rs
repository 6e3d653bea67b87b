//! How a future that would go on for long lets those beside it in its task go on. Knows not what they do.

use std::future::poll_fn;
use std::mem::replace;
use std::task::Poll;

use tokio::task::coop::consume_budget;

use crate::limits::FRAMES_A_TURN;

/// What a link that never has to wait counts its frames by, so that no turn is without end.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    frames: u32,
}

impl Turn {
    /// Another frame is about to pass. After some of them the turn ends: that of a task when Tokio says so, which lets timers and sockets go on, and that of a
    /// thread that [helps](crate::helped), for which Tokio says nothing, after more. Else an abort would wait for a whole step.
    pub(crate) async fn passes(&mut self) {
        consume_budget().await;
        self.frames += 1;
        if self.frames >= FRAMES_A_TURN {
            self.frames = 0;
            yield_to_others().await;
        }
    }
}

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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::block_on::block_on;
    use crate::helped::helped;

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

    #[test]
    fn a_thread_that_helps_ends_its_turn_though_frames_are_always_there() {
        let passed = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&passed);
        let (task, helper) = helped(async move {
            let mut turn = Turn::default();
            loop {
                turn.passes().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        for turns in 1..=3 {
            helper.help(|| false);
            assert_eq!(passed.load(Ordering::Relaxed), turns * FRAMES_A_TURN - 1);
        }
        drop(task);
    }
}
