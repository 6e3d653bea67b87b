//! Copies of the state that other threads make while gradients are computed. They end before the state changes.

use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::model::StateError;

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
    under_way: Vec<JoinHandle<Result<(), StateError>>>,
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

    /// Makes one more copy, and sends it. What `copy` has borrowed of the state it has dropped when it returns.
    pub(crate) fn begin(
        &mut self,
        copy: impl FnOnce() -> Result<Vec<Bytes>, StateError> + Send + 'static,
        reply: oneshot::Sender<Vec<Bytes>>,
    ) -> Result<(), CopyError> {
        let work = move || {
            // The task that asked may have given up.
            let _ = reply.send(copy()?);
            Ok(())
        };
        if !self.on_threads {
            return Ok(work()?);
        }
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(work);
        self.under_way.push(thread.map_err(CopyError::Thread)?);
        Ok(())
    }

    /// Waits for all copies.
    pub(crate) fn finish(&mut self) -> Result<(), CopyError> {
        for copy in self.under_way.drain(..) {
            copy.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(())
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
        let (reply, copied) = oneshot::channel();
        let copy = move || {
            let _ = gate.recv();
            Ok(vec![Bytes::from_static(b"state")])
        };
        copies.begin(copy, reply).unwrap();
        let waiter = thread::spawn(move || {
            copies.finish().unwrap();
            copied
        });
        go.send(()).unwrap();
        assert_eq!(waiter.join().unwrap().try_recv().unwrap(), ["state"]);
    }

    #[test]
    fn a_copy_that_fails_ends_training_and_one_that_is_not_wanted_does_not() {
        let mut copies = Copies::on_threads();
        let (reply, _) = oneshot::channel();
        copies.begin(|| Ok(vec![]), reply).unwrap();
        copies.finish().unwrap();
        let (reply, copied) = oneshot::channel();
        copies.begin(|| Err(StateError::TooMany), reply).unwrap();
        assert!(matches!(copies.finish(), Err(CopyError::State(StateError::TooMany))));
        copied.blocking_recv().unwrap_err();
        copies.finish().unwrap();
    }
}
