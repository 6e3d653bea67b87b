//! A future that a task carries out, and a thread that waits for it may carry on with in the task's place: what is nearly done is done without waking
//! another thread, and without being woken by it. Knows nothing of what the future does.
//!
//! ```text
//! task:    poll ──────────────────────────────> pending ·············· poll ──>
//! thread:         wakes it, and comes to help ─────> poll, poll ─> pending
//! ```
//! Both poll it with one waker, the relay, which knows who is to hear of it: the thread, if it helps, waits for it with nothing else to do, or has woken the future itself and
//! comes back soon by its word; the task otherwise. So nothing changes hands when one of them stops.
//!
//! A thread that waits is woken in place of the task, since the system lets it go on where it was, while it wakes the task's thread beside what it waits for: of two workers of a
//! host one would do its sums on the other's processor, and leave its own idle for as long as it takes.
//!
//! A thread that comes while the task has its turn waits for the end of that, and goes on if that leaves something to do at once. Otherwise the tasks of two
//! workers might take turns on one processor, while the threads that wait for them have left another idle.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;

/// The future, for the task: to be awaited. Dropped, it is given up, and the thread does not go on with it either.
#[derive(Debug)]
pub struct Helped<T>(Arc<Shared<T>>);

/// The same future, for the one thread that helps.
#[derive(Debug)]
pub struct Helper<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    relay: Arc<Relay>,
    waker: Waker,
    /// The task's, whose timers the future may use.
    runtime: Option<Handle>,
}

enum State<T> {
    Running(Pin<Box<dyn Future<Output = T> + Send>>),
    /// It has come to its end, which the task has not seen.
    Done(End<T>),
    Over,
}

/// What came of the future, or its panic, which is the task's whatever thread it was on.
type End<T> = Result<T, Box<dyn Any + Send>>;

/// Who is to hear that the future can go on.
#[derive(Debug)]
struct Relay {
    /// It can, and was not polled since.
    woken: AtomicBool,
    /// It has come to its end, or the task was dropped, which waits for the end of the turn that the thread has: nothing polls it any more.
    over: AtomicBool,
    /// The thread has the future, or waits for the end of the task's turn: the task begins none, and the thread looks at `woken` before it stops.
    helping: AtomicBool,
    /// The thread, once it has helped.
    thread: OnceLock<Thread>,
    /// It has nothing else to do, and is woken in place of the task.
    waits: AtomicBool,
    /// It comes back soon, and what it wakes the future for can wait until then. It alone says so.
    promised: AtomicBool,
    task: AtomicWaker,
}

/// As long as the thread helps, also if it panics.
struct Helping<'a>(&'a Relay);

/// Makes a future one that can be helped with. Called within the runtime that it needs, if it needs one.
pub fn helped<T>(future: impl Future<Output = T> + Send + 'static) -> (Helped<T>, Helper<T>) {
    let relay = Arc::new(Relay {
        woken: AtomicBool::new(true),
        over: AtomicBool::new(false),
        helping: AtomicBool::new(false),
        thread: OnceLock::new(),
        waits: AtomicBool::new(false),
        promised: AtomicBool::new(false),
        task: AtomicWaker::new(),
    });
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Running(Box::pin(future))),
        waker: Waker::from(Arc::clone(&relay)),
        relay,
        runtime: Handle::try_current().ok(),
    });
    (Helped(Arc::clone(&shared)), Helper(shared))
}

impl<T> Future for Helped<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let shared = &self.0;
        shared.relay.task.register(context.waker());
        // The thread has it, or is about to: the task hears of what is left when it is handed over, or done.
        let Some(mut state) = shared.free().filter(|_| !shared.relay.helping.load(Ordering::SeqCst)) else {
            return Poll::Pending;
        };
        shared.turn(&mut state);
        let Some(end) = state.take_end() else { return Poll::Pending };
        drop(state);
        // There is nothing left to do.
        shared.relay.woken.store(false, Ordering::SeqCst);
        Poll::Ready(end.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> Drop for Helped<T> {
    fn drop(&mut self) {
        self.0.relay.over.store(true, Ordering::SeqCst);
        // Waits for a turn that the thread has begun.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let given_up = std::mem::replace(&mut *state, State::Over);
        drop(state);
        drop(given_up);
    }
}

impl<T> Helper<T> {
    /// Carries on with the future as long as it can go on and `more` says so, in place of the task, whose turn it lets end first. From then on the task hears
    /// neither of what is left to do then, nor of what this thread wakes the future for: the thread comes back, or [hands it over](Self::hand_over), before it does anything that takes long.
    ///
    /// Called by one thread alone, and not by one that polls the task.
    pub fn help(&self, more: impl Fn() -> bool) {
        let Shared { relay, runtime, .. } = &*self.0;
        relay.thread.get_or_init(thread::current);
        relay.promised.store(true, Ordering::SeqCst);
        relay.waits.store(false, Ordering::SeqCst);
        // The task begins no turn from here on.
        let helping = Helping::of(relay);
        let (mut state, has_waited) = match self.0.free() {
            Some(state) => (state, false),
            None => (self.0.state.lock().unwrap_or_else(PoisonError::into_inner), true),
        };
        let _within = runtime.as_ref().map(Handle::enter);
        // The task's turn may have brought the thread something else to do.
        if !has_waited || more() {
            while relay.goes_on() && self.0.turn(&mut state) && more() {}
        }
        let is_done = matches!(*state, State::Done(_));
        drop(state);
        drop(helping);
        if is_done {
            // It is to take what came of it.
            relay.task.wake();
        }
    }

    /// The thread has nothing else to do: once the future can go on it is [unparked](Thread::unpark) in place of the task, until it [helps](Self::help),
    /// [comes back](Self::come_back) or [hands over](Self::hand_over). Says whether the future can already: then the thread helps at once.
    pub fn wait(&self) -> bool {
        let relay = &self.0.relay;
        relay.thread.get_or_init(thread::current);
        relay.waits.store(true, Ordering::SeqCst);
        relay.goes_on()
    }

    /// The thread comes back soon: until then the task does not hear of what this thread wakes the future for. What others have woken it for while the thread
    /// [waited](Self::wait) is the task's.
    pub fn come_back(&self) {
        let relay = &self.0.relay;
        relay.promised.store(true, Ordering::SeqCst);
        if relay.waits.swap(false, Ordering::SeqCst) && relay.woken.load(Ordering::SeqCst) {
            relay.task.wake();
        }
    }

    /// If there is anything left to do, the task does it, and it hears of everything from now on.
    pub fn hand_over(&self) {
        let relay = &self.0.relay;
        relay.promised.store(false, Ordering::SeqCst);
        relay.waits.store(false, Ordering::SeqCst);
        if relay.woken.load(Ordering::SeqCst) {
            relay.task.wake();
        }
    }
}

impl<'a> Helping<'a> {
    fn of(relay: &'a Relay) -> Self {
        relay.helping.store(true, Ordering::SeqCst);
        Self(relay)
    }
}

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.0.helping.store(false, Ordering::SeqCst);
    }
}

impl<T> Shared<T> {
    /// The future, if neither the task nor the thread polls it at the moment.
    fn free(&self) -> Option<MutexGuard<'_, State<T>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            // Of a future that panicked as it was dropped nothing is left.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Polls it once if it was woken. Says whether it is still running.
    fn turn(&self, state: &mut State<T>) -> bool {
        let State::Running(future) = state else { return false };
        if !self.relay.woken.swap(false, Ordering::SeqCst) {
            return true;
        }
        // After a panic nothing looks at it any more.
        let poll = AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&self.waker)));
        let end = match catch_unwind(poll) {
            Ok(Poll::Pending) => return true,
            Ok(Poll::Ready(done)) => Ok(done),
            Err(panic) => Err(panic),
        };
        *state = State::Done(end);
        self.relay.over.store(true, Ordering::SeqCst);
        false
    }
}

impl<T> State<T> {
    fn take_end(&mut self) -> Option<End<T>> {
        match std::mem::replace(self, Self::Over) {
            Self::Done(end) => Some(end),
            other @ (Self::Running(_) | Self::Over) => {
                *self = other;
                None
            }
        }
    }
}

impl Relay {
    /// Whether there is another turn to take.
    fn goes_on(&self) -> bool {
        self.woken.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst)
    }

    /// Whether this is the thread, which has said that it comes back soon.
    fn comes_back(&self) -> bool {
        let is_this = |thread: &Thread| thread.id() == thread::current().id();
        self.promised.load(Ordering::SeqCst) && self.thread.get().is_some_and(is_this)
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if self.helping.load(Ordering::SeqCst) || self.comes_back() {
            return;
        }
        match self.thread.get() {
            Some(thread) if self.waits.load(Ordering::SeqCst) => thread.unpark(),
            Some(_) | None => self.task.wake(),
        }
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("relay", &self.relay).finish_non_exhaustive()
    }
}
