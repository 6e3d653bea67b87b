//! The task and the thread, in each order in which they come.

use std::future::{pending, poll_fn};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::block_on::block_on;

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

fn poll<T>(task: &mut Helped<T>, woken: &Arc<Woken>) -> Poll<T> {
    Pin::new(task).poll(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
}

#[test]
fn what_the_thread_brings_to_its_end_is_the_tasks() {
    let (mut task, helper) = helped(async { thread::current().id() });
    let woken = Arc::default();
    let by = thread::scope(|scope| {
        let thread = scope.spawn(|| helper.help(|| true));
        let id = thread.thread().id();
        thread.join().unwrap();
        id
    });
    assert_eq!(poll(&mut task, &woken), Poll::Ready(by));
    helper.help(|| true);
    assert_eq!(woken.take(), 0, "it is over");
}

#[test]
fn the_thread_takes_over_at_the_end_of_the_turn_that_the_task_has() {
    let (begins, began) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel();
    let mut is_first = true;
    let ends = Mutex::new(ends);
    let (mut task, helper) = helped(poll_fn(move |context| {
        if !std::mem::take(&mut is_first) {
            return Poll::Ready(thread::current().id());
        }
        begins.send(()).unwrap();
        ends.lock().unwrap().recv().unwrap();
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    let woken = Arc::default();
    let by = thread::scope(|scope| {
        let turn = scope.spawn(|| poll(&mut task, &woken).is_pending());
        began.recv().unwrap();
        let helping = scope.spawn(|| helper.help(|| true));
        let by = helping.thread().id();
        while !helper.0.relay.helping.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        end.send(()).unwrap();
        assert!(turn.join().unwrap());
        helping.join().unwrap();
        by
    });
    assert_eq!(woken.take(), 1, "of the end, and not of what the thread has done");
    assert_eq!(poll(&mut task, &woken), Poll::Ready(by));
}

#[test]
fn the_task_is_told_of_the_end_and_without_a_thread_is_a_task_as_any() {
    let (send, mut inbox) = unbounded_channel();
    let (mut task, helper) = helped(async move { inbox.recv().await });
    let woken = Arc::default();
    assert!(poll(&mut task, &woken).is_pending());
    helper.help(|| true);
    send.send(7).unwrap();
    assert_eq!(woken.take(), 0, "this thread has woken it, and looks after it");
    helper.help(|| true);
    assert_eq!(woken.take(), 1);
    assert_eq!(poll(&mut task, &woken), Poll::Ready(Some(7)));

    let (send, mut inbox) = unbounded_channel();
    let (mut task, _helper) = helped(async move { inbox.recv().await });
    assert!(poll(&mut task, &woken).is_pending());
    send.send(7).unwrap();
    assert_eq!(woken.take(), 1, "it has never helped");
    assert_eq!(poll(&mut task, &woken), Poll::Ready(Some(7)));
}

#[test]
fn the_task_hears_of_what_others_wake_it_for_and_of_what_the_thread_hands_over() {
    let (send, mut inbox) = unbounded_channel();
    let (mut task, helper) = helped(async move { while inbox.recv().await.is_some() {} });
    let woken = Arc::default();
    assert!(poll(&mut task, &woken).is_pending());
    helper.help(|| true);
    thread::scope(|scope| drop(scope.spawn(|| send.send(1))));
    assert_eq!(woken.take(), 1, "another thread has woken it");
    assert!(poll(&mut task, &woken).is_pending());
    send.send(2).unwrap();
    assert_eq!(woken.take(), 0);
    helper.hand_over();
    assert_eq!(woken.take(), 1);
    assert!(poll(&mut task, &woken).is_pending());
    helper.hand_over();
    assert_eq!(woken.take(), 0, "there is nothing to do");
    send.send(3).unwrap();
    assert_eq!(
        woken.take(),
        1,
        "the thread does something else for long, and wakes it meanwhile"
    );
    assert!(poll(&mut task, &woken).is_pending());
    helper.come_back();
    send.send(4).unwrap();
    helper.help(|| true);
    assert_eq!(woken.take(), 0, "it is done");
    drop(send);
    helper.help(|| true);
    assert!(poll(&mut task, &woken).is_ready());
}

#[test]
fn a_thread_that_waits_is_woken_in_place_of_the_task() {
    let (send, mut inbox) = unbounded_channel();
    let (mut task, helper) = helped(async move { while inbox.recv().await.is_some() {} });
    let woken = Arc::default();
    assert!(poll(&mut task, &woken).is_pending());
    let another_sends = || thread::scope(|scope| drop(scope.spawn(|| send.send(()).unwrap())));
    helper.help(|| true);
    assert!(!helper.wait(), "there is nothing to do");
    another_sends();
    assert!(helper.wait());
    helper.help(|| true);
    assert_eq!(woken.take(), 0);
    assert!(!helper.wait());
    // It has found something else to do.
    another_sends();
    helper.come_back();
    assert_eq!(woken.take(), 1, "what the thread was woken for");
    assert!(poll(&mut task, &woken).is_pending());
    // It does that, for a moment or for long.
    helper.help(|| true);
    helper.come_back();
    another_sends();
    assert_eq!(woken.take(), 1);
    assert!(poll(&mut task, &woken).is_pending());
    helper.help(|| true);
    assert!(!helper.wait());
    helper.hand_over();
    another_sends();
    assert_eq!(woken.take(), 1);
    assert!(poll(&mut task, &woken).is_pending());
    // What is at its end is the task's.
    helper.help(|| true);
    assert!(!helper.wait());
    drop(send);
    helper.help(|| true);
    assert_eq!(woken.take(), 1);
    assert!(!helper.wait());
    assert!(poll(&mut task, &woken).is_ready());
    assert!(!helper.wait());
}

#[test]
fn a_thread_does_not_wait_for_the_end_of_what_is_given_up() {
    let (task, helper) = helped(poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    helper.help(|| false);
    assert!(helper.wait(), "it wants another turn");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            while helper.wait() {
                helper.help(|| true);
            }
        });
        drop(task);
        waiting.join().unwrap();
    });
    assert!(!helper.wait());
}

#[test]
fn the_thread_goes_on_no_longer_than_it_wants_and_the_task_does_the_rest() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let (mut task, helper) = helped(poll_fn(move |context| {
        counted.fetch_add(1, Ordering::SeqCst);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    let woken: Arc<Woken> = Arc::default();
    helper.help(|| turns.load(Ordering::SeqCst) < 4);
    assert_eq!((turns.load(Ordering::SeqCst), woken.take()), (4, 0));
    assert!(poll(&mut task, &woken).is_pending());
    helper.help(|| false);
    assert_eq!((turns.load(Ordering::SeqCst), woken.take()), (6, 0));
    helper.hand_over();
    assert_eq!(woken.take(), 1);
    assert!(poll(&mut task, &woken).is_pending());
    assert_eq!(turns.load(Ordering::SeqCst), 7);
}

#[test]
fn what_is_given_up_is_let_go_of_though_the_thread_would_go_on_for_ever() {
    let held = Arc::new(());
    let kept = Arc::clone(&held);
    let (began, begins) = std::sync::mpsc::channel();
    let (task, helper) = helped(poll_fn(move |context| {
        let _ = (&kept, began.send(()));
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    thread::scope(|scope| {
        let helping = scope.spawn(|| helper.help(|| true));
        begins.recv().unwrap();
        drop(task);
        assert_eq!(Arc::strong_count(&held), 1, "it is dropped when the task is");
        helping.join().unwrap();
    });
    helper.help(|| panic!("there is nothing to help with"));
}

#[test]
fn the_thread_is_within_the_runtime_that_the_task_is_in() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (task, helper) = runtime.block_on(async { helped(tokio::time::sleep(Duration::from_millis(1))) });
    thread::scope(|scope| drop(scope.spawn(|| helper.help(|| true))));
    runtime.block_on(task);
}

#[test]
fn a_panic_is_the_tasks_though_the_thread_meets_it() {
    let (mut task, helper) = helped::<()>(poll_fn(|_| panic!("as it says")));
    let woken = Arc::default();
    helper.help(|| true);
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut task, &woken)));
    assert_eq!(polled.unwrap_err().downcast_ref(), Some(&"as it says"));
    helper.help(|| true);
    assert!(poll(&mut task, &woken).is_pending(), "it is over");
    // And where the task itself meets it.
    let (mut task, _helper) = helped::<()>(poll_fn(|_| panic!("as it says")));
    catch_unwind(AssertUnwindSafe(|| poll(&mut task, &woken))).unwrap_err();
}

/// Two threads wake it, and the task and the thread carry on with it: nothing that was sent is left lying.
#[test]
fn no_waking_is_lost_between_the_thread_and_the_task() {
    const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
    let (send, mut inbox) = unbounded_channel();
    let (task, helper) = helped(async move {
        let mut count = 0;
        while inbox.recv().await.is_some() {
            count += 1;
        }
        count
    });
    let others = send.clone();
    let counted = thread::scope(|scope| {
        scope.spawn(move || (0..EACH).for_each(|_| others.send(()).unwrap()));
        scope.spawn(move || {
            for _ in 0..EACH {
                helper.help(|| true);
                send.send(()).unwrap();
            }
            drop(send);
            helper.hand_over();
        });
        block_on(task)
    });
    assert_eq!(counted, 2 * EACH);
    let (task, helper) = helped(pending::<()>());
    drop((helper, task));
}

/// The thread has nothing else to do, and the other thread sends no more until what it has sent is counted.
#[test]
fn no_waking_of_a_thread_that_waits_is_lost() {
    const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
    let (send, mut inbox) = unbounded_channel();
    let (counts, counted) = std::sync::mpsc::channel();
    let (task, helper) = helped(async move {
        while inbox.recv().await.is_some() {
            counts.send(()).unwrap();
        }
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                helper.help(|| true);
                if !helper.wait() {
                    thread::park();
                }
            }
        });
        let sending = scope.spawn(move || {
            (0..EACH).all(|_| {
                send.send(()).unwrap();
                counted.recv_timeout(Duration::from_secs(60)).is_ok()
            })
        });
        let all_came = sending.join().unwrap();
        is_over.store(true, Ordering::SeqCst);
        waiting.thread().unpark();
        waiting.join().unwrap();
        helper.hand_over();
        block_on(task);
        assert!(all_came, "the thread was not woken");
    });
}
