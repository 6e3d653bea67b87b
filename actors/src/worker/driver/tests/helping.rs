//! The training thread carries its ring on where it waits for a sum, and leaves it to the task where it does something else for long.

use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use sardana_collectives::limits::CHUNK_BYTES;
use sardana_protocol::member::Command;
use sardana_protocol::state::{Dtype, TensorSpec};
use tokio::time::advance;

use super::*;
use crate::worker::limits::BRIEF;

/// The shards of rank 1.
const OWN: usize = SHARDS as usize - 1;

/// The ring's task, which does only what it is made to, and how often it was woken.
struct RingTask {
    ring: Helped<Summed>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl RingTask {
    fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let polled = Pin::new(&mut self.ring).poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending), "{polled:?}");
    }

    fn woken(&self) -> usize {
        self.woken.0.swap(0, Ordering::SeqCst)
    }
}

/// A member of a ring of two that adds up what it is given.
fn member() -> (Arc<StepDriver>, Outbox, RingTask) {
    member_that(|| ready(()))
}

/// The same, and does that after each sum.
fn member_that<After: Future<Output = ()> + Send + 'static>(after: fn() -> After) -> (Arc<StepDriver>, Outbox, RingTask) {
    let (driver, mut outbox) = driver(100, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    let summing = Arc::clone(&driver);
    let ring = driver.helps(
        async move {
            let (mut room, mut pieces) = (None, Vec::new());
            while let Some(input) = inbox.recv().await {
                match input {
                    RingInput::Begin { into, .. } => room = Some(into),
                    RingInput::Piece { gradient, .. } => pieces.push(gradient),
                    RingInput::CloseWith(_) => {}
                }
                if pieces.len() == OWN {
                    pieces.clear();
                    let step = summing.read(Member::step);
                    summing.summed(CompletedSum {
                        generation: generation(1),
                        step,
                        sum: Sum::from_buffer(step, room.take().unwrap()),
                        trailer: Trailer::Continue,
                    });
                    after().await;
                }
            }
            Ok(())
        },
        false,
    );
    let woken = Arc::default();
    let mut task = RingTask { ring, woken };
    task.poll();
    (driver, outbox, task)
}

/// Wants one more turn, and says so at once.
async fn again() {
    let mut polled = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// One step, each of whose gradients takes so long.
async fn step(driver: &StepDriver, gradient: Duration) {
    for _ in 0..OWN {
        let task = driver.next();
        advance(gradient).await;
        compute(driver, task);
    }
    drop(apply(driver, driver.next()));
}

/// How long gradients and updates take is known: the training thread has come back from an update as it said.
async fn known(driver: &StepDriver, task: &mut RingTask) {
    for _ in 0..2 {
        step(driver, Duration::ZERO).await;
        task.poll();
    }
    task.woken();
}

/// The ring is told of a step, and the training thread is about to compute its first gradient.
async fn begun(driver: &StepDriver, task: &mut RingTask) -> Task {
    known(driver, task).await;
    let gradient = driver.next();
    assert_eq!(task.woken(), 0, "it is brief");
    gradient
}

#[tokio::test(start_paused = true)]
async fn the_training_thread_alone_makes_the_steps_whose_gradients_are_brief() {
    let (driver, _outbox, mut task) = member();
    known(&driver, &mut task).await;
    for _ in 0..20 {
        step(&driver, BRIEF).await;
    }
    assert_eq!(task.woken(), 0);
    assert_eq!(driver.read(Member::step), Step::new(22));
}

#[tokio::test(start_paused = true)]
async fn while_gradients_take_long_the_task_has_the_ring() {
    let (driver, _outbox, mut task) = member();
    let longer = BRIEF + Duration::from_micros(1);
    step(&driver, longer).await;
    for _ in 0..5 {
        task.poll();
        task.woken();
        let gradient = driver.next();
        assert_eq!(task.woken(), 1, "it hears of the step before its gradient is there");
        task.poll();
        let trailer = Trailer::Continue;
        driver.execute(Command::CloseWith { trailer });
        assert_eq!(task.woken(), 1, "and of what the training thread tells it meanwhile");
        advance(longer).await;
        compute(&driver, gradient);
        for _ in 1..OWN {
            compute(&driver, driver.next());
        }
        drop(apply(&driver, driver.next()));
        step(&driver, longer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_has_the_ring_before_the_training_thread_copies_a_state() {
    let (driver, _outbox, mut task) = member();
    let gradient = begun(&driver, &mut task).await;
    let copying = driver.state_at(Step::new(2));
    tokio::pin!(copying);
    assert!(copying.as_mut().now_or_never().is_none());
    compute(&driver, gradient);
    let copy = driver.next();
    assert!(matches!(copy, Task::Copy { .. }), "{copy:?}");
    assert_eq!(task.woken(), 1);
}

/// It hands in a sum, and has then something to do for others.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_sum_is_the_tasks_before_an_update_that_takes_long() {
    // What is brief waits, so that nothing is left.
    for (update, handed_over) in [(BRIEF, 0), (BRIEF + Duration::from_micros(1), 1)] {
        let (driver, _outbox, mut task) = member_that(again);
        step(&driver, Duration::ZERO).await;
        for _ in 0..OWN {
            compute(&driver, driver.next());
        }
        let applied = driver.next();
        advance(update).await;
        drop(apply(&driver, applied));
        for _ in 0..OWN {
            compute(&driver, driver.next());
        }
        task.poll();
        task.woken();
        let applied = driver.next();
        assert_eq!(task.woken(), handed_over, "{update:?}");
        drop(apply(&driver, applied));
    }
}

/// So each travels beside the rest of the gradient.
#[tokio::test(start_paused = true)]
async fn chunks_of_a_long_gradient_reach_the_task_while_it_is_computed() {
    let tensors = ["first", "second"].map(|name| TensorSpec::new(name, Dtype::F32, &[CHUNK_BYTES / 4]));
    let layout = Arc::new(Layout::new(tensors.to_vec(), 0).unwrap());
    let spec = JobSpec {
        shards: SHARDS,
        order: Order::Exact,
        ..samples::spec()
    };
    let (driver, mut outbox) = StepDriver::new(&spec, layout, None);
    driver.handle(form(1, 1, &[SHARDS - 1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    let seen = Arc::new(AtomicUsize::new(0));
    let seen_by_ring = Arc::clone(&seen);
    let ring = driver.helps(
        async move {
            while let Some(input) = inbox.recv().await {
                if let RingInput::Piece { gradient, .. } = input {
                    for chunk in 0..2 {
                        gradient.chunk(chunk).await.unwrap();
                        seen_by_ring.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            Ok(())
        },
        false,
    );
    let woken = Arc::default();
    let mut task = RingTask { ring, woken };
    task.poll();
    // It has waited for a sum before.
    driver.ring.help(|| true);
    let Task::Gradient { mut buffer, mode, .. } = driver.next() else {
        panic!("a gradient is due");
    };
    task.poll();
    task.woken();
    let mut writer = buffer.writer(driver.layout(), mode);
    writer.write_f32(0, &[1.0; CHUNK_BYTES / 4]).unwrap();
    assert_eq!(task.woken(), 1);
    task.poll();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    writer.write_f32(1, &[1.0; CHUNK_BYTES / 4]).unwrap();
    assert_eq!(task.woken(), 1);
    task.poll();
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

/// Which thread has carried on with a ring each time it could, while the training thread had nothing else to do. The task does once it is woken, unless the ring is waited for. None if
/// neither has.
fn carried_on(waited_for: bool) -> Option<(Vec<ThreadId>, ThreadId)> {
    let (driver, _outbox) = driver(100, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    for _ in 0..OWN {
        compute(&driver, driver.next());
    }
    let (others, mut from_others) = mpsc::unbounded_channel();
    let (carries_on, carried_on) = channel();
    let ring = driver.helps(
        async move {
            while from_others.recv().await.is_some() {
                carries_on.send(thread::current().id()).unwrap();
            }
            Ok(())
        },
        waited_for,
    );
    let woken = Arc::default();
    let mut task = RingTask { ring, woken };
    task.poll();
    thread::scope(|scope| {
        let training = scope.spawn(|| assert!(matches!(driver.next(), Task::End)));
        let carried_on = (0..300).map(|_| {
            others.send(()).unwrap();
            let sent = Instant::now();
            while sent.elapsed() < Duration::from_secs(60) {
                if let Ok(by) = carried_on.try_recv() {
                    return Some(by);
                }
                if task.woken() > 0 && !waited_for {
                    task.poll();
                }
                thread::yield_now();
            }
            None
        });
        let by: Option<Vec<_>> = carried_on.collect();
        driver.end();
        Some((by?, training.thread().id()))
    })
}

#[test]
fn a_thread_with_nothing_to_do_is_woken_for_a_ring_that_is_waited_for_and_for_no_other() {
    assert!(carried_on(true).is_some(), "the thread was not woken");
    let (by, training) = carried_on(false).expect("one of them goes on with it");
    assert!(by.iter().any(|&by| by != training), "the task was not woken");
}

#[test]
fn a_ring_begins_while_the_thread_helps_with_the_one_before_which_is_its_tasks_then() {
    let (present, ended) = (PresentRing::default(), AtomicBool::new(false));
    let ((began, begins), (follows, following)) = (channel(), channel());
    let mut before = present.begin(
        poll_fn(move |context| {
            let _ = began.send(());
            context.waker().wake_by_ref();
            Poll::Pending
        }),
        true,
    );
    let woken: Arc<Woken> = Arc::default();
    thread::scope(|scope| {
        scope.spawn(|| present.help(|| !ended.load(Ordering::SeqCst)));
        begins.recv().unwrap();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(Pin::new(&mut before).poll(&mut Context::from_waker(&waker)).is_pending());
        scope.spawn(|| follows.send(present.begin(ready(Ok(())), true)));
        let begun = following.recv_timeout(Duration::from_secs(30));
        ended.store(true, Ordering::SeqCst);
        begun.unwrap();
    });
    assert!(woken.0.load(Ordering::SeqCst) > 0);
}
