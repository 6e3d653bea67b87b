//! Copies of the state that other threads make beside the one that trains. They end before the state changes, unless what they read stays as
//! it is.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use sardana_actors::room::Room;
use sardana_actors::worker::{CopyReply, Moved};
use sardana_net::environment::give_way;

use crate::model::{Share, SharedState, StateError, StatePieces, copy_shared};

/// Why a copy was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// The state cannot be shown.
    #[error(transparent)]
    State(#[from] StateError),
    /// No thread to make it.
    #[error(transparent)]
    Thread(std::io::Error),
}

/// The copies that are under way.
pub(crate) struct Copies {
    /// Whether each is made by a thread of its own; if not, by the one that begins it, before it goes on.
    on_threads: bool,
    under_way: Vec<Copying>,
}

/// A copy that a thread makes.
struct Copying {
    thread: JoinHandle<Result<(), StateError>>,
    /// Whether the state may be updated meanwhile.
    outlives_updates: bool,
    /// Whether it has been.
    outlived_one: bool,
}

impl Copying {
    /// Waits for it.
    fn finish(self) -> Result<(), CopyError> {
        Ok(self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))?)
    }
}

impl Copies {
    /// Copies that threads make.
    pub(crate) const fn on_threads() -> Self {
        Self::made(true)
    }

    /// Copies that are made at once: where threads would come and go as no seed decides.
    pub(crate) const fn at_once() -> Self {
        Self::made(false)
    }

    const fn made(on_threads: bool) -> Self {
        let under_way = Vec::new();
        Self { on_threads, under_way }
    }

    /// Lets these shares of a state be copied, which has these pieces, into what `room` gives. `moved` counts what is copied.
    pub(crate) fn begin_shared(
        &mut self,
        shared: Box<dyn SharedState>,
        pieces: Arc<StatePieces>,
        shares: Vec<Share>,
        room: impl FnOnce(usize) -> Room + Send + 'static,
        (moved, reply): (Moved, CopyReply),
    ) -> Result<(), CopyError> {
        let outlives_updates = shared.outlives_updates();
        let copy = move || copy_shared(shared.as_ref(), &pieces, &shares, room, |bytes| moved.add(bytes));
        self.begin(outlives_updates, copy, reply)
    }

    /// Makes one more copy, and sends it. What `copy` has borrowed of the state it has dropped when it returns; whether updates wait for that
    /// is told by `outlives_updates`. One that has outlived an update ends first: no more than one earlier state is held.
    fn begin(
        &mut self,
        outlives_updates: bool,
        copy: impl FnOnce() -> Result<Vec<Bytes>, StateError> + Send + 'static,
        reply: CopyReply,
    ) -> Result<(), CopyError> {
        let work = move || {
            reply.send(copy()?);
            Ok(())
        };
        if !self.on_threads {
            return Ok(work()?);
        }
        self.finish_those(|copy| copy.outlived_one)?;
        let work = move || {
            if outlives_updates {
                // The steps that go on meanwhile come first.
                give_way();
            }
            work()
        };
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(work);
        self.under_way.push(Copying {
            thread: thread.map_err(CopyError::Thread)?,
            outlives_updates,
            outlived_one: false,
        });
        Ok(())
    }

    /// The state is about to be updated: waits for the copies that must not see that. One that failed says so by now, or at a later update.
    pub(crate) fn before_update(&mut self) -> Result<(), CopyError> {
        self.finish_those(|copy| !copy.outlives_updates || copy.thread.is_finished())?;
        self.under_way.iter_mut().for_each(|copy| copy.outlived_one = true);
        Ok(())
    }

    /// Waits for all copies.
    pub(crate) fn finish(&mut self) -> Result<(), CopyError> {
        self.finish_those(|_| true)
    }

    fn finish_those(&mut self, which: impl Fn(&Copying) -> bool) -> Result<(), CopyError> {
        self.under_way
            .extract_if(.., |copy| which(copy))
            .try_for_each(Copying::finish)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_state_changes_only_after_the_copy() {
        let mut copies = Copies::on_threads();
        let (go, gate) = mpsc::channel::<()>();
        let (reply, copied) = CopyReply::new();
        let copy = move || {
            let _ = gate.recv();
            Ok(vec![Bytes::from_static(b"state")])
        };
        copies.begin(false, copy, reply).unwrap();
        let waiter = thread::spawn(move || {
            copies.before_update().unwrap();
            copied
        });
        go.send(()).unwrap();
        assert_eq!(waiter.join().unwrap().try_recv().unwrap(), ["state"]);
    }

    #[test]
    fn updates_wait_for_no_copy_that_outlives_them() {
        let mut copies = Copies::on_threads();
        let (go, gate) = mpsc::channel::<()>();
        let (reply, mut first) = CopyReply::new();
        let copy = move || {
            let _ = gate.recv();
            Ok(vec![Bytes::from_static(b"state")])
        };
        copies.begin(true, copy, reply).unwrap();
        copies.before_update().unwrap();
        copies.before_update().unwrap();
        first.try_recv().unwrap_err();
        // The next one does not begin before it has ended.
        let waiter = thread::spawn(move || {
            let (reply, second) = CopyReply::new();
            copies.begin(true, || Ok(vec![]), reply).unwrap();
            let first = first.try_recv();
            copies.finish().unwrap();
            (first, second)
        });
        go.send(()).unwrap();
        let (first, mut second) = waiter.join().unwrap();
        assert_eq!(first.unwrap(), ["state"]);
        assert_eq!(second.try_recv().unwrap(), [""; 0]);
    }

    #[test]
    fn a_copy_that_fails_ends_training_and_one_that_is_not_wanted_does_not() {
        let mut copies = Copies::on_threads();
        let (reply, _) = CopyReply::new();
        copies.begin(false, || Ok(vec![]), reply).unwrap();
        copies.finish().unwrap();
        let (reply, copied) = CopyReply::new();
        copies.begin(true, || Err(StateError::TooMany), reply).unwrap();
        assert!(matches!(copies.finish(), Err(CopyError::State(StateError::TooMany))));
        copied.blocking_recv().unwrap_err();
        copies.finish().unwrap();
    }
}
